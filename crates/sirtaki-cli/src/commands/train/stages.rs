//! What `--mesh`, `--micro-batches` and `--schedule` mean for this many workers.

use std::num::NonZeroUsize;

use anyhow::Result;
use sirtaki::{
    pipeline::PipelineSchedule,
    train::{BatchSize, Stages},
};

use crate::{
    args::train::{MeshSizes, Train},
    printer::Advice,
};

/// Micro-batches for each stage, if the user says nothing: enough to keep workers busy most of the time.
const MICROS_PER_STAGE: usize = 4;

/// How the network is cut, and the number of shards of a step.
pub(super) fn stages(arguments: &Train, workers: usize, batch: BatchSize) -> Result<Option<(Stages, usize)>> {
    let shard_parameters = arguments.shard_parameters;
    let copies = MeshSizes { data: None, pipe: 1, tensor: 1 };
    let Some(mesh) = arguments.mesh.or(shard_parameters.then_some(copies)) else {
        return match arguments.micro_batches {
            None => Ok(None),
            Some(_) => {
                let hint = "add --mesh with an axis pipe, such as --mesh pipe=2";
                Err(Advice::new("--micro-batches is for networks in stages", hint).into())
            }
        };
    };
    let MeshSizes { data, pipe, tensor } = mesh;
    let copies = data.unwrap_or((workers / pipe.saturating_mul(tensor)).max(1));
    let needed = copies.saturating_mul(pipe).saturating_mul(tensor);
    if needed != workers {
        let parts = if tensor > 1 { format!(" × {tensor}") } else { String::new() };
        let problem = format!("--mesh: {copies} × {pipe}{parts} is {needed}, and there are {workers} workers");
        let hint = format!("start {needed} workers with -n, or choose sizes that multiply to {workers}");
        return Err(Advice::new(problem, hint).into());
    }
    if tensor > 1 && shard_parameters {
        let problem = "--shard-parameters splits whole layers by rows, and the axis tensor has split them already";
        return Err(Advice::new(problem, "leave out --shard-parameters, or the axis tensor").into());
    }
    if tensor > 1 && arguments.reproducible {
        let problem = "--reproducible cannot keep the bits of layers that are split over workers: sums of parts round \
                       differently from those of whole layers";
        return Err(Advice::new(problem, "leave out --reproducible, or the axis tensor").into());
    }
    let schedule = PipelineSchedule::named(&arguments.schedule).map_err(super::advice)?;
    let micros = match (arguments.micro_batches, arguments.reproducible) {
        (Some(micros), true) if micros.get() * copies != arguments.shards.get() => {
            let shards = arguments.shards;
            let problem = format!("{micros} micro-batches on {copies} copies are not the {shards} shards of a step");
            let hint = format!("leave --micro-batches out, or add --shards {}", micros.get() * copies);
            return Err(Advice::new(problem, hint).into());
        }
        (Some(micros), _) => micros.get(),
        (None, true) => (arguments.shards.get() / copies).max(1),
        (None, false) if pipe == 1 => 1,
        (None, false) => chosen(of_copy(batch, copies), MICROS_PER_STAGE * pipe),
    };
    Ok(Some((Stages { workers: pipe, parts: tensor, micros, schedule, shard_parameters }, micros * copies)))
}

/// Samples per step of one copy.
fn of_copy(batch: BatchSize, copies: usize) -> usize {
    match batch {
        BatchSize::Worker(each) => each,
        BatchSize::Global(all) => all / copies,
    }
}

/// The largest number up to `most` that divides a batch.
fn chosen(batch: usize, most: usize) -> usize {
    (1..=most).rev().find(|&micros| batch.is_multiple_of(micros)).unwrap_or(1)
}

/// Reads sizes such as `data=2,pipe=2`.
pub(crate) fn sizes(text: &str) -> Result<MeshSizes, String> {
    let (mut data, mut pipe, mut tensor) = (None, None, None);
    for part in text.split(',') {
        let wrong = || format!("`{part}` is not an axis with its size; write for example data=2,pipe=2");
        let (axis, size) = part.split_once('=').ok_or_else(wrong)?;
        let size = size.parse::<NonZeroUsize>().map_err(|_| wrong())?.get();
        let known = match axis.trim() {
            "data" => &mut data,
            "pipe" => &mut pipe,
            "tensor" => &mut tensor,
            other => return Err(format!("there is no axis `{other}`; the axes are data, pipe and tensor")),
        };
        if known.replace(size).is_some() {
            return Err(format!("`{axis}` is given twice"));
        }
    }
    Ok(MeshSizes { data, pipe: pipe.unwrap_or(1), tensor: tensor.unwrap_or(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_read_or_refused() {
        assert_eq!(sizes("data=2,pipe=3"), Ok(MeshSizes { data: Some(2), pipe: 3, tensor: 1 }));
        assert_eq!(sizes("pipe=4,tensor=2"), Ok(MeshSizes { data: None, pipe: 4, tensor: 2 }));
        assert_eq!(sizes("data=2"), Ok(MeshSizes { data: Some(2), pipe: 1, tensor: 1 }));
        for bad in ["", "2x2", "pipe=0", "pipe=two", "depth=2", "pipe=2,pipe=2"] {
            assert!(sizes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn micro_batches_divide_the_batch() {
        assert_eq!([chosen(64, 8), chosen(60, 8), chosen(7, 4), chosen(1, 8)], [8, 6, 1, 1]);
    }
}
