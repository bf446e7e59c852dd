//! Layers whose tensors are split over workers, seen as the tensors of the whole network.
//!
//! Which tensors are split, and along which dimension, follows from the layers: each is made whole and in part, and where
//! the two differ in size, it is split. So checkpoints and checksums know whole tensors only, one at a time, and do not
//! depend on who had which part.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::Tensor,
};
use sirtaki_comm::DType;
use sirtaki_engine::{Operation, Request, Tensor as EngineTensor, decide::request::shares};

use crate::{
    Error, Result, World,
    checkpoint::Description,
    parallel::{
        convert::zeros,
        module_tensors::{Which, read},
        optimizer_record::is_state,
        tensor_names::Path,
    },
    world::{elements, wrong_type},
};

/// How the tensors of some layers are split over the workers of a world.
#[derive(Debug)]
pub(super) struct Splits {
    pub(super) world: World,
    /// Whether layers compute with whole parameters all the same, which workers lend to each other.
    pub(super) lent: bool,
    /// By the paths of tensors; those of which every worker has all are not here.
    cuts: HashMap<String, Cut>,
}

/// How a tensor is split.
#[derive(Debug)]
struct Cut {
    dimension: usize,
    /// The size along that dimension on each worker.
    sizes: Vec<usize>,
}

impl Splits {
    pub(super) fn new(world: &World) -> Self {
        Self { world: world.clone(), lent: false, cuts: HashMap::new() }
    }

    /// Finds out how a layer is split. All workers call it for the same layers in the same order.
    pub(super) fn add<M: Module>(&mut self, number: usize, whole: &M, part: &M) -> Result<()> {
        let (whole, part) = (read(whole, "", Which::All, false)?, read(part, "", Which::All, false)?);
        let different = |what: &str| {
            let problem = format!("layer {number} is not the same whole and split: {what}");
            Err(Error::setting(problem, "make the same layer with and without a world to split it over"))
        };
        if !whole.iter().map(|tensor| &tensor.name).eq(part.iter().map(|tensor| &tensor.name)) {
            return different("it has other tensors");
        }
        for (whole, part) in whole.iter().zip(&part) {
            let path = format!("{number}.{}", whole.name.trim_start_matches('/'));
            let sizes = || whole.shape.iter().zip(part.shape.iter()).enumerate();
            let mut differing = sizes().filter(|(_, (whole, part))| whole != part);
            let Some((dimension, (&total, &own))) = differing.next() else { continue };
            if differing.next().is_some() || whole.shape.len() != part.shape.len() {
                return different(&format!("`{path}` differs in more than one size"));
            }
            let sizes = self.world.gather(&format!("size of `{path}`"), own as u64)?;
            let sizes: Vec<usize> = sizes.into_iter().map(|size| size as usize).collect();
            if sizes.iter().sum::<usize>() != total {
                return different(&format!("the parts of `{path}` have the sizes {sizes:?}, and it has {total}"));
            }
            self.cuts.insert(path, Cut { dimension, sizes });
        }
        Ok(())
    }

    /// Fails on all workers if one of them makes another layer.
    pub(super) fn check_layer<M: Module>(&self, number: usize, whole: &M) -> Result<()> {
        let mut hasher = DefaultHasher::new();
        read(whole, "", Which::All, false)?.iter().for_each(|part| (&part.name, part.shape.to_vec()).hash(&mut hasher));
        let hashes = self.world.gather(&format!("what layer {number} is like"), hasher.finish())?;
        let Some(worker) = (1..hashes.len()).find(|&worker| hashes[worker] != hashes[0]) else { return Ok(()) };
        let problem = format!("layer {number} of worker {worker} has other parameters than that of worker 0");
        Err(Error::setting(problem, "make the layers of the same network on all workers"))
    }

    /// A layer with this worker's rows of each parameter that is trained, for workers that lend them to each other.
    pub(super) fn keep_rows<M: Module>(&mut self, number: usize, layer: M) -> M {
        self.lent = true;
        layer.map(&mut KeepRows { path: Path::default(), number, splits: self })
    }

    /// Whether every worker has another part of a tensor.
    pub(super) fn is_cut(&self, tensor: &str) -> bool {
        self.cut(tensor).is_some()
    }

    /// How many rows of a tensor each worker has, if it is split by rows.
    pub(super) fn rows(&self, tensor: &str) -> Option<&[usize]> {
        self.cut(tensor).filter(|cut| cut.dimension == 0).map(|cut| cut.sizes.as_slice())
    }

    fn cut(&self, tensor: &str) -> Option<&Cut> {
        self.cuts.get(path_of(tensor))
    }

    /// The whole tensor of which this worker has such a part. Numbers are not split.
    pub(super) fn whole(&self, part: &Description) -> Description {
        self.resized(part, |cut| cut.sizes.iter().sum())
    }

    /// This worker's part of such a tensor.
    pub(super) fn part(&self, whole: &Description) -> Description {
        self.resized(whole, |cut| cut.sizes[self.world.rank()])
    }

    fn resized(&self, tensor: &Description, size: impl Fn(&Cut) -> usize) -> Description {
        let mut tensor = tensor.clone();
        if let Some(cut) = self.cut(&tensor.name)
            && let Some(here) = tensor.shape.get_mut(cut.dimension)
        {
            *here = size(cut);
        }
        tensor
    }

    /// The elements of a whole tensor, from those of all workers' parts.
    pub(super) fn gather(&self, whole: &Description, part: Vec<u8>) -> Result<Vec<u8>> {
        let Some(cut) = self.cut(&whole.name).filter(|_| !whole.shape.is_empty()) else { return Ok(part) };
        let request = Request::new(&whole.name, Operation::AllGather, DType::U8, &[part.len()]);
        let all =
            elements::<u8>(&whole.name, self.world.engine().submit(request, EngineTensor::from_vec(part)).wait_one()?)?;
        let outer = whole.shape[..cut.dimension].iter().product();
        if whole.bytes() != Some(all.len()) {
            return Err(wrong_type(&whole.name));
        }
        Ok(joined(&all, outer, &cut.sizes))
    }

    /// The elements of this worker's part of a tensor that worker 0 has.
    pub(super) fn deal(&self, whole: &Description, elements_of_whole: Option<Vec<u8>>) -> Result<Vec<u8>> {
        let length = whole.bytes().ok_or_else(|| wrong_type(&whole.name))?;
        let mut all = elements_of_whole.unwrap_or_default();
        all.resize(length, 0);
        let request = Request::new(&whole.name, Operation::Broadcast { root: 0 }, DType::U8, &[length]);
        let all =
            elements::<u8>(&whole.name, self.world.engine().submit(request, EngineTensor::from_vec(all)).wait_one()?)?;
        let Some(cut) = self.cut(&whole.name).filter(|_| !whole.shape.is_empty()) else { return Ok(all) };
        let outer = whole.shape[..cut.dimension].iter().product();
        Ok(part_of(&all, outer, &cut.sizes, self.world.rank()))
    }

    /// How many elements of tensors are on other workers only.
    pub(super) fn missing<M: Module>(&self, chain: &M) -> Result<usize> {
        let mut missing = 0;
        for tensor in read(chain, "module", Which::All, false)? {
            if let Some(cut) = self.cut(&tensor.name) {
                let (own, total) = (cut.sizes[self.world.rank()], cut.sizes.iter().sum::<usize>());
                let sizes = tensor.shape.iter().enumerate().filter(|(dimension, _)| *dimension != cut.dimension);
                missing += sizes.map(|(_, size)| size).product::<usize>() * (total - own);
            }
        }
        Ok(missing)
    }
}

/// Cuts the parameters of a layer.
struct KeepRows<'a> {
    path: Path,
    number: usize,
    splits: &'a mut Splits,
}

impl ModuleMapper for KeepRows<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.leave();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, whole, mapper) = param.consume();
        if !whole.is_require_grad() {
            return Param::from_mapped_value(id, whole, mapper);
        }
        let (device, dtype, mut shape) = (whole.device(), whole.dtype(), whole.shape());
        let world = &self.splits.world;
        let sizes = shares(shape[0], world.size());
        let (start, own) = (sizes[..world.rank()].iter().sum(), sizes[world.rank()]);
        shape[0] = own;
        let rows = if own == 0 { zeros(&shape, dtype) } else { whole.narrow(0, start, own).into_data() };
        let path = format!("{}.{}", self.number, self.path.name("").trim_start_matches('/'));
        self.splits.cuts.insert(path, Cut { dimension: 0, sizes });
        Param::from_mapped_value(id, Tensor::from_data(rows, (&device, dtype)).set_require_grad(true), mapper)
    }
}

/// The path of a tensor, or of the parameter that a tensor of an optimizer's state belongs to.
fn path_of(name: &str) -> &str {
    let path = name.split_once('/').map_or(name, |(_, path)| path);
    if is_state(name) { path.rsplit_once('/').map_or(path, |(path, _)| path) } else { path }
}

/// A tensor from its parts, which follow one another. Along the dimension that is split they have these sizes; `outer` is
/// the product of the sizes before it.
fn joined(parts: &[u8], outer: usize, sizes: &[usize]) -> Vec<u8> {
    let total: usize = sizes.iter().sum();
    let unit = parts.len() / (outer * total).max(1);
    let mut whole = Vec::with_capacity(parts.len());
    for row in 0..outer {
        let mut begin = 0;
        for size in sizes {
            whole.extend_from_slice(&parts[(begin * outer + row * size) * unit..][..size * unit]);
            begin += size;
        }
    }
    whole
}

/// One of the parts of a tensor.
fn part_of(whole: &[u8], outer: usize, sizes: &[usize], place: usize) -> Vec<u8> {
    let (total, before): (usize, usize) = (sizes.iter().sum(), sizes[..place].iter().sum());
    let unit = whole.len() / (outer * total).max(1);
    let rows = whole.chunks((total * unit).max(1));
    rows.flat_map(|row| &row[before * unit..(before + sizes[place]) * unit]).copied().collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_by_hand() {
        // Two rows of three columns, of which the first worker has two.
        assert_eq!(part_of(&[1, 2, 3, 4, 5, 6], 2, &[2, 1], 0), [1, 2, 4, 5]);
        assert_eq!(part_of(&[1, 2, 3, 4, 5, 6], 2, &[2, 1], 1), [3, 6]);
        assert_eq!(joined(&[1, 2, 4, 5, 3, 6], 2, &[2, 1]), [1, 2, 3, 4, 5, 6]);
        assert_eq!(path_of("module/1.Dense.up.weight"), "1.Dense.up.weight");
        assert_eq!(path_of("optimizer/1.Dense.up.weight/momentum.moment_1"), "1.Dense.up.weight");
    }

    proptest! {
        #[test]
        fn parts_make_up_the_whole(outer in 1_usize..5, sizes in prop::collection::vec(1_usize..5, 1..5), unit in 1_usize..9) {
            let whole: Vec<u8> = (0..outer * sizes.iter().sum::<usize>() * unit).map(|byte| byte as u8).collect();
            let parts: Vec<u8> = (0..sizes.len()).flat_map(|place| part_of(&whole, outer, &sizes, place)).collect();
            prop_assert_eq!(joined(&parts, outer, &sizes), whole);
        }
    }
}
