//! A network as a chain of numbered layers, of which a worker may have only some.
//!
//! Tensors are called by the numbers their layers have in the whole network, so names, checkpoints and initial weights do
//! not depend on who has which layer.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use burn::{
    module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};

use super::{
    super::{
        checkpoint_tensors::stored_type,
        module_tensors::{Which, read, renumber_layer},
    },
    flow::Flow,
    splits::Splits,
};
use crate::{Result, World, checkpoint::Description, random::Stream, seed};

/// A layer of a [`Chain`].
pub trait Layer: Module {
    /// What it makes of what the layer before it gives.
    fn forward(&self, flow: Flow) -> Result<Flow>;
}

/// Some layers of a network, by their numbers.
#[derive(Debug, Clone)]
pub struct Chain<L> {
    layers: Vec<(usize, L)>,
    splits: Option<Arc<Splits>>,
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
        let make = |number| Ok((number, begun(number, device, seed_of_network, &mut layer)?));
        Ok(Self { layers: numbers.into_iter().map(make).collect::<Result<_>>()?, splits: None })
    }

    /// The same of layers that are split over the workers of a world, such as those of [`crate::tensor_parallel`]. Each is
    /// made twice, whole and in part, so it begins with a part of the same weights, and
    /// [checkpoints](crate::Pipeline::save) have whole tensors. All workers of the world call it for the same layers.
    pub fn split_over(
        world: &World,
        numbers: impl IntoIterator<Item = usize>,
        device: &Device,
        seed_of_network: u64,
        mut layer: impl FnMut(usize, Option<&World>) -> Result<L>,
    ) -> Result<Self> {
        let (mut splits, mut layers) = (Splits::new(world), Vec::new());
        for number in numbers {
            let whole = begun(number, device, seed_of_network, &mut |number| layer(number, None))?;
            let part = begun(number, device, seed_of_network, &mut |number| layer(number, Some(world)))?;
            splits.add(number, &whole, &part)?;
            layers.push((number, part));
        }
        Ok(Self { layers, splits: Some(Arc::new(splits)) })
    }

    /// The same of layers of whose parameters every worker of a world keeps some rows, and that compute with whole ones all
    /// the same: workers lend them to each other, stage by stage. The workers are those that have other samples. Each
    /// layer is made whole before the next one is; all workers of the world call it for the same layers.
    ///
    /// What is kept belongs to this worker, so the optimizer is that of this worker alone:
    ///
    /// ```no_run
    /// # use burn::{module::Module, nn::{Linear, LinearConfig}, optim::AdamConfig, tensor::Tensor};
    /// # use sirtaki::{Chain, DistributedOptimizer, Flow, Layer, Pipeline, pipeline::PipelineSchedule};
    /// # #[derive(Module, Debug)]
    /// # struct Dense {
    /// #     linear: Linear,
    /// # }
    /// # impl Layer for Dense {
    /// #     fn forward(&self, mut flow: Flow) -> sirtaki::Result<Flow> {
    /// #         Ok(Flow::new().with(self.linear.forward(flow.take::<Tensor<2>>()?)))
    /// #     }
    /// # }
    /// # fn main() -> sirtaki::Result<()> {
    /// let world = sirtaki::init()?;
    /// let (alone, device) = (world.split(world.rank() as u64)?, world.device().autodiff());
    /// // Twelve layers, each of them a stage of its own, on every worker.
    /// let stages = (0..12).map(|layer| layer..layer + 1).collect();
    /// let pipeline = Pipeline::new(&alone, PipelineSchedule::GPipe, 1, stages)?;
    /// let layer = |_| Ok(Dense { linear: LinearConfig::new(512, 512).init(&device) });
    /// let chain = Chain::shard_over(&world, pipeline.layers(), &device, 42, layer)?;
    /// let optimizer = DistributedOptimizer::new(&alone, AdamConfig::new().init());
    /// # let _ = (chain, optimizer);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shard_over(
        world: &World,
        numbers: impl IntoIterator<Item = usize>,
        device: &Device,
        seed_of_network: u64,
        mut layer: impl FnMut(usize) -> Result<L>,
    ) -> Result<Self> {
        let (mut splits, mut layers) = (Splits::new(world), Vec::new());
        for number in numbers {
            let whole = begun(number, device, seed_of_network, &mut layer)?;
            splits.check_layer(number, &whole)?;
            layers.push((number, splits.keep_rows(number, whole)));
        }
        Ok(Self { layers, splits: Some(Arc::new(splits)) })
    }

    /// Who lends parameters to whom, if workers do.
    pub(super) fn lenders(&self) -> Option<Arc<Splits>> {
        self.splits.clone().filter(|splits| splits.lent)
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

    /// How many parameters the layers that are here have, those parts included that other workers have.
    pub fn num_params_of_whole(&self) -> Result<usize> {
        let missing = self.splits.as_ref().map_or(Ok(0), |splits| splits.missing(self))?;
        Ok(self.num_params() + missing)
    }

    /// Shows the elements of all tensors, with the numbers of their layers, in the order of the layers; whole tensors,
    /// even if layers are split. All workers that have parts of these layers call it.
    pub fn whole_tensors(&self, mut show: impl FnMut(usize, &[u8])) -> Result<()> {
        for (number, layer) in &self.layers {
            for tensor in read(layer, "", Which::All, true)? {
                let name = format!("whole/{number}.{}", tensor.name.trim_start_matches('/'));
                let dtype = stored_type(&name, tensor.dtype)?;
                let part = Description { name, dtype, shape: tensor.shape.to_vec() };
                let bytes = tensor.data.map_or_else(Vec::new, |data| data.as_bytes().to_vec());
                let bytes = match &self.splits {
                    Some(splits) => splits.gather(&splits.whole(&part), bytes)?,
                    None => bytes,
                };
                show(*number, &bytes);
            }
        }
        Ok(())
    }

    /// How the layers are split, if they are.
    pub(super) fn splits(&self) -> Option<&Splits> {
        self.splits.as_deref()
    }

    /// The layers of each of these stages apart from the others.
    pub(super) fn apart(self, stages: impl Iterator<Item = Range<usize>>) -> Vec<Self> {
        let none = || Self { layers: Vec::new(), splits: self.splits.clone() };
        let mut parts: Vec<(Range<usize>, Self)> = stages.map(|stage| (stage, none())).collect();
        for (number, layer) in self.layers {
            if let Some((_, part)) = parts.iter_mut().find(|(stage, _)| stage.contains(&number)) {
                part.layers.push((number, layer));
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// The layers of all parts together.
    pub(super) fn together(parts: Vec<Self>) -> Self {
        let splits = parts.first().and_then(|part| part.splits.clone());
        Self { layers: parts.into_iter().flat_map(|part| part.layers).collect(), splits }
    }

    fn each(self, mut change: impl FnMut(usize, L) -> L) -> Self {
        let layers = self.layers.into_iter().map(|(number, layer)| (number, change(number, layer))).collect();
        Self { layers, splits: self.splits }
    }
}

/// Held while weights are drawn: on CPUs Burn has one generator for the whole process, whose threads may be ranks.
static GENERATOR: Mutex<()> = Mutex::new(());

/// A layer as it begins.
fn begun<L: Layer>(
    number: usize,
    device: &Device,
    seed_of_network: u64,
    layer: &mut impl FnMut(usize) -> Result<L>,
) -> Result<L> {
    // A thread that panicked has left nothing that matters: the next one seeds again.
    let _drawing = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    seed(device, Stream::new("layer", &[seed_of_network, number as u64]));
    let layer = layer(number)?;
    layer.visit(&mut Draw);
    Ok(renumber_layer(number, layer))
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
        Self { layers: Vec::new(), splits: None }
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
        let layers = self.layers.iter().map(|(number, layer)| (*number, layer.valid())).collect();
        Self { layers, splits: self.splits.clone() }
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
