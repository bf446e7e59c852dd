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
    /// What losses were multiplied by.
    pub(super) loss_scale: Option<f64>,
    /// About how many bytes go together.
    pub(super) bucket: Option<usize>,
}

impl Reducer {
    /// Plain means, or sums, under this name.
    pub(super) fn new(purpose: &str, mean: bool) -> Self {
        Self { purpose: purpose.into(), mean, compression: None, passes: 1, clip: None, loss_scale: None, bucket: None }
    }

    /// The gradients of all ranks as one, unless they are too large to be numbers. All ranks call it with the same
    /// structure, whichever gradients they have.
    pub(super) fn reduce<M: Module>(
        &self,
        world: &World,
        module: &M,
        mut gradients: GradientsParams,
    ) -> Result<Option<GradientsParams>> {
        let purpose = &self.purpose;
        let mut found = take(module, purpose, &mut gradients);
        if world.size() == 1 && self.compression.is_none() {
            let own = found.into_iter().filter_map(|entry| Some((entry.id, entry.data?, entry.device)));
            return Ok(self.put(module, self.scale(1.0), own.collect()));
        }
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
        let mut reduced = Vec::new();
        for ((entry, output), present) in found.into_iter().zip(outputs).zip(presence) {
            if *present > 0.0 {
                let data = inbound(&entry.name, output, entry.shape, entry.dtype)?;
                reduced.push((entry.id, data, entry.device));
            }
        }
        Ok(self.put(module, self.scale(share.into()), reduced))
    }

    /// These gradients times `scale`, clipped; nothing if losses were multiplied by too much. The order of the gradients
    /// decides the bits of their norm.
    pub(super) fn put<M: Module>(
        &self,
        module: &M,
        scale: f64,
        reduced: Vec<(ParamId, TensorData, Device)>,
    ) -> Option<GradientsParams> {
        let factor = self.factor(scale, reduced.iter().map(|(_, data, _)| data))?;
        let reduced = reduced.into_iter().map(|(id, data, device)| (id, (data, device))).collect();
        let mut put = Put { reduced, factor, gradients: GradientsParams::new() };
        module.visit(&mut put);
        Some(put.gradients)
    }

    fn operation(&self) -> Operation {
        Operation::AllReduce(Reduction::new(if self.mean { ReduceOp::Average } else { ReduceOp::Sum }))
    }

    /// What sums over passes, or means over all ranks, are multiplied by where that share of the ranks has data.
    fn scale(&self, share: f64) -> f64 {
        if self.mean { 1.0 / (share * self.passes as f64) } else { 1.0 }
    }

    /// One for being here, and one for each gradient that is.
    fn presence(&self, found: &[Entry]) -> (Request, sirtaki_engine::Tensor) {
        let here = found.iter().map(|entry| if entry.data.is_some() { 1.0 } else { 0.0 });
        let here: Vec<f32> = std::iter::once(1.0).chain(here).collect();
        let data = TensorData::new(here, [found.len() + 1]);
        outbound(&format!("{} presence", self.purpose), self.operation(), data)
    }

    /// What the results are multiplied by, where it would be `scale` without clipping and scaled losses.
    fn factor<'a>(&self, scale: f64, reduced: impl Iterator<Item = &'a TensorData>) -> Option<f64> {
        let scale = scale / self.loss_scale.unwrap_or(1.0);
        if self.clip.is_none() && self.loss_scale.is_none() {
            return Some(scale);
        }
        let norm = reduced.map(squares).sum::<f64>().sqrt() * scale;
        match self.clip {
            _ if self.loss_scale.is_some() && !norm.is_finite() => None,
            Some(largest) if norm > largest => Some(scale * largest / norm),
            _ => Some(scale),
        }
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
pub(super) struct Entry {
    pub(super) id: ParamId,
    pub(super) name: String,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    pub(super) device: Device,
    pub(super) data: Option<TensorData>,
}

/// The parameters that learn, in an order that follows from the module's type, with those gradients that are there.
pub(super) fn take<M: Module>(module: &M, purpose: &str, gradients: &mut GradientsParams) -> Vec<Entry> {
    let mut take = Take { path: Path::default(), purpose, gradients, known: HashSet::new(), found: Vec::new() };
    module.visit(&mut take);
    take.found
}

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
