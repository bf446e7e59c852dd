//! Weights and the optimizer's state on parameter servers.
//!
//! Every trainable parameter is a table there. A step pushes gradients and pulls weights, in one message to each server and
//! back; the rule of the servers is the optimizer. With a delay of zero all ranks are in step and gradients are added along
//! the tree of leaves, so the bits are those of [`DistributedOptimizer`](super::DistributedOptimizer) with fixed shards.
//! Otherwise ranks may be ahead of each other, and what a rank computes with may lack steps of others.
//!
//! Servers are threads of the ranks, or processes that the launcher started beside them. Rejected: servers that run Burn's
//! optimizers, which would bring a tensor framework to processes that add and multiply.
//!
//! - [`tables`]: parameters as tables.
//! - [`state`]: checkpoints that say neither how many servers there were nor that there were any.

mod state;
mod tables;

use std::{
    cell::{RefCell, RefMut},
    time::{Duration, Instant},
};

use burn::{
    module::Module,
    optim::{GradientsParams, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
};
use sirtaki_comm::sum_tree::Branches;
use sirtaki_engine::{
    Phase,
    job::{JobServers, server_count},
};
use sirtaki_server::{
    Delay, Gradient, Head, HeadOptions, JobService, Leaves, Rows, RuleSpec, ServicePlace, Worker, WorkerReport,
};

use self::tables::{ParameterTable, floats, put_weights, tables, weights};
use super::{
    Gradients, LeafSums, OptimizerState, Update, UpdateCost,
    gradients::{Reducer, take, trained_bytes},
    leaf_sums::STATISTICS,
    module_tensors::replace,
    tree_sums::{Sums, join, over_all},
};
use crate::{Error, Result, World};

/// What parameter servers are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerOptions {
    /// How far ranks may be apart.
    pub delay: Delay,
    /// How many servers there are, as threads of the ranks. Where the launcher has started servers beside the ranks, those
    /// are used, and this number does not matter.
    pub servers: usize,
    /// How many servers have each block of weights.
    pub copies: usize,
}

impl Default for ServerOptions {
    /// Ranks in step, and one server.
    fn default() -> Self {
        Self { delay: Delay::Bounded(0), servers: 1, copies: 1 }
    }
}

/// Steps whose weights and state live on parameter servers; see [`crate::server`].
///
/// Gradients are means over the ranks. The rate is the same for all parameters, which are of type `f32`. Dropping it leaves
/// the service, and waits for the other ranks if they need what this process serves.
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// use burn::{nn::LinearConfig, optim::GradientsParams, tensor::Tensor};
/// use sirtaki::{ServerOptimizer, ServerOptions, server::{Delay, RuleSpec}};
///
/// let world = sirtaki::init()?;
/// let device = world.device().autodiff();
/// let mut model = world.broadcast(LinearConfig::new(4, 2).init(&device), 0)?;
/// let options = ServerOptions { delay: Delay::Bounded(4), ..ServerOptions::default() };
/// let mut optimizer = ServerOptimizer::new(&world, RuleSpec::adam(), options)?;
/// let loss = model.forward(Tensor::<2>::ones([8, 4], &device)).mean();
/// let gradients = GradientsParams::from_grads(loss.backward(), &model);
/// model = optimizer.step(0.001, model, gradients)?;
/// # let _ = model;
/// # Ok(())
/// # }
/// ```
pub struct ServerOptimizer {
    world: World,
    rule: RuleSpec,
    delay: Delay,
    /// Saving only reads, but asks servers.
    service: RefCell<JobService>,
    reducer: Reducer,
    tables: Option<Vec<ParameterTable>>,
    waited: Duration,
    cost: UpdateCost,
}

impl ServerOptimizer {
    /// Weights change by this rule. All ranks call it.
    pub fn new(world: &World, rule: RuleSpec, options: ServerOptions) -> Result<Self> {
        let get = |name: &str| std::env::var(name).ok();
        let beside = server_count(&get)?;
        let ServerOptions { delay, servers, copies } = options;
        let servers = beside.unwrap_or(servers);
        let hosts = world.engine().group().hosts().len();
        let place = ServicePlace::new(world.communication(), hosts)?;
        let mut head: Option<Head> = None;
        let address = world.on_rank_0("head of the parameter servers", || {
            let opened = place.open(HeadOptions { delay, copies, servers, workers: world.size() })?;
            if let (Some(_), Some(servers)) = (beside, JobServers::discover(&get)?) {
                servers.tell(opened.address(), hosts)?;
            }
            Ok(head.insert(opened).address())
        })?;
        let here = (world.rank()..servers).step_by(world.size()).count();
        let service = JobService::join(&place, head, address, if beside.is_some() { 0 } else { here })?;
        Ok(Self {
            world: world.clone(),
            rule,
            delay,
            service: RefCell::new(service),
            reducer: Reducer::new("gradient", true),
            tables: None,
            waited: Duration::ZERO,
            cost: UpdateCost::default(),
        })
    }

    /// One step with the module's gradients here; see [`Update::step`].
    pub fn step<M: Module>(
        &mut self,
        rate: impl Into<ModuleLearningRate>,
        module: M,
        gradients: GradientsParams,
    ) -> Result<M> {
        Update::step(self, rate.into(), module, gradients.into())
    }

    /// What this rank's part of the service took so far.
    pub fn report(&self) -> WorkerReport {
        self.service.borrow().report()
    }

    fn worker(&self) -> RefMut<'_, Worker> {
        RefMut::map(self.service.borrow_mut(), JobService::worker)
    }

    /// The tables of a module, which are made with its weights unless they are there.
    fn tables<M: Module>(&mut self, module: &M) -> Result<Vec<ParameterTable>> {
        let found = take(module, &mut GradientsParams::new());
        if let Some(known) = &self.tables {
            if known.iter().map(|table| table.id).eq(found.iter().map(|entry| entry.id)) {
                return Ok(known.clone());
            }
            let problem = "other parameters are trained than in earlier steps, and servers have tables of those";
            return Err(Error::setting(problem, "make a new optimizer when parameters are frozen or released"));
        }
        let names = self.reducer.names(module, &found);
        let tables = tables(&found, &names.names, &self.rule)?;
        let weights = weights(module, &tables)?;
        {
            let mut worker = self.worker();
            tables.iter().zip(&weights).try_for_each(|(table, values)| worker.create(table.spec.clone(), values))?;
        }
        Ok(self.tables.insert(tables).clone())
    }

    /// The one rate of all parameters.
    fn rate(tables: &[ParameterTable], rate: &ModuleLearningRate) -> Result<f64> {
        let of = |table: &ParameterTable| rate.lr_from_param(table.id, Some(&table.spec.name));
        let first = tables.first().map_or(0.0, of);
        if let Some(other) = tables.iter().find(|table| of(table) != first) {
            let problem = format!("\"{}\" has another rate than \"{}\"", other.spec.name, tables[0].spec.name);
            return Err(Error::setting(problem, "parameter servers have one rate for all parameters of a step"));
        }
        Ok(first)
    }

    /// Pushes gradients, and returns the module with what is pulled.
    fn push_pull<M: Module>(
        &mut self,
        rate: f64,
        module: M,
        (tables, gradients): (&[ParameterTable], &[Gradient<'_>]),
        tree: Option<Leaves>,
    ) -> Result<M> {
        let _phase = self.world.engine().phase(Phase::Optimizer);
        let begun = Instant::now();
        let rows: Vec<(&str, Rows)> = tables.iter().map(|table| (table.spec.name.as_str(), table.all())).collect();
        let (pulled, behind) = {
            let mut worker = self.worker();
            (worker.push_pull(rate, gradients, tree, &rows)?, worker.behind())
        };
        let waited = begun.elapsed();
        self.waited += waited;
        self.world.engine().served(behind, waited);
        self.cost.step(self.world.size(), trained_bytes(&module, None));
        Ok(put_weights(module, tables, pulled))
    }

    fn step_own<M: Module>(&mut self, rate: ModuleLearningRate, module: M, mut own: GradientsParams) -> Result<M> {
        let tables = self.tables(&module)?;
        let rate = Self::rate(&tables, &rate)?;
        let (rank, size) = (self.world.rank() as u32, self.world.size() as u32);
        let found = take(&module, &mut own);
        let mut gradients = Vec::new();
        for (table, entry) in tables.iter().zip(&found) {
            if let Some(data) = &entry.data {
                gradients.push(table.gradient((rank, rank + 1), floats(&table.spec.name, data.as_bytes())?));
            }
        }
        // A leaf for each rank: who entered the service first does not change the order of the sums.
        let tree = self.delay.in_step().then(|| Leaves { total: size, scale: 1.0 / f64::from(size) });
        self.push_pull(rate, module, (&tables, &gradients), tree)
    }

    fn step_leaves<M: Module>(&mut self, rate: ModuleLearningRate, module: M, mut sums: LeafSums) -> Result<M> {
        if !self.delay.in_step() {
            let problem =
                format!("fixed shards have one sum of gradients for all workers, not with a delay of {}", self.delay);
            return Err(Error::setting(problem, "use a delay of 0, or leave out reproducible mode"));
        }
        let tables = self.tables(&module)?;
        let rate = Self::rate(&tables, &rate)?;
        let (own, counts) = sums.take_sums();
        let mut statistics = Branches::new(sums.leaves);
        let mut gradients = Vec::new();
        let branches: Vec<_> = own.into_branches().collect();
        let mut split = Vec::new();
        for (leaves, mut branch) in branches {
            let others = branch.split_off(tables.len().min(branch.len()));
            statistics.add(leaves.clone(), others, join);
            split.push(((leaves.start as u32, leaves.end as u32), branch));
        }
        for (leaves, branch) in &split {
            for (table, sum) in tables.iter().zip(branch) {
                if let Some(sum) = sum {
                    gradients.push(table.gradient(*leaves, floats(&table.spec.name, sum.bytes())?));
                }
            }
        }
        let module = self.statistics(module, &sums, statistics, &counts[tables.len()..])?;
        let tree = Leaves { total: sums.leaves as u32, scale: sums.scale() };
        self.push_pull(rate, module, (&tables, &gradients), Some(tree))
    }

    /// The module with the running statistics of all leaves, which servers do not have.
    fn statistics<M: Module>(&mut self, module: M, sums: &LeafSums, own: Branches<Sums>, counts: &[f64]) -> Result<M> {
        if counts.is_empty() {
            return Ok(module);
        }
        let group = self.reducer.leaf_group(&module, sums)?;
        let columns = &sums.columns[sums.parameters.len()..];
        let purpose = ("statistics", group.as_str());
        let (all, counts) = over_all(&self.world, purpose, columns, own, sums.leaves, counts.to_vec())?;
        let statistics = sums.new_statistics(all.into_iter().zip(counts))?;
        Ok(replace(module, STATISTICS, statistics))
    }

    /// Waits until all ranks are here.
    fn meet(&self) -> Result<()> {
        self.world.sums("parameter servers met", [0.0]).map(drop)
    }
}

impl<M: Module> Update<M> for ServerOptimizer {
    fn world(&self) -> &World {
        &self.world
    }

    fn step(&mut self, rate: ModuleLearningRate, module: M, gradients: Gradients) -> Result<M> {
        match gradients {
            Gradients::Own(gradients) => self.step_own(rate, module, gradients),
            Gradients::Leaves(sums) => self.step_leaves(rate, module, *sums),
        }
    }

    fn settle(&mut self, module: M) -> Result<M> {
        let module = match self.tables.clone() {
            Some(tables) if !self.delay.in_step() => {
                // All pushes have been confirmed, and nobody goes on before everybody has read.
                self.meet()?;
                let values: std::result::Result<_, _> = {
                    let mut worker = self.worker();
                    tables.iter().map(|table| worker.get(&table.spec.name, 0)).collect()
                };
                self.meet()?;
                put_weights(module, &tables, values?)
            }
            _ => module,
        };
        self.world.average_statistics(module)
    }

    fn save(&self, _: &M) -> Result<OptimizerState<'_>> {
        match (&self.tables, self.world.rank()) {
            (Some(tables), 0) => state::save(tables, &self.rule, &self.service),
            _ => Ok(OptimizerState::none()),
        }
    }

    fn restore(&mut self, module: &M, state: OptimizerState<'_>) -> Result<()> {
        let tables = self.tables(module)?;
        let weights = weights(module, &tables)?;
        let world = self.world.clone();
        world.on_rank_0("optimizer state read", || {
            state::restore(&tables, &self.rule, &mut self.worker(), &weights, state)
        })
    }

    fn ahead(&self) -> Option<u64> {
        match self.delay {
            Delay::Bounded(steps) => Some(steps),
            Delay::Unbounded => None,
        }
    }

    fn waited(&self) -> Duration {
        self.waited
    }

    fn cost(&self) -> UpdateCost {
        let WorkerReport { received, sent, behind, .. } = self.report();
        let most = behind.last_key_value().map_or(0, |(&steps, _)| steps as usize + 1);
        let mut staleness = vec![0; most];
        behind.into_iter().for_each(|(steps, times)| staleness[steps as usize] = times);
        UpdateCost { bytes: received + sent, staleness, ..self.cost.clone() }
    }
}

impl std::fmt::Debug for ServerOptimizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerOptimizer")
            .field("world", &self.world)
            .field("delay", &self.delay)
            .finish_non_exhaustive()
    }
}
