//! The tensors of a module by name: read in one walk through it, and replaced in another.

use std::collections::HashMap;

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId},
    tensor::{Bool, DType, Int, Shape, Tensor, TensorData},
};

use super::tensor_names::Path;
use crate::{Error, Result};

/// Which tensors are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    /// Everything.
    All,
    /// Floating-point tensors that are not trained, such as the running mean of a batch norm.
    NotTrained,
    /// Floating-point tensors that are trained.
    Trained,
}

/// One tensor of a module.
pub(super) struct Part {
    pub(super) name: String,
    pub(super) id: ParamId,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    /// What is in it, if that was wanted.
    pub(super) data: Option<TensorData>,
}

/// The tensors of a module, in an order that follows from its type.
pub(super) fn read<M: Module>(module: &M, purpose: &'static str, which: Which, with_data: bool) -> Result<Vec<Part>> {
    // Running statistics set their newest value aside until it is needed, as it is by a copy for validation.
    drop(module.valid());
    let mut reader = Reader { path: Path::default(), purpose, which, with_data, parts: Vec::new() };
    module.visit(&mut reader);
    match reader.parts.iter().find(|part| matches!(part.dtype, DType::QFloat(_))) {
        None => Ok(reader.parts),
        Some(part) => Err(Error::setting(
            format!("\"{}\" is quantized, and quantized tensors are not sent", part.name),
            "quantize the module after it has been sent",
        )),
    }
}

/// The module with these values, and with these identities, in place of its own.
pub(super) fn replace<M: Module>(module: M, purpose: &'static str, values: Vec<(String, ParamId, TensorData)>) -> M {
    let values = values.into_iter().map(|(name, id, data)| (name, (id, data))).collect();
    module.map(&mut Writer { path: Path::default(), purpose, values })
}

/// A layer with identities that follow from its number and the order of its parameters, where Burn's are random: so that
/// the files of equal runs are equal too, whoever has which layer. Before it is passed to an optimizer.
pub(super) fn renumber_layer<M: Module>(number: usize, module: M) -> M {
    module.map(&mut Renumber { first: (number as u64) << 32 | 1, known: HashMap::new() })
}

struct Renumber {
    first: u64,
    known: HashMap<ParamId, ParamId>,
}

impl Renumber {
    /// A parameter with two places in a module has one identity.
    fn of(&mut self, id: ParamId) -> ParamId {
        let next = ParamId::from(self.first + self.known.len() as u64);
        *self.known.entry(id).or_insert(next)
    }
}

impl ModuleMapper for Renumber {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(self.of(id), tensor, mapper)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(self.of(id), tensor, mapper)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        let (id, tensor, mapper) = param.consume();
        Param::from_mapped_value(self.of(id), tensor, mapper)
    }
}

struct Reader {
    path: Path,
    purpose: &'static str,
    which: Which,
    with_data: bool,
    parts: Vec<Part>,
}

impl Reader {
    fn add(&mut self, id: ParamId, shape: Shape, dtype: DType, data: impl FnOnce() -> TensorData) {
        let data = (self.with_data && !matches!(dtype, DType::QFloat(_))).then(data);
        self.parts.push(Part { name: self.path.name(self.purpose), id, shape, dtype, data });
    }
}

impl ModuleVisitor for Reader {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        let is_meant = match self.which {
            Which::All => true,
            Which::NotTrained => !tensor.is_require_grad(),
            Which::Trained => tensor.is_require_grad(),
        };
        if is_meant {
            self.add(param.id, tensor.shape(), tensor.dtype(), || tensor.into_data());
        }
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        if self.which == Which::All {
            let tensor = param.base();
            self.add(param.id, tensor.shape(), tensor.dtype(), || tensor.into_data());
        }
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        if self.which == Which::All {
            let tensor = param.base();
            self.add(param.id, tensor.shape(), tensor.dtype(), || tensor.into_data());
        }
    }
}

struct Writer {
    path: Path,
    purpose: &'static str,
    values: HashMap<String, (ParamId, TensorData)>,
}

impl Writer {
    fn value(&mut self) -> Option<(ParamId, TensorData)> {
        self.values.remove(&self.path.name(self.purpose))
    }
}

impl ModuleMapper for Writer {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.leave();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some((id, data)) = self.value() else { return param };
        let (_, old, mapper) = param.consume();
        let new = Tensor::from_data(data, (&old.device(), old.dtype())).set_require_grad(old.is_require_grad());
        Param::from_mapped_value(id, new, mapper)
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        let Some((id, data)) = self.value() else { return param };
        let (_, old, mapper) = param.consume();
        Param::from_mapped_value(id, Tensor::from_data(data, (&old.device(), old.dtype())), mapper)
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        let Some((id, data)) = self.value() else { return param };
        let (_, old, mapper) = param.consume();
        Param::from_mapped_value(id, Tensor::from_data(data, (&old.device(), old.dtype())), mapper)
    }
}
