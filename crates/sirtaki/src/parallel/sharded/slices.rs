//! What a rank has of a module: flat slices of its parameters, themselves a module, for an optimizer to work on.
//!
//! A slice has the identity and the path of its parameter, so that optimizers and rates for groups of parameters apply.

use std::{collections::HashMap, ops::Range};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId},
    tensor::{Device, Tensor, TensorData},
};

/// Tensors under the paths that they have in a module.
#[derive(Debug, Clone)]
pub(super) struct Named<const D: usize> {
    pub(super) path: Vec<String>,
    pub(super) value: Param<Tensor<D>>,
}

impl<const D: usize> Named<D> {
    pub(super) fn new(path: &str, id: ParamId, tensor: Tensor<D>) -> Self {
        // Burn's optimizers expect parameters that could be trained.
        let value = Param::initialized(id, Tensor::from_inner(tensor));
        Self { path: path.split('.').map(Into::into).collect(), value }
    }

    /// The elements.
    pub(super) fn data(self) -> TensorData {
        self.value.into_value().inner().into_data()
    }
}

impl<const D: usize> Module for Named<D> {
    fn collect_devices(&self, devices: Vec<Device>) -> Vec<Device> {
        self.value.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self { value: self.value.fork(device), ..self }
    }

    fn to_device(self, device: &Device) -> Self {
        Self { value: self.value.to_device(device), ..self }
    }

    fn train(self) -> Self {
        Self { value: self.value.train(), ..self }
    }

    fn valid(&self) -> Self {
        Self { path: self.path.clone(), value: self.value.valid() }
    }

    fn materialize(self) -> Self {
        Self { value: self.value.materialize(), ..self }
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.path.iter().for_each(|name| visitor.enter_module(name, "Slice"));
        self.value.visit(visitor);
        self.path.iter().rev().for_each(|name| visitor.exit_module(name, "Slice"));
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        self.path.iter().for_each(|name| mapper.enter_module(name, "Slice"));
        let value = Module::map(self.value, mapper);
        self.path.iter().rev().for_each(|name| mapper.exit_module(name, "Slice"));
        Self { value, ..self }
    }
}

/// All slices of a rank. The paths are those of the parameters, without places in a list.
#[derive(Debug, Clone)]
pub(super) struct Slices(pub(super) Vec<Named<1>>);

impl Module for Slices {
    fn collect_devices(&self, devices: Vec<Device>) -> Vec<Device> {
        self.0.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self(self.0.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        Self(self.0.to_device(device))
    }

    fn train(self) -> Self {
        Self(self.0.train())
    }

    fn valid(&self) -> Self {
        Self(self.0.valid())
    }

    fn materialize(self) -> Self {
        Self(self.0.materialize())
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.0.iter().for_each(|slice| slice.visit(visitor));
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        Self(self.0.into_iter().map(|slice| slice.map(mapper)).collect())
    }
}

/// These ranges of the parameters of a module, for each parameter by its identity, one after the other.
pub(super) fn cut<M: Module>(module: &M, ranges: HashMap<ParamId, &[Range<usize>]>) -> HashMap<ParamId, Tensor<1>> {
    let mut cut = Cut { ranges, slices: HashMap::new() };
    module.visit(&mut cut);
    cut.slices
}

struct Cut<'a> {
    ranges: HashMap<ParamId, &'a [Range<usize>]>,
    slices: HashMap<ParamId, Tensor<1>>,
}

impl ModuleVisitor for Cut<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(ranges) = self.ranges.remove(&param.id) else { return };
        let tensor = param.base().inner();
        let elements = tensor.shape().num_elements();
        let flat: Tensor<1> = tensor.reshape([elements]);
        let mut parts: Vec<Tensor<1>> = ranges.iter().map(|range| flat.clone().slice([range.clone()])).collect();
        let slice = if parts.len() == 1 { parts.remove(0) } else { Tensor::cat(parts, 0) };
        self.slices.insert(param.id, slice);
    }
}

/// The module with these values in place of its own.
pub(in crate::parallel) fn fill<M: Module>(module: M, values: HashMap<ParamId, TensorData>) -> M {
    module.map(&mut Fill(values))
}

struct Fill(HashMap<ParamId, TensorData>);

impl ModuleMapper for Fill {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(data) = self.0.remove(&param.id) else { return param };
        let (id, old, mapper) = param.consume();
        let new = Tensor::from_data(data, (&old.device(), old.dtype())).set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, new, mapper)
    }
}
