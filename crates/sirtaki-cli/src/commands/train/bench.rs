//! `sirtaki bench train`: the job of `sirtaki train`, of which nothing but steps is done and measured.

use std::{num::NonZeroUsize, path::Path};

use anyhow::Result;
use sirtaki::train::{Bench, Domain, Model, Settings, Synthetic};

use crate::{
    args::{
        bench_train::{BenchTrain, TrainArguments},
        train::ModelName,
    },
    printer::{Advice, Printer},
};

/// Samples per step of a worker.
const BATCH: usize = 32;

/// Decides what is to be measured, and has it done.
pub(crate) fn bench(arguments: BenchTrain, program: &Path, printer: &mut Printer) -> Result<u8> {
    let BenchTrain { train: TrainArguments(mut train), synthetic, .. } = arguments;
    if train.batch_size.is_none() && train.global_batch.is_none() {
        train.batch_size = NonZeroUsize::new(BATCH);
    }
    if train.model.is_none() && synthetic {
        train.model = Some(ModelName(Model::named("resnet50").map_err(super::advice)?));
    }
    let bench = Bench {
        warm: arguments.num_warmup_batches,
        steps: arguments.num_batches_per_iter.get(),
        rounds: arguments.num_iters.get(),
    };
    super::look_for_hdf5(None, None);
    super::start(*train, Some(BenchRequest { bench, synthetic }), program, printer)
}

/// What a benchmark measures.
pub(super) struct BenchRequest {
    pub(super) bench: Bench,
    synthetic: bool,
}

impl BenchRequest {
    /// Settings without tests and checkpoints, for as many steps as are measured.
    pub(super) fn of(&self, settings: Settings, is_elastic: bool) -> Result<Settings> {
        if is_elastic {
            let hint = "leave out what lets workers come and go";
            return Err(Advice::new("the speed of workers that come and go is not measured", hint).into());
        }
        let Bench { warm, steps, rounds } = self.bench;
        let all = steps
            .checked_mul(rounds)
            .and_then(|all| all.checked_add(warm))
            .ok_or_else(|| Advice::new("these are more steps than can be counted", "take a smaller --num-iters"))?;
        let synthetic = self.synthetic.then(|| self.made(&settings)).transpose()?;
        let data = if self.synthetic { None } else { settings.data.clone() };
        // An epoch has a step at least.
        let (epochs, most_steps) = ((all as u64).max(settings.epochs), Some(all as u64));
        Ok(Settings { synthetic, data, epochs, most_steps, checkpoints: None, allow_nan: true, ..settings })
    }

    fn made(&self, settings: &Settings) -> Result<Synthetic> {
        let model = settings.model;
        if model.domain() != Domain::Images {
            let problem = format!("--synthetic makes images up, and {} is not for images", model.name());
            return Err(Advice::new(problem, "leave --synthetic out, or take another --model").into());
        }
        let Synthetic { shape: [channels, height, width], classes } = model.synthetic();
        let shape = settings.image_size.map_or([channels, height, width], |side| [channels, side, side]);
        Ok(Synthetic { shape, classes })
    }
}
