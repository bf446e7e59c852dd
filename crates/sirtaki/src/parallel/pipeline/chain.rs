//! A network as a chain of numbered layers, of which a worker may have only some.
//!
//! Tensors are called by the numbers their layers have in the whole network, so names, checkpoints and initial weights do
//! not depend on who has which layer.

use std::ops::Range;

use burn::{
    module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};

use super::{super::module_tensors::renumber_layer, flow::Flow};
use crate::{Result, random::Stream, seed};

/// A layer of a [`Chain`].
pub trait Layer: Module {
    /// What it makes of what the layer before it gives.
    fn forward(&self, flow: Flow) -> Result<Flow>;
}

/// Some layers of a network, by their numbers.
#[derive(Debug, Clone)]
pub struct Chain<L> {
    layers: Vec<(usize, L)>,
}

impl<L: Layer> Chain<L> {
    /// The layers with these numbers, ascending. Before each is made, the device is seeded for its number, so that it
    /// begins with the same weights whoever has it; the identities of its parameters follow from its number, too.
    pub fn new(
        numbers: impl IntoIterator<Item = usize>,
        device: &Device,
        seed_of_network: u64,
        mut layer: impl FnMut(usize) -> Result<L>,
    ) -> Result<Self> {
        let make = |number| {
            seed(device, Stream::new("layer", &[seed_of_network, number as u64]));
            let layer = layer(number)?;
            layer.visit(&mut Draw);
            Ok((number, renumber_layer(number, layer)))
        };
        Ok(Self { layers: numbers.into_iter().map(make).collect::<Result<_>>()? })
    }

    /// The numbers of the layers that are here, ascending.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.layers.iter().map(|(number, _)| *number)
    }

    /// The layers that are here, with their numbers, ascending.
    pub fn layers(&self) -> impl Iterator<Item = (usize, &L)> {
        self.layers.iter().map(|(number, layer)| (*number, layer))
    }

    /// What all layers that are here, one after the other, make of what they are given.
    pub fn forward(&self, flow: Flow) -> Result<Flow> {
        self.layers.iter().try_fold(flow, |flow, (_, layer)| layer.forward(flow))
    }

    /// The layers of each of these stages apart from the others.
    pub(super) fn apart(self, stages: impl Iterator<Item = Range<usize>>) -> Vec<Self> {
        let mut parts: Vec<(Range<usize>, Self)> = stages.map(|stage| (stage, Self { layers: Vec::new() })).collect();
        for (number, layer) in self.layers {
            if let Some((_, part)) = parts.iter_mut().find(|(stage, _)| stage.contains(&number)) {
                part.layers.push((number, layer));
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// The layers of all parts together.
    pub(super) fn together(parts: Vec<Self>) -> Self {
        Self { layers: parts.into_iter().flat_map(|part| part.layers).collect() }
    }

    fn each(self, mut change: impl FnMut(usize, L) -> L) -> Self {
        Self { layers: self.layers.into_iter().map(|(number, layer)| (number, change(number, layer))).collect() }
    }
}

/// Makes Burn draw the numbers of parameters now, instead of when they are first asked for.
struct Draw;

impl ModuleVisitor for Draw {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        drop(param.val());
    }
}

impl<L> Default for Chain<L> {
    fn default() -> Self {
        Self { layers: Vec::new() }
    }
}

impl<L: Layer> Module for Chain<L> {
    fn num_params(&self) -> usize {
        self.layers.iter().map(|(_, layer)| layer.num_params()).sum()
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        for (number, layer) in &self.layers {
            let name = number.to_string();
            visitor.enter_module(&name, "Chain");
            layer.visit(visitor);
            visitor.exit_module(&name, "Chain");
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        self.each(|number, layer| {
            let name = number.to_string();
            mapper.enter_module(&name, "Chain");
            let layer = layer.map(mapper);
            mapper.exit_module(&name, "Chain");
            layer
        })
    }

    fn to_device(self, device: &Device) -> Self {
        self.each(|_, layer| layer.to_device(device))
    }

    fn fork(self, device: &Device) -> Self {
        self.each(|_, layer| layer.fork(device))
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        self.layers.iter().fold(devices, |devices, (_, layer)| layer.collect_devices(devices))
    }

    fn valid(&self) -> Self {
        Self { layers: self.layers.iter().map(|(number, layer)| (*number, layer.valid())).collect() }
    }

    fn train(self) -> Self {
        self.each(|_, layer| layer.train())
    }

    fn materialize(self) -> Self {
        self.each(|_, layer| layer.materialize())
    }
}

impl<L: Layer + ModuleDisplay> ModuleDisplayDefault for Chain<L> {
    fn content(&self, content: Content) -> Option<Content> {
        let layers = self.layers.iter();
        layers.fold(content, |content, (number, layer)| content.add(&number.to_string(), layer)).optional()
    }
}

impl<L: Layer + ModuleDisplay> ModuleDisplay for Chain<L> {}
