//! The speed of steps alone, in rounds, without tests and checkpoints: what a benchmark of training measures.

use std::time::Instant;

use sirtaki_engine::telemetry;

use super::{
    super::{
        layout::Batches,
        networks::Network,
        report::{BenchReport, Observer},
        settings::{Bench, Settings},
        work_split::Shares,
    },
    Course,
    begin::Opened,
};
use crate::{Layer, Result, World};

/// Measures the steps of a run as the settings say. All ranks call it with the same settings.
pub fn bench(world: &World, settings: &Settings, bench: Bench, observer: &mut dyn Observer) -> Result<BenchReport> {
    settings.model.bench(world, settings, bench, observer)
}

/// The same for a network by its type.
pub(in crate::train) fn bench_network<N: Network>(
    world: &World,
    settings: &Settings,
    bench: Bench,
    observer: &mut dyn Observer,
) -> Result<BenchReport> {
    let opened = Opened::<N>::new(settings)?;
    Course::begin(world, settings, &opened, None, None)?.measure(bench, observer)
}

/// What is left of an epoch.
struct Rest {
    shares: Shares,
    batches: Batches,
    next: usize,
}

impl<L: Layer> Course<'_, L> {
    fn measure(mut self, bench: Bench, observer: &mut dyn Observer) -> Result<BenchReport> {
        let parameters = self.layout.parameters(self.network())?;
        observer.begins(&self.start(parameters));
        self.begin_clocks();
        let (mut rest, mut rates) = (None, Vec::new());
        self.some_steps(&mut rest, bench.warm, observer)?;
        while rates.len() < bench.rounds && !self.so_far.interrupted {
            let (begun, before) = (Instant::now(), self.so_far.seen);
            self.some_steps(&mut rest, bench.steps, observer)?;
            // Workers end a step together, but for what is not exchanged.
            let seconds = self.world.average(begun.elapsed().as_secs_f64())?;
            let rate = (self.so_far.seen - before) as f64 / seconds.max(f64::MIN_POSITIVE);
            if !self.so_far.interrupted {
                rates.push(rate);
                observer.bench_round(rates.len(), rate);
            }
        }
        self.catch_up()?;
        let (seconds, load) = (self.so_far.whole.time().as_secs_f64(), self.load());
        let waited = self.update.waited().as_secs_f64() / seconds.max(f64::MIN_POSITIVE);
        let settings = self.settings;
        Ok(BenchReport {
            model: settings.model.name().into(),
            domain: self.data.domain,
            found: self.data.found.clone(),
            parameters,
            workers: self.world.size(),
            batch_per_worker: self.sizes.0,
            global_batch: self.sizes.1,
            optimizer: settings.method.name().into(),
            strategy: settings.strategy.name().into(),
            precision: settings.precision.name().into(),
            warm: bench.warm,
            steps_per_round: bench.steps,
            rounds: rates,
            communication_share: self.world.average(waited)?,
            seconds,
            load,
            interrupted: self.so_far.interrupted,
        })
    }

    /// So many steps, in as many epochs as it takes; fewer if a worker wants to stop.
    fn some_steps(&mut self, rest: &mut Option<Rest>, count: usize, observer: &mut dyn Observer) -> Result<()> {
        for _ in 0..count {
            let mut current = match rest.take().filter(|rest| rest.next < rest.shares.steps()) {
                Some(current) => current,
                None => self.next_epoch()?,
            };
            let mine = self.one_step(&current.shares, current.next, &mut current.batches)?;
            current.next += 1;
            *rest = Some(current);
            self.share(mine, observer)?;
            if self.so_far.interrupted {
                break;
            }
        }
        self.say(telemetry::Progress::default());
        Ok(())
    }

    fn next_epoch(&self) -> Result<Rest> {
        let (samples, worker) = (self.data.train.count(), self.layout.copies().worker());
        let shares = Shares::new(samples, self.so_far.position, worker, self.settings.shards, self.sizes.1)?;
        let batches = Batches::new(&self.layout, &self.data.train, &shares)?;
        Ok(Rest { shares, batches, next: 0 })
    }
}
