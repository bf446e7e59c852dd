//! The epochs of a run, from the first step to the last.

mod results;

use std::{path::PathBuf, time::Instant};

use burn::module::Module;
use sirtaki_engine::{Phase, telemetry};

use super::{
    checks::{rates, same_on_all_ranks, same_settings},
    data_sets::{DataSet, SampleKind as _},
    layout::{Batches, Layout},
    meter::{Score, Watch},
    model::{self, Passes},
    networks::Network,
    report::{Epoch, Observer, Prediction, Report},
    settings::Settings,
    single_worker,
    work_split::Shares,
};
use crate::{
    Chain, Error, Layer, Result, Resumed, Update, World,
    checkpoint::Manifest,
    data::{Loader, Position},
    schedule::Schedule,
    seed,
};

/// Number of steps between two reports of progress.
const TOLD: usize = 10;

/// Trains as the settings say. All ranks call it with the same settings.
pub fn run(world: &World, settings: &Settings, observer: &mut dyn Observer) -> Result<Report> {
    settings.model.train(world, settings, observer)
}

/// The same for a network by its type.
pub(super) fn train<N: Network>(world: &World, settings: &Settings, observer: &mut dyn Observer) -> Result<Report> {
    Course::prepare::<N>(world, settings)?.run(observer)
}

/// A run in progress.
struct Course<'a, L> {
    world: &'a World,
    settings: &'a Settings,
    data: DataSet,
    layout: Layout,
    passes: Passes,
    /// Taken out while it is changed.
    network: Option<Chain<L>>,
    update: Box<dyn Update<Chain<L>>>,
    rates: Schedule,
    /// Samples per step of a worker and of all.
    sizes: (usize, usize),
    position: Position,
    step: u64,
    resumed: Option<Resumed>,
    begun: Instant,
    training: Watch,
    /// Samples seen in this run by all workers.
    seen: usize,
    epochs: Vec<Epoch>,
    /// The result of the newest test.
    tested: Option<Score>,
    checkpoint: Option<PathBuf>,
    interrupted: bool,
}

impl<'a, L: Layer> Course<'a, L> {
    fn prepare<N: Network<Layer = L>>(world: &'a World, settings: &'a Settings) -> Result<Self> {
        let copies = settings.copies(world.size())?;
        let sizes = settings.batch.sizes(copies)?;
        let (data, kind) = N::Kind::open(settings)?;
        same_on_all_ranks(world, settings, copies, &data)?;
        data.check_batch(settings.batch, sizes.1)?;
        let device = world.device().autodiff();
        let network = N::new(kind)?;
        let layout = Layout::new(world, settings, &network)?;
        let network = layout.chain(&network, &device, settings.seed)?;
        let mut update = model::update(layout.equals(), settings)?;
        let (network, resumed) = match &settings.checkpoints {
            Some(folder) if settings.resume => {
                layout.resume(folder, settings.model.name(), network, update.as_mut())?
            }
            _ => (layout.equals().broadcast(network, 0)?, None),
        };
        if let Some(resumed) = &resumed {
            same_settings(resumed, settings, copies, &data)?;
        }
        let start = (Position::start(settings.seed), 0);
        let (position, step) =
            resumed.as_ref().map_or(start, |resumed| (resumed.manifest.position, resumed.manifest.step));
        let rates = rates(settings, copies, data.train.count().div_ceil(sizes.1))?;
        let loss = layout.loss(data.train.classes())?;
        let passes = Passes::new(world, device, settings.precision, N::Kind::tensors).split(loss);
        let (begun, training) = (Instant::now(), Watch::running());
        Ok(Self {
            world,
            settings,
            data,
            layout,
            passes,
            network: Some(network),
            update,
            rates,
            sizes,
            position,
            step,
            checkpoint: resumed.as_ref().map(|resumed| resumed.path.clone()),
            resumed,
            begun,
            training,
            seen: 0,
            epochs: Vec::new(),
            tested: None,
            interrupted: false,
        })
    }

    fn run(mut self, observer: &mut dyn Observer) -> Result<Report> {
        let network = self.network();
        let method = self.settings.method;
        let parameters = self.layout.parameters(network)?;
        let one_worker = match self.is_done() || !self.layout.is_whole() {
            true => None,
            false => single_worker::speed(self.world, &self.passes, network, method, &self.data, self.sizes.0)?,
        };
        observer.begins(&self.start(parameters, one_worker));
        let copies = self.layout.copies().size();
        let settings = self.settings.report_settings(copies, &self.data, self.sizes);
        self.world.engine().describe(settings);
        self.say(telemetry::Progress::default());
        self.begun = Instant::now();
        self.training = Watch::running();
        if self.is_done() {
            self.test()?;
        }
        while !self.is_done() && !self.interrupted {
            self.epoch(observer)?;
        }
        self.training.pause();
        self.report(parameters, one_worker)
    }

    fn is_done(&self) -> bool {
        self.position.epoch >= self.settings.epochs || self.settings.most_steps.is_some_and(|most| self.step >= most)
    }

    fn network(&self) -> &Chain<L> {
        self.network.as_ref().expect("it is back whenever nothing changes it")
    }

    /// Makes the network what is tested and saved.
    fn settle(&mut self) -> Result<()> {
        let network = self.network.take().expect("it is back whenever nothing changes it");
        self.network = Some(self.update.settle(network)?);
        Ok(())
    }

    /// What is left of an epoch, or of all steps that were wanted; then a test.
    fn epoch(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let samples = self.data.train.count();
        let worker = self.layout.copies().worker();
        let shares = Shares::new(samples, self.position, worker, self.settings.shards, self.sizes)?;
        let mut batches = Batches::new(&self.layout, &self.data.train, &shares)?;
        let (mut whole, mut recent) = (Score::default(), Score::default());
        let (before, seen_before, epoch) = (self.training.time(), self.seen, self.position.epoch);
        let steps = shares.steps();
        for step in 0..steps {
            let mine = self.one_step(&shares, step, &mut batches)?;
            let score = self.share(mine, observer.wants_to_stop())?;
            whole.add(score);
            recent.add(score);
            let ends = step + 1 == steps || self.is_done() || self.interrupted;
            if (step + 1) % TOLD == 0 || ends {
                let score = std::mem::take(&mut recent);
                self.say(telemetry::Progress {
                    loss: Some(score.mean_loss()),
                    accuracy: Some(score.accuracy()),
                    ..Default::default()
                });
            }
            if self.interrupted {
                return self.save();
            }
            if ends {
                break;
            }
            if self.settings.checkpoint_every.is_some_and(|every| self.step.is_multiple_of(every)) {
                self.save()?;
            }
        }
        let trained = self.training.time() - before;
        let samples_per_second = (self.seen - seen_before) as f64 / trained.as_secs_f64();
        self.end_epoch(epoch, whole, samples_per_second, observer)
    }

    fn one_step(&mut self, shares: &Shares, step: usize, batches: &mut Batches) -> Result<Score> {
        let rate = self.rates.rate(self.step);
        let network = self.network.take().expect("it is back whenever nothing changes it");
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
        self.step += 1;
        self.seen += shares.together(step);
        self.position = shares.position(step + 1);
        Ok(score)
    }

    /// The score of a step on all ranks, from this rank's part of it. Also notices that a rank wants to stop, and that
    /// the loss is no longer finite.
    fn share(&mut self, mine: Score, stops: bool) -> Result<Score> {
        let [loss, right, count] = mine.to_array();
        let stops = if stops { 1.0 } else { 0.0 };
        let [loss, right, count, stops] = self.world.sums("progress", [loss, right, count, stops])?;
        self.interrupted = stops > 0.0;
        self.check_finite("the training loss", loss)?;
        Ok(Score { loss, right, count })
    }

    /// Fails if a value that training depends on is no longer finite; all ranks have the same value.
    fn check_finite(&self, what: &str, value: f64) -> Result<()> {
        if value.is_finite() || self.settings.allow_nan {
            return Ok(());
        }
        let kept = match &self.checkpoint {
            Some(path) => format!("the last good checkpoint is {}", path.display()),
            None => "there is no earlier checkpoint".into(),
        };
        let problem = format!("{what} is {value} after step {}", self.step);
        let hint = "start again with a smaller --lr or more --warmup-epochs, or add --allow-nan to continue regardless";
        Err(Error::setting(problem, format!("{kept}; {hint}")))
    }

    fn end_epoch(&mut self, epoch: u64, trained: Score, rate: f64, observer: &mut dyn Observer) -> Result<()> {
        self.training.pause();
        let test = self.test()?;
        let seconds = self.begun.elapsed().as_secs_f64();
        self.save()?;
        let epoch = Epoch {
            epoch: epoch + 1,
            seconds,
            train_loss: trained.mean_loss(),
            train_accuracy: trained.accuracy(),
            test_loss: test.mean_loss(),
            test_accuracy: test.accuracy(),
            prediction: Prediction::new(self.data.domain, test.mean_loss()),
            samples_per_second: rate,
            checkpoint: self.checkpoint.clone(),
        };
        observer.epoch_ends(&epoch);
        self.say(telemetry::Progress {
            test_loss: Some(epoch.test_loss),
            test_accuracy: Some(epoch.test_accuracy),
            ..Default::default()
        });
        self.epochs.push(epoch);
        self.training.go_on();
        Ok(())
    }

    fn test(&mut self) -> Result<Score> {
        self.settle()?;
        let network = self.network().valid();
        let test = self.layout.test(&self.passes.for_tests(), &network, &self.data)?;
        self.check_finite("the test loss", test.mean_loss())?;
        self.tested = Some(test);
        Ok(test)
    }

    fn save(&mut self) -> Result<()> {
        let Some(folder) = &self.settings.checkpoints else { return Ok(()) };
        self.training.pause();
        self.settle()?;
        let sum = self.layout.over_network(model::sum_of_weights(self.network()))?;
        self.check_finite("the sum of all weights", sum)?;
        let settings = self.settings.resume_settings(self.layout.copies().size(), &self.data);
        let manifest = Manifest { settings, ..Manifest::new(self.settings.model.name(), self.step, self.position) };
        let path = self.layout.save(folder, self.settings.keep, manifest, self.network(), self.update.as_ref())?;
        self.checkpoint = Some(path);
        self.training.go_on();
        Ok(())
    }
}

fn missing_batch(step: usize) -> Error {
    Error::setting(format!("there is no batch for step {step}"), "report this: the plan and its batches disagree")
}
