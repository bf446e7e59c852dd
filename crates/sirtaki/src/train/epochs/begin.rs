//! The beginning of a run, and its going on among other workers.

use std::collections::BTreeMap;

use burn::{optim::ModuleOptimizer, tensor::Device};

use super::{
    super::{
        checks::{rates, same_on_all_ranks, same_settings},
        data_sets::{DataSet, SampleKind as _},
        layout::Layout,
        model::{self, Passes},
        networks::Network,
        progress::StepScores,
        settings::Settings,
    },
    Course,
    so_far::{SoFar, Spent},
};
use crate::{Chain, Layer, Result, Resumed, Update, World, elastic::Rounds};

/// What needs no other worker: the data set, and what the network is like.
pub(super) struct Opened<N> {
    data: DataSet,
    pub(super) network: N,
}

impl<N: Network> Opened<N> {
    pub(super) fn new(settings: &Settings) -> Result<Self> {
        let (data, kind) = N::Kind::open(settings)?;
        Ok(Self { data, network: N::new(kind, settings.size)? })
    }
}

/// What a worker keeps of a run from one world to the next. Nothing of it knows a world.
pub(super) struct Kept<L> {
    network: Chain<L>,
    optimizer: ModuleOptimizer,
    device: Device,
    pub(super) so_far: SoFar,
}

/// The weights and how they go on changing.
struct Learner<L> {
    network: Chain<L>,
    update: Box<dyn Update<Chain<L>>>,
    so_far: SoFar,
    resumed: Option<Resumed>,
}

impl<'a, L: Layer> Course<'a, L> {
    /// Joins the others: all of them begin, or go on where the one has got to that has come furthest.
    pub(super) fn begin<N: Network<Layer = L>>(
        world: &'a World,
        settings: &'a Settings,
        opened: &Opened<N>,
        rounds: Option<&'a Rounds>,
        kept: Option<&Kept<L>>,
    ) -> Result<Self> {
        let Opened { data, network } = opened;
        let copies = settings.copies(world.size())?;
        let sizes = settings.batch.sizes(copies)?;
        same_on_all_ranks(world, settings, copies, data)?;
        data.check_batch(settings.batch, sizes.1)?;
        let device = kept.map_or_else(|| world.device().autodiff(), |kept| kept.device.clone());
        let layout = Layout::new(world, settings, network)?;
        let whole = match kept {
            Some(kept) => kept.network.clone(),
            None => layout.chain(network, &device, settings.seed)?,
        };
        let first = if rounds.is_some() || kept.is_some() { furthest(world, kept)? } else { None };
        let learner = match first {
            Some(first) => Learner::of(world, settings, first, whole, kept)?,
            None => Learner::new(&layout, settings, whole, data)?,
        };
        let rates = rates(settings, copies, data.train.count().div_ceil(sizes.1))?;
        let loss = layout.loss(data.train.classes())?;
        let passes = Passes::new(world, device, settings.precision, N::Kind::tensors).split(loss);
        let Learner { network, update, so_far, resumed } = learner;
        Ok(Self {
            world,
            settings,
            data: data.clone(),
            layout,
            passes,
            network: Some(network),
            scores: StepScores::new(update.ahead()),
            update,
            rates,
            sizes,
            so_far,
            resumed,
            rounds,
            joined: first.is_some(),
            load_before: None,
            replaced: vec![BTreeMap::new(); data.replaced.len()],
        })
    }

    /// What this worker takes into the next world.
    pub(super) fn keep(self) -> Option<Kept<L>> {
        let spent = self.spent();
        let (optimizer, device) = (self.update.whole()?.clone(), self.passes.device);
        Some(Kept { network: self.network?, optimizer, device, so_far: SoFar { spent, ..self.so_far } })
    }

    /// What all steps so far have cost this worker.
    pub(super) fn spent(&self) -> Spent {
        let before = &self.so_far.spent;
        Spent {
            waited: before.waited + self.update.waited().as_secs_f64(),
            cost: before.cost.clone().and(&self.update.cost()),
            skipped: before.skipped + self.update.skipped(),
        }
    }
}

impl<L: Layer> Learner<L> {
    /// The beginning, or what a checkpoint has.
    fn new(layout: &Layout, settings: &Settings, network: Chain<L>, data: &DataSet) -> Result<Self> {
        let mut update = model::update(layout.equals(), settings)?;
        let (network, resumed) = match &settings.checkpoints {
            Some(folder) if settings.resume => {
                layout.resume(folder, settings.model.name(), network, update.as_mut())?
            }
            _ => (layout.equals().broadcast(network, 0)?, None),
        };
        if let Some(resumed) = &resumed {
            same_settings(resumed, settings, layout.copies().size(), data)?;
        }
        Ok(Self { network, update, so_far: SoFar::start(settings.seed, resumed.as_ref()), resumed })
    }

    /// What the worker `first` has in its memory.
    fn of(world: &World, settings: &Settings, first: usize, network: Chain<L>, kept: Option<&Kept<L>>) -> Result<Self> {
        let network = world.broadcast(network, first)?;
        let optimizer = kept.map_or_else(|| model::optimizer(settings.method), |kept| kept.optimizer.clone());
        let mut optimizer = model::for_all(world, settings, optimizer);
        optimizer.broadcast(&network, first)?;
        let update = settings.strategy.update(world, settings.method, optimizer)?;
        let so_far = SoFar::of(world, first, kept.map(|kept| &kept.so_far))?;
        Ok(Self { network, update, so_far, resumed: None })
    }
}

/// The first of those that have come furthest; none if nobody knows anything of the run. What one of them has finished is
/// not lost, even if the others had not heard of it when the round ended.
fn furthest<L>(world: &World, kept: Option<&Kept<L>>) -> Result<Option<usize>> {
    let all = world.gather("how far workers have come", kept.map_or(0, |kept| kept.so_far.standing()))?;
    let most = all.iter().copied().max().unwrap_or(0);
    Ok(all.iter().position(|&standing| standing == most).filter(|_| most > 0))
}
