//! The epochs of a run, from the first step to the last.

mod begin;
mod bench;
mod results;
mod rounds;
mod so_far;

use std::collections::BTreeMap;

use burn::module::Module;
use sirtaki_engine::{Phase, files, machine, telemetry};

use self::{begin::Opened, so_far::SoFar};
pub use self::{bench::bench, rounds::run_in_rounds};
pub(super) use self::{bench::bench_network, rounds::train_in_rounds};
use super::{
    data_sets::DataSet,
    layout::{Batches, Layout},
    meter::{Score, Watch},
    model::{self, Passes},
    networks::Network,
    progress::{Said, StepScores},
    report::{Epoch, Observer, Prediction, Report},
    settings::Settings,
    single_worker::{Alone, Measured},
    work_split::Shares,
};
use crate::{
    Chain, Error, Layer, Result, Resumed, Update, World, checkpoint::Manifest, data::Loader, elastic::Rounds,
    schedule::Schedule, seed,
};

/// Number of steps between two reports of progress.
const TOLD: usize = 10;

/// Trains as the settings say. All ranks call it with the same settings.
pub fn run(world: &World, settings: &Settings, observer: &mut dyn Observer) -> Result<Report> {
    settings.model.train(world, settings, observer)
}

/// The same for a network by its type.
pub(super) fn train<N: Network>(world: &World, settings: &Settings, observer: &mut dyn Observer) -> Result<Report> {
    let opened = Opened::<N>::new(settings)?;
    let mut course = Course::begin(world, settings, &opened, None, None)?;
    let report = course.run(observer)?;
    course.export(&opened.network)?;
    Ok(report)
}

/// A run in progress, among the workers of one world.
struct Course<'a, L> {
    world: &'a World,
    settings: &'a Settings,
    data: DataSet,
    layout: Layout,
    passes: Passes,
    /// Taken out while it is changed.
    network: Option<Chain<L>>,
    update: Box<dyn Update<Chain<L>>>,
    scores: StepScores,
    rates: Schedule,
    /// Samples per step of a worker and of all.
    sizes: (usize, usize),
    so_far: SoFar,
    resumed: Option<Resumed>,
    /// Where workers come and go.
    rounds: Option<&'a Rounds>,
    /// Whether the run had begun before, in another world.
    joined: bool,
    /// The machine's load when the run began.
    load_before: Option<f64>,
    /// Samples that could not be read and are known to all, by their numbers in each part of the data set.
    replaced: Vec<BTreeMap<usize, String>>,
}

impl<L: Layer> Course<'_, L> {
    fn run(&mut self, observer: &mut dyn Observer) -> Result<Report> {
        let parameters = self.layout.parameters(self.network())?;
        let (mut alone, is_compared) = (Alone::default(), self.is_compared());
        if is_compared {
            alone.before(&self.measured())?;
        }
        observer.begins(&self.start(parameters));
        self.world.engine().describe(self.described());
        self.say(telemetry::Progress::default());
        if !self.joined {
            self.begin_clocks();
        }
        if let Some(rounds) = self.rounds {
            rounds.set_holding();
        }
        if self.is_done() && self.so_far.untested.is_none() && self.so_far.tested.is_none() {
            self.test()?;
        }
        while !self.so_far.interrupted && (self.so_far.untested.is_some() || !self.is_done()) {
            self.epoch(observer)?;
        }
        if self.so_far.interrupted {
            self.save()?;
        }
        self.so_far.training.pause();
        self.so_far.whole.pause();
        let load = self.load();
        if is_compared && !self.so_far.interrupted {
            alone.after(&self.measured(), self.so_far.whole.time())?;
        }
        self.report(parameters, load, &alone)
    }

    /// The first step is next.
    fn begin_clocks(&mut self) {
        (self.so_far.whole, self.so_far.training) = (Watch::running(), Watch::running());
        self.load_before = machine::load();
    }

    /// Whether the speed is compared with that of one worker; not where their number changes.
    fn is_compared(&self) -> bool {
        let is_fixed = !self.joined && self.rounds.is_none();
        self.world.size() > 1 && is_fixed && !self.is_done() && self.layout.is_whole()
    }

    /// What one worker alone is measured with.
    fn measured(&self) -> Measured<'_, L> {
        let (world, passes, network) = (self.world, &self.passes, self.network());
        Measured { world, passes, network, method: self.settings.method, data: &self.data, batch: self.sizes.0 }
    }

    /// How many processes wanted a processor of this machine during the run.
    fn load(&self) -> Option<f64> {
        machine::load_during(self.load_before?, machine::load()?, self.so_far.whole.time().as_secs_f64())
    }

    /// Writes the trained network to the file that is wanted, on one rank.
    fn export<N: Network<Layer = L>>(&self, definition: &N) -> Result<()> {
        if let (Some(file), 0, false) = (&self.settings.export, self.world.rank(), self.so_far.interrupted) {
            let bytes = definition.export(self.network()).unwrap_or_default();
            files::write(file, &bytes).map_err(Error::io("write", file))?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let SoFar { position, step, .. } = &self.so_far;
        position.epoch >= self.settings.epochs || self.settings.most_steps.is_some_and(|most| *step >= most)
    }

    /// Epochs done, of which the last one may be a part.
    fn epochs_done(&self) -> f64 {
        let position = self.so_far.position;
        position.epoch as f64 + position.seen as f64 / self.data.train.count().max(1) as f64
    }

    fn network(&self) -> &Chain<L> {
        self.network.as_ref().expect("it is back whenever nothing changes it")
    }

    /// The network, to be changed. Where workers may be lost it stays, too, for a change that they keep from being made.
    fn take(&mut self) -> Chain<L> {
        let network = if self.rounds.is_some() { self.network.clone() } else { self.network.take() };
        network.expect("it is back whenever nothing changes it")
    }

    /// Makes the network what is tested and saved.
    fn settle(&mut self) -> Result<()> {
        let network = self.take();
        self.network = Some(self.update.settle(network)?);
        Ok(())
    }

    /// What is left of an epoch, or of all steps that were wanted; then a test.
    fn epoch(&mut self, observer: &mut dyn Observer) -> Result<()> {
        if self.so_far.untested.is_none() {
            self.steps(observer)?;
        }
        match self.so_far.untested {
            Some(epoch) if !self.so_far.interrupted => self.end_epoch(epoch, observer),
            _ => Ok(()),
        }
    }

    fn steps(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let samples = self.data.train.count();
        let worker = self.layout.copies().worker();
        let shares = Shares::new(samples, self.so_far.position, worker, self.settings.shards, self.sizes.1)?;
        let mut batches = Batches::new(&self.layout, &self.data.train, &shares)?;
        let mut recent = Score::default();
        for step in 0..shares.steps() {
            let mine = self.one_step(&shares, step, &mut batches)?;
            let mut score = self.share(mine, observer)?;
            let ends = self.so_far.untested.is_some() || self.so_far.interrupted;
            if ends || self.saves_now() {
                score.add(self.catch_up()?);
            }
            recent.add(score);
            if (step + 1) % TOLD == 0 || ends {
                let score = std::mem::take(&mut recent);
                let is_known = score.count > 0.0;
                self.say(telemetry::Progress {
                    loss: is_known.then(|| score.mean_loss()),
                    accuracy: is_known.then(|| score.accuracy()),
                    ..Default::default()
                });
            }
            if ends {
                break;
            }
            if self.saves_now() {
                self.save()?;
            }
        }
        Ok(())
    }

    fn one_step(&mut self, shares: &Shares, step: usize, batches: &mut Batches) -> Result<Score> {
        let rate = self.rates.rate_at(self.epochs_done());
        let network = self.take();
        let engine = self.world.engine();
        let next = |batches: &mut Loader| {
            let _input = engine.phase(Phase::Input);
            batches.next().unwrap_or_else(|| Err(missing_batch(step)))
        };
        let mut score = Score::default();
        let network = match (shares, batches) {
            (Shares::Workers(plan), Batches::Whole(batches)) => {
                seed(&self.passes.device, plan.stream("forward", step));
                let (part, gradients) = self.passes.train(&network, next(batches)?, plan.weight(step))?;
                score = part;
                self.update.step(rate.into(), network, gradients.into())?
            }
            (Shares::Shards(plan), Batches::Whole(batches)) => {
                self.update.step_shards(rate, network, plan, step, |network, _| {
                    let (part, gradients) = self.passes.train(network, next(batches)?, 1.0)?;
                    score.add(part);
                    Ok::<_, Error>(gradients)
                })?
            }
            (Shares::Shards(plan), Batches::Ends(ends)) => {
                let update = self.update.as_mut();
                let (network, part) = self.layout.step(&self.passes, update, rate, network, (plan, step), ends)?;
                score = part;
                network
            }
            (Shares::Workers(_), Batches::Ends(_)) => return Err(missing_batch(step)),
        };
        self.network = Some(network);
        let epoch = self.so_far.position.epoch;
        self.so_far.step += 1;
        self.so_far.seen += shares.together(step);
        self.so_far.position = shares.position(step + 1);
        if self.so_far.position.epoch > epoch || self.is_done() {
            self.so_far.untested = Some(epoch);
        }
        Ok(score)
    }

    /// Whether a checkpoint is written after this step, in the middle of an epoch.
    fn saves_now(&self) -> bool {
        self.settings.checkpoint_every.is_some_and(|every| self.so_far.step.is_multiple_of(every))
    }

    /// The score of a step on all ranks, from this rank's part of its latest: of the same step, or of an earlier one where
    /// ranks may be ahead of each other. Also notices that ranks want to stop or change, and that the loss is no longer
    /// finite.
    fn share(&mut self, mine: Score, observer: &mut dyn Observer) -> Result<Score> {
        let stops = observer.wants_to_stop();
        if let (true, Some(rounds)) = (stops, self.rounds) {
            rounds.leaver().leave()?;
        }
        let changes = self.world.rank() == 0 && self.rounds.is_some_and(Rounds::is_changing);
        let said = self.scores.step(self.world, Said { score: mine, stops: stops.into(), changes })?;
        said.map_or(Ok(Score::default()), |said| self.heard(said))
    }

    /// The scores of all steps that are left.
    fn catch_up(&mut self) -> Result<Score> {
        let mut all = Score::default();
        while let Some(said) = self.scores.oldest()? {
            all.add(self.heard(said)?);
        }
        Ok(all)
    }

    fn heard(&mut self, said: Said) -> Result<Score> {
        // Where workers come and go, one that has to leave does not end the run.
        let enough = if self.rounds.is_some() { self.world.size() } else { 1 };
        self.so_far.interrupted |= said.stops >= enough;
        self.check_finite("the training loss", said.score.loss)?;
        self.so_far.epoch.add(said.score);
        if said.changes && !self.so_far.interrupted { Err(Error::Changing) } else { Ok(said.score) }
    }

    /// Fails if a value that training depends on is no longer finite; all ranks have the same value.
    fn check_finite(&self, what: &str, value: f64) -> Result<()> {
        if value.is_finite() || self.settings.allow_nan {
            return Ok(());
        }
        let kept = match &self.so_far.checkpoint {
            Some(path) => format!("the last good checkpoint is {}", path.display()),
            None => "there is no earlier checkpoint".into(),
        };
        let problem = format!("{what} is {value} after step {}", self.so_far.step);
        let hint = "start again with a smaller --lr or more --warmup-epochs, or add --allow-nan to continue regardless";
        Err(Error::setting(problem, format!("{kept}; {hint}")))
    }

    fn end_epoch(&mut self, epoch: u64, observer: &mut dyn Observer) -> Result<()> {
        self.so_far.training.pause();
        let (before, seen_before) = self.so_far.before;
        let trained = self.so_far.training.time().as_secs_f64();
        let samples_per_second = (self.so_far.seen - seen_before) as f64 / (trained - before);
        let test = self.test()?;
        let seconds = self.so_far.whole.time().as_secs_f64();
        self.save()?;
        let score = std::mem::take(&mut self.so_far.epoch);
        let epoch = Epoch {
            epoch: epoch + 1,
            seconds,
            train_loss: score.mean_loss(),
            train_accuracy: score.accuracy(),
            test_loss: test.mean_loss(),
            test_accuracy: test.accuracy(),
            prediction: Prediction::new(self.data.domain, test.mean_loss()),
            samples_per_second,
            checkpoint: self.so_far.checkpoint.clone(),
        };
        (self.so_far.untested, self.so_far.before) = (None, (trained, self.so_far.seen));
        observer.epoch_ends(&epoch);
        let replaced = self.newly_replaced()?;
        if !replaced.is_empty() {
            observer.replaced(&replaced);
        }
        self.say(telemetry::Progress {
            test_loss: Some(epoch.test_loss),
            test_accuracy: Some(epoch.test_accuracy),
            ..Default::default()
        });
        self.so_far.epochs.push(epoch);
        self.so_far.training.go_on();
        Ok(())
    }

    fn test(&mut self) -> Result<Score> {
        self.settle()?;
        let network = self.network().valid();
        let test = self.layout.test(&self.passes.for_tests(), &network, &self.data)?;
        self.check_finite("the test loss", test.mean_loss())?;
        self.so_far.tested = Some(test);
        Ok(test)
    }

    fn save(&mut self) -> Result<()> {
        let Some(folder) = &self.settings.checkpoints else { return Ok(()) };
        self.so_far.training.pause();
        self.settle()?;
        let sum = self.layout.over_network(model::sum_of_weights(self.network()))?;
        self.check_finite("the sum of all weights", sum)?;
        let settings = self.settings.resume_settings(self.layout.copies().size(), &self.data);
        let manifest =
            Manifest { settings, ..Manifest::new(self.settings.model.name(), self.so_far.step, self.so_far.position) };
        let path = self.layout.save(folder, self.settings.keep, manifest, self.network(), self.update.as_ref())?;
        self.so_far.checkpoint = Some(path);
        self.so_far.training.go_on();
        Ok(())
    }
}

fn missing_batch(step: usize) -> Error {
    Error::setting(format!("there is no batch for step {step}"), "report this: the plan and its batches disagree")
}
