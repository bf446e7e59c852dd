//! Gradients of all ranks, reduced to the rank that has their elements.

use burn::{module::Module, optim::GradientsParams, tensor::TensorData};
use sirtaki_comm::{kernel, sum_tree::Branches};
use sirtaki_engine::{Operation, Request, Tensor};

use super::{Layout, blocks::Block};
use crate::{
    LeafSums, Result, World,
    parallel::{
        convert::{copied, engine_type},
        gradients::{Reducer, take},
        leaf_sums::STATISTICS,
        module_tensors::replace,
        tensor_names::group,
        tree_sums::{Exchange, Sums, all_counts, over_all},
    },
    world::{elements, wrong_type},
};

/// What a rank has of the gradients of all.
pub(super) struct Scattered {
    /// For each parameter that some rank has a gradient of, this rank's slice.
    pub(super) slices: Vec<Option<TensorData>>,
    /// What they are to be multiplied by.
    pub(super) scale: f64,
    /// Worlds whose workers have other gradients of the same step.
    pub(super) others: Vec<World>,
}

/// The gradients of all ranks' own batches.
pub(super) fn own<M: Module>(
    world: &World,
    reducer: &mut Reducer,
    layout: &Layout,
    module: &M,
    mut gradients: GradientsParams,
) -> Result<Scattered> {
    let mut found = take(module, &mut gradients);
    let names = reducer.names(module, &found);
    let group = group(&format!("{} in blocks", reducer.purpose), names.names.iter().map(String::as_str));
    let (request, tensor) = reducer.presence(&found);
    let mut requests = vec![(request.of_all(), tensor)];
    for block in &layout.blocks.blocks {
        let mut flat = Tensor::zeros(engine_type(block.dtype), block.length);
        let mut rest = flat.bytes_mut();
        for span in &block.spans {
            let (part, after) = rest.split_at_mut(span.elements.len() * block.dtype.size());
            let entry = &mut found[span.parameter];
            if let Some(data) = &entry.data {
                part.copy_from_slice(bytes_at(data.as_bytes(), block, &span.elements));
            }
            if span.elements.end == entry.shape.num_elements() {
                entry.data = None;
            }
            rest = after;
        }
        let operation = Operation::ReduceScatter(reducer.reduction());
        let name = format!("{}: {}", reducer.purpose, block.name);
        requests.push((Request::new(name, operation, flat.dtype(), &[block.length]).of_all(), flat));
    }
    let mut outputs = world.engine().submit_group(&group, requests).wait()?.into_iter();
    let presence = outputs.next().map_or(Ok(Vec::new()), |output| elements::<f32>(&reducer.purpose, output))?;
    // The first number is about this rank as a whole.
    let present: Vec<bool> = presence.iter().skip(1).map(|&present| present > 0.0).collect();
    let shares = outputs.map(|output| output.into_tensor().ok_or_else(|| wrong_type(&reducer.purpose)));
    let slices = slices(world, layout, shares, &present)?;
    Ok(Scattered { slices, scale: reducer.scale(1.0), others: Vec::new() })
}

/// The gradients of all leaves, added along the tree, and the module with the new statistics.
pub(super) fn leaves<M: Module>(
    world: &World,
    reducer: &mut Reducer,
    layout: &Layout,
    module: M,
    mut sums: LeafSums,
) -> Result<(M, Scattered)> {
    let group = reducer.leaf_group(&module, &sums)?;
    let (own, counts) = sums.take_sums();
    let of_statistics = counts[sums.parameters.len()..].to_vec();
    let counts = match world.size() {
        1 => counts,
        _ => all_counts(world, &reducer.purpose, &group, counts)?,
    };
    let (mut own, statistics) = split_sums(own, sums.leaves, sums.parameters.len());
    let exchange = Exchange { world, name: format!("{} of shards", reducer.purpose), total: sums.leaves };
    let present: Vec<bool> = counts[..sums.parameters.len()].iter().map(|&count| count > 0.0).collect();
    let shares = layout.blocks.blocks.iter().map(|block| {
        let mut rows: Vec<Tensor> = own.iter_mut().map(|sums| flat(layout, block, sums)).collect();
        match world.size() {
            1 => Ok(rows.swap_remove(0)),
            _ => exchange.scatter(&rows, 0..block.length, engine_type(block.dtype)),
        }
    });
    let slices = slices(world, layout, shares, &present)?;
    let columns = &sums.columns[sums.parameters.len()..];
    let names = (format!("{} statistics", reducer.purpose), format!("statistics of {group}"));
    let (all, counts) = over_all(world, (&names.0, &names.1), columns, statistics, sums.leaves, of_statistics)?;
    let statistics = sums.new_statistics(all.into_iter().zip(counts))?;
    let scattered = Scattered { slices, scale: sums.scale(), others: sums.others() };
    Ok((replace(module, STATISTICS, statistics), scattered))
}

/// The sums of gradients and those of statistics.
pub(in crate::parallel) fn split_sums(
    own: Branches<Sums>,
    leaves: usize,
    parameters: usize,
) -> (Vec<Sums>, Branches<Sums>) {
    let (mut gradients, mut statistics) = (Vec::new(), Branches::new(leaves));
    for (branch, mut sums) in own.into_branches() {
        let rest = sums.split_off(parameters.min(sums.len()));
        gradients.push(sums);
        statistics.add(branch, rest, |_, _| ());
    }
    (gradients, statistics)
}

/// A block of the sums of a branch. Where no leaf has added anything, nothing may change when it is added.
fn flat(layout: &Layout, block: &Block, sums: &mut Sums) -> Tensor {
    let mut flat = Tensor::zeros(engine_type(block.dtype), block.length);
    let dtype = flat.dtype();
    let mut rest = flat.bytes_mut();
    for span in &block.spans {
        let (part, after) = rest.split_at_mut(span.elements.len() * block.dtype.size());
        let place = sums.get_mut(span.parameter);
        match place.as_ref().and_then(|sum| sum.as_ref()) {
            Some(sum) => part.copy_from_slice(bytes_at(sum.bytes(), block, &span.elements)),
            None => kernel::scale(dtype, part, -1.0),
        }
        if let (Some(sum), true) =
            (place, span.elements.end == layout.blocks.parameters[span.parameter].shape.num_elements())
        {
            *sum = None;
        }
        rest = after;
    }
    flat
}

fn bytes_at<'a>(bytes: &'a [u8], block: &Block, elements: &std::ops::Range<usize>) -> &'a [u8] {
    &bytes[elements.start * block.dtype.size()..elements.end * block.dtype.size()]
}

/// This rank's slices of parameters, from its shares of blocks.
fn slices(
    world: &World,
    layout: &Layout,
    shares: impl Iterator<Item = Result<Tensor>>,
    present: &[bool],
) -> Result<Vec<Option<TensorData>>> {
    let mut slices: Vec<Vec<u8>> = vec![Vec::new(); layout.blocks.parameters.len()];
    for (block, share) in layout.blocks.blocks.iter().zip(shares) {
        let share = share?;
        let mut rest = share.bytes();
        for span in block.share(world.rank(), world.size()) {
            let (part, after) = rest.split_at(span.elements.len() * block.dtype.size());
            slices[span.parameter].extend_from_slice(part);
            rest = after;
        }
    }
    let slice = |((parameter, bytes), &present): ((&super::Parameter, Vec<u8>), &bool)| {
        let shape = [bytes.len() / parameter.dtype.size()].into();
        (present && !bytes.is_empty()).then(|| copied(&bytes, shape, parameter.dtype))
    };
    Ok(layout.blocks.parameters.iter().zip(slices).zip(present).map(slice).collect())
}
