//! Gradients reduced over all ranks.
//!
//! A parameter that a rank did not use has no gradient there, and counts as zero. One that no rank used has none, as in
//! a single process, where the optimizer does not touch it either. Which ranks have which gradients is summed up
//! alongside them, in the same buffer; so is the number of ranks that still have data.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use burn::{
    module::{Module, ModuleVisitor, Param, ParamId},
    optim::GradientsParams,
    tensor::{DType, Device, Shape, Tensor, TensorData},
};
use sirtaki_comm::{ReduceOp, Reduction};
use sirtaki_engine::{Compression, Operation, Request};

use super::{
    LeafSums,
    convert::{copied, inbound, outbound, zeros},
    leaf_sums::STATISTICS,
    module_tensors::replace,
    norm::{self, Squares, root},
    tensor_names::{Path, group},
    tree_sums::over_all,
};
use crate::{Error, Result, World, world::elements};

/// How gradients are combined.
#[derive(Debug, Clone)]
pub(super) struct Reducer {
    /// What the gradients of this module are called.
    pub(super) purpose: String,
    /// Whether the result is the mean, over ranks and passes, or the sum.
    pub(super) mean: bool,
    /// The type as which gradients of type `f32` are sent.
    pub(super) compression: Option<Compression>,
    /// How many backward passes are in every gradient.
    pub(super) passes: usize,
    /// The largest norm of all gradients together.
    pub(super) clip: Option<f64>,
    /// What losses were multiplied by.
    pub(super) loss_scale: Option<f64>,
    /// What its parameters are called, once that is known.
    names: Option<Arc<Names>>,
}

impl Reducer {
    /// Plain means, or sums, under this name.
    pub(super) fn new(purpose: &str, mean: bool) -> Self {
        Self { purpose: purpose.into(), mean, compression: None, passes: 1, clip: None, loss_scale: None, names: None }
    }

    /// Gives the gradients another name from now on.
    pub(super) fn rename(&mut self, purpose: String) {
        (self.purpose, self.names) = (purpose, None);
    }

    /// The combined gradients of all ranks, unless they overflow. All ranks call it with the same
    /// structure, whichever gradients they have.
    pub(super) fn reduce<M: Module>(
        &mut self,
        world: &World,
        module: &M,
        mut gradients: GradientsParams,
    ) -> Result<Option<GradientsParams>> {
        let mut found = take(module, &mut gradients);
        if world.size() == 1 && self.compression.is_none() {
            let own = found.into_iter().filter_map(|entry| Some((entry.id, entry.data?, entry.device)));
            return self.put(module, self.scale(1.0), own.collect(), &[]);
        }
        let names = self.names(module, &found);
        let mut requests = vec![self.presence(&found)];
        for (entry, name) in found.iter_mut().zip(&names.names) {
            let data = entry.data.take().unwrap_or_else(|| zeros(&entry.shape, entry.dtype));
            let (request, tensor) = outbound(name, self.operation(), data);
            let compression = self.compression.filter(|_| entry.dtype == DType::F32);
            requests.push((Request { compression, ..request }, tensor));
        }
        let mut outputs = world.engine().submit_group(&names.group, requests).wait()?.into_iter();
        let presence = outputs.next().map_or(Ok(Vec::new()), |output| elements::<f32>(&self.purpose, output))?;
        // The first number is about this rank as a whole.
        let (share, presence) = presence.split_first().map_or((1.0, [].as_slice()), |(share, rest)| (*share, rest));
        let mut reduced = Vec::new();
        for (((entry, name), output), present) in found.into_iter().zip(&names.names).zip(outputs).zip(presence) {
            if *present > 0.0 {
                let data = inbound(name, output, entry.shape, entry.dtype)?;
                reduced.push((entry.id, data, entry.device));
            }
        }
        self.put(module, self.scale(share.into()), reduced, &[])
    }

    /// The combined gradients of all leaves of all ranks, unless they overflow, and the module with the new statistics.
    pub(super) fn reduce_leaves<M: Module>(
        &mut self,
        world: &World,
        module: M,
        mut sums: LeafSums,
    ) -> Result<(M, Option<GradientsParams>)> {
        let group = self.leaf_group(&module, &sums)?;
        let (own, counts) = sums.take_sums();
        let (all, counts) = over_all(world, (&self.purpose, &group), &sums.columns, own, sums.leaves, counts)?;
        let mut all = all.into_iter().zip(counts);
        let mut reduced = Vec::new();
        for (entry, (sum, _)) in sums.parameters.iter().zip(all.by_ref()) {
            let data = sum.map(|sum| copied(sum.bytes(), entry.shape.clone(), entry.dtype));
            reduced.extend(data.map(|data| (entry.id, data, entry.device.clone())));
        }
        let statistics = sums.new_statistics(all)?;
        let gradients = self.put(&module, sums.scale(), reduced, &sums.others())?;
        Ok((replace(module, STATISTICS, statistics), gradients))
    }

    /// What sums over leaves are called together, if they can be exact with these options.
    pub(super) fn leaf_group<M: Module>(&mut self, module: &M, sums: &LeafSums) -> Result<String> {
        let refused = |problem: &str, hint: &str| Err(Error::setting(problem, hint));
        if self.compression.is_some() {
            return refused("compressed gradients would depend on the number of workers", "leave `compress` out");
        }
        if self.passes > 1 {
            return refused("every shard has a backward pass of its own", "leave `passes` out, and take more shards");
        }
        let names = self.names(module, &sums.parameters);
        Ok(group(&self.purpose, names.names.iter().map(String::as_str).chain(sums.statistics())))
    }

    /// What these parameters of the module are called. They are named once, and again only if different ones are
    /// trained.
    pub(super) fn names<M: Module>(&mut self, module: &M, found: &[Entry]) -> Arc<Names> {
        match &self.names {
            Some(names) if names.ids.iter().eq(found.iter().map(|entry| &entry.id)) => names.clone(),
            _ => self.names.insert(Arc::new(Names::new(module, &self.purpose))).clone(),
        }
    }

    /// These gradients times `scale`, clipped; `None` if losses were multiplied by too much. Their norm is over the
    /// gradients that the workers of `others` have, too.
    fn put<M: Module>(
        &self,
        module: &M,
        scale: f64,
        reduced: Vec<(ParamId, TensorData, Device)>,
        others: &[World],
    ) -> Result<Option<GradientsParams>> {
        let mut norm = 0.0;
        if self.needs_norm() {
            let mut squares = Squares::new();
            reduced.iter().for_each(|(_, data, _)| squares.add(data));
            let others: Vec<&World> = others.iter().collect();
            norm = root(&norm::over(&others, &format!("{} norm", self.purpose), squares.digits())?);
        }
        let Some(factor) = self.factor(scale, norm) else { return Ok(None) };
        let reduced = reduced.into_iter().map(|(id, data, device)| (id, (data, device))).collect();
        let mut put = Put { reduced, factor, gradients: GradientsParams::new() };
        module.visit(&mut put);
        Ok(Some(put.gradients))
    }

    fn operation(&self) -> Operation {
        Operation::AllReduce(self.reduction())
    }

    /// How the gradients of ranks are combined.
    pub(super) fn reduction(&self) -> Reduction {
        Reduction::new(if self.mean { ReduceOp::Average } else { ReduceOp::Sum })
    }

    /// What sums over passes, or means over all ranks, are multiplied by where that share of the ranks has data.
    pub(super) fn scale(&self, share: f64) -> f64 {
        if self.mean { 1.0 / (share * self.passes as f64) } else { 1.0 }
    }

    /// A one for this rank, and a one for each gradient that it has.
    pub(super) fn presence(&self, found: &[Entry]) -> (Request, sirtaki_engine::Tensor) {
        let here = found.iter().map(|entry| if entry.data.is_some() { 1.0 } else { 0.0 });
        let here: Vec<f32> = std::iter::once(1.0).chain(here).collect();
        let data = TensorData::new(here, [found.len() + 1]);
        outbound(&format!("{} presence", self.purpose), self.operation(), data)
    }

    /// Whether what gradients are multiplied by depends on their norm.
    pub(super) fn needs_norm(&self) -> bool {
        self.clip.is_some() || self.loss_scale.is_some()
    }

    /// What the results are multiplied by, where it would be `scale` without clipping and scaled losses and `norm` is
    /// the norm of all of them before that.
    pub(super) fn factor(&self, scale: f64, norm: f64) -> Option<f64> {
        let scale = scale / self.loss_scale.unwrap_or(1.0);
        let norm = norm * scale;
        match self.clip {
            _ if self.loss_scale.is_some() && !norm.is_finite() => None,
            Some(largest) if norm > largest => Some(scale * largest / norm),
            _ => Some(scale),
        }
    }
}

/// Bytes of the trainable parameters of a module, or of their gradients as they are sent.
pub(super) fn trained_bytes<M: Module>(module: &M, compression: Option<Compression>) -> u64 {
    let element = |entry: &Entry| match compression {
        Some(_) if entry.dtype == DType::F32 => 2,
        _ => entry.dtype.size(),
    };
    let parameters = take(module, &mut GradientsParams::new());
    parameters.iter().map(|entry| (entry.shape.num_elements() * element(entry)) as u64).sum()
}

/// A trainable parameter, and its gradient on this rank.
pub(super) struct Entry {
    pub(super) id: ParamId,
    pub(super) shape: Shape,
    pub(super) dtype: DType,
    pub(super) device: Device,
    pub(super) data: Option<TensorData>,
}

/// The trainable parameters, in an order that follows from the module's type, with those gradients that exist.
pub(super) fn take<M: Module>(module: &M, gradients: &mut GradientsParams) -> Vec<Entry> {
    let mut take = Take { gradients, known: HashSet::new(), found: Vec::new() };
    module.visit(&mut take);
    take.found
}

struct Take<'a> {
    gradients: &'a mut GradientsParams,
    known: HashSet<ParamId>,
    found: Vec<Entry>,
}

impl ModuleVisitor for Take<'_> {
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
        self.found.push(Entry { id: param.id, shape, dtype, device, data: gradient.map(Tensor::into_data) });
    }
}

/// What the gradients of a module are called, and all of them together. Making the names of a large network costs more
/// than submitting its gradients.
#[derive(Debug)]
pub(super) struct Names {
    ids: Vec<ParamId>,
    /// In the order of [`take`].
    pub(super) names: Vec<String>,
    group: String,
}

impl Names {
    fn new<M: Module>(module: &M, purpose: &str) -> Self {
        let mut naming = Naming { path: Path::default(), purpose, ids: Vec::new(), names: Vec::new() };
        module.visit(&mut naming);
        let Naming { ids, names, .. } = naming;
        let group = group(purpose, names.iter().map(String::as_str));
        Self { ids, names, group }
    }
}

struct Naming<'a> {
    path: Path,
    purpose: &'a str,
    ids: Vec<ParamId>,
    names: Vec<String>,
}

impl ModuleVisitor for Naming<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.base().is_require_grad() && !self.ids.contains(&param.id) {
            self.ids.push(param.id);
            self.names.push(self.path.name(self.purpose));
        }
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

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};

    use super::*;

    #[test]
    fn a_module_is_named_once() {
        let device = Device::flex().autodiff();
        let layer = || -> Linear { LinearConfig::new(2, 3).init(&device) };
        let mut reducer = Reducer::new("gradient", true);
        let mut names = |module: &[Linear; 2]| reducer.names(module, &take(module, &mut GradientsParams::new()));
        let mut module = [layer(), layer()];
        let first = names(&module);
        assert_eq!(first.names, ["gradient/0.weight", "gradient/0.bias", "gradient/1.weight", "gradient/1.bias"]);
        assert!(Arc::ptr_eq(&first, &names(&module)));
        // A part that is not trained any more has no gradients.
        module[0] = module[0].clone().no_grad();
        assert_eq!(names(&module).names, ["gradient/1.weight", "gradient/1.bias"]);
        assert_ne!(names(&module).group, first.group);
    }
}
