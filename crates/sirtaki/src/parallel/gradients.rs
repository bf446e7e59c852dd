//! Gradients reduced over all ranks.
//!
//! A parameter that a rank did not use has no gradient there, and counts as zero. One that nobody used stays without,
//! as it would in a single process, where the optimizer does not touch it either. Who has what is summed up beside the
//! gradients, in the same buffer; so is the number of ranks that still have data.

use std::collections::{HashMap, HashSet};

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    optim::GradientsParams,
    tensor::{DType, Device, Shape, Tensor, TensorData},
};
use sirtaki_comm::{ReduceOp, Reduction};
use sirtaki_engine::{Compression, Operation, Request};

use super::{
    carry::{inbound, outbound, zeros},
    path::{Path, group},
};
use crate::{Result, World, world::elements};

/// How gradients become one.
#[derive(Debug, Clone)]
pub(super) struct Reducer {
    /// What the gradients of this module are called.
    pub(super) purpose: String,
    /// Whether the result is the mean, over ranks and passes, or the sum.
    pub(super) mean: bool,
    /// What gradients of type `f32` travel as.
    pub(super) compression: Option<Compression>,
    /// How many backward passes are in every gradient.
    pub(super) passes: usize,
    /// The largest norm of all gradients together.
    pub(super) clip: Option<f64>,
    /// About how many bytes go together.
    pub(super) bucket: Option<usize>,
}

impl Reducer {
    /// The gradients of all ranks as one. All ranks call it with the same structure, whichever gradients they have.
    pub(super) fn reduce<M: Module>(
        &self,
        world: &World,
        module: &M,
        mut gradients: GradientsParams,
    ) -> Result<GradientsParams> {
        let purpose = &self.purpose;
        let mut take = Take {
            path: Path::default(),
            purpose,
            gradients: &mut gradients,
            known: HashSet::new(),
            found: Vec::new(),
        };
        module.visit(&mut take);
        let mut found = take.found;
        let names = found.iter().map(|entry| entry.name.as_str());
        let group = group(purpose, names);
        let mut requests = vec![self.presence(&found)];
        for entry in &mut found {
            let data = entry.data.take().unwrap_or_else(|| zeros(&entry.shape, entry.dtype));
            let (request, tensor) = outbound(&entry.name, self.operation(), data);
            let compression = self.compression.filter(|_| entry.dtype == DType::F32);
            requests.push((Request { compression, ..request }, tensor));
        }
        let mut tickets = Vec::new();
        for (number, bucket) in buckets(requests, self.bucket.unwrap_or(usize::MAX)).into_iter().enumerate() {
            let name = if number == 0 { group.clone() } else { format!("{group}, bucket {number}") };
            tickets.push(world.engine().submit_group(&name, bucket));
        }
        let mut outputs = Vec::new();
        for ticket in tickets {
            outputs.extend(ticket.wait()?);
        }
        let mut outputs = outputs.into_iter();
        let presence = outputs.next().map_or(Ok(Vec::new()), |output| elements::<f32>(purpose, output))?;
        // The first number is about this rank as a whole.
        let (share, presence) = presence.split_first().map_or((1.0, [].as_slice()), |(share, rest)| (*share, rest));
        let mut reduced = HashMap::new();
        for ((entry, output), present) in found.into_iter().zip(outputs).zip(presence) {
            if *present > 0.0 {
                let data = inbound(&entry.name, output, entry.shape, entry.dtype)?;
                reduced.insert(entry.id, (data, entry.device));
            }
        }
        let factor = self.factor(share, reduced.values().map(|(data, _)| data));
        let mut put = Put { reduced, factor, gradients: GradientsParams::new() };
        module.visit(&mut put);
        Ok(put.gradients)
    }

    fn operation(&self) -> Operation {
        Operation::AllReduce(Reduction::new(if self.mean { ReduceOp::Average } else { ReduceOp::Sum }))
    }

    /// One for being here, and one for each gradient that is.
    fn presence(&self, found: &[Entry]) -> (Request, sirtaki_engine::Tensor) {
        let here = found.iter().map(|entry| if entry.data.is_some() { 1.0 } else { 0.0 });
        let here: Vec<f32> = std::iter::once(1.0).chain(here).collect();
        let data = TensorData::new(here, [found.len() + 1]);
        outbound(&format!("{} presence", self.purpose), self.operation(), data)
    }

    /// What the results are multiplied by. `share` is the part of the ranks that have data, if the mean is wanted.
    fn factor<'a>(&self, share: f32, reduced: impl Iterator<Item = &'a TensorData>) -> f64 {
        let scale = if self.mean { 1.0 / (f64::from(share) * self.passes as f64) } else { 1.0 };
        let Some(largest) = self.clip else { return scale };
        let norm = reduced.map(squares).sum::<f64>().sqrt() * scale;
        if norm > largest { scale * largest / norm } else { scale }
    }
}

/// Neighbours together, each time until they have at least that many bytes.
fn buckets<T>(requests: Vec<(Request, T)>, bytes: usize) -> Vec<Vec<(Request, T)>> {
    let mut buckets = vec![Vec::new()];
    let mut held = 0;
    for (request, tensor) in requests {
        if held >= bytes {
            buckets.push(Vec::new());
            held = 0;
        }
        held += request.elements() * request.dtype.size();
        buckets.last_mut().expect("there is a first one").push((request, tensor));
    }
    buckets
}

/// The sum of the squares.
fn squares(data: &TensorData) -> f64 {
    match data.as_slice::<f32>() {
        Ok(elements) => elements.iter().map(|&element| f64::from(element).powi(2)).sum(),
        Err(_) => data.iter::<f64>().map(|element| element * element).sum(),
    }
}

/// A parameter that learns, and its gradient here.
struct Entry {
    id: ParamId,
    name: String,
    shape: Shape,
    dtype: DType,
    device: Device,
    data: Option<TensorData>,
}

/// Takes the gradients out, in an order that follows from the module's type.
struct Take<'a> {
    path: Path,
    purpose: &'a str,
    gradients: &'a mut GradientsParams,
    known: HashSet<ParamId>,
    found: Vec<Entry>,
}

impl ModuleVisitor for Take<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.base();
        // A parameter with two places in a module has one gradient.
        if !tensor.is_require_grad() || !self.known.insert(param.id) {
            return;
        }
        let gradient = self.gradients.remove::<D>(param.id);
        let (shape, dtype, device) = match &gradient {
            Some(gradient) => (gradient.shape(), gradient.dtype(), gradient.device()),
            None => (tensor.shape(), tensor.dtype(), tensor.device().inner()),
        };
        let (name, data) = (self.path.name(self.purpose), gradient.map(Tensor::into_data));
        self.found.push(Entry { id: param.id, name, shape, dtype, device, data });
    }
}

/// Puts the results in.
struct Put {
    reduced: HashMap<ParamId, (TensorData, Device)>,
    factor: f64,
    gradients: GradientsParams,
}

impl ModuleVisitor for Put {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some((data, device)) = self.reduced.remove(&param.id) else { return };
        let dtype = data.dtype();
        let gradient = Tensor::<D>::from_data(data, (&device, dtype));
        let gradient = if self.factor == 1.0 { gradient } else { gradient.mul_scalar(self.factor) };
        self.gradients.register(param.id, gradient);
    }
}
