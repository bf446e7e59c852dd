//! One step of training through a pipeline.

use std::{collections::HashMap, time::Instant};

use burn::{
    optim::{GradientsParams, lr_scheduler::module_lr_scheduler::ModuleLearningRate},
    tensor::{Device, Tensor},
};
use sirtaki_engine::Phase;

use super::{
    Pipeline,
    chain::{Chain, Layer},
    failure,
    flow::Flow,
    handing::{Exchanged, Handing},
    links::LANE,
    loans::Loans,
};
use crate::{
    Error, LeafSums, Result, Update,
    data::{FixedShards, Shard},
    parallel::{leaf_sums::Statistics, shards::seed},
    pipeline::{Action, Pass},
};

/// Actions ahead of the current one for which messages are asked for.
pub(super) const AHEAD: usize = 4;

/// A micro-batch between its forward and its backward pass through a stage.
struct Held {
    input: Flow,
    made: Made,
    statistics: Statistics,
}

/// What a stage made of a micro-batch.
enum Made {
    /// Tensors for the next stage.
    Flow(Flow),
    /// The loss, in the last stage.
    Loss(Box<Tensor<1>>),
    /// Something that is computed again when its gradients are needed.
    Again,
}

impl Pipeline {
    /// One step with all shards of a step of the plan, each of which is a micro-batch, to the same bits as
    /// [`DistributedOptimizer::step_shards`](crate::DistributedOptimizer::step_shards) with the whole network in one process.
    ///
    /// `input` gives what the first layer takes, and is called by the worker with the first stage; `loss` gives the mean
    /// loss of a shard's samples from what the last layer gives, and is called by the worker with the last stage. The
    /// update's world, and the plan's, are the workers that have the same stages and other samples.
    ///
    /// All workers of the pipeline call it.
    pub fn step<L: Layer, E: From<Error>>(
        &mut self,
        update: &mut (impl Update<Chain<L>> + ?Sized),
        rate: impl Into<ModuleLearningRate>,
        chain: Chain<L>,
        (plan, step): (&FixedShards, usize),
        input: impl FnMut(Shard) -> std::result::Result<Flow, E>,
        loss: impl FnMut(Shard, Flow) -> std::result::Result<Tensor<1>, E>,
    ) -> std::result::Result<Chain<L>, E> {
        let lenders = chain.lenders();
        self.check_step(lenders.as_ref().map_or(update.world(), |splits| &splits.world), plan, step)?;
        if chain.splits().is_some() && !std::mem::replace(&mut self.checked, true) {
            update.check_parts(&chain)?;
        }
        let begun = Instant::now();
        let device = self.device.clone();
        let parts = Loans::new(chain.apart(self.own_stages().map(|stage| self.stages[stage].clone())))?;
        let recompute = self.recompute || lenders.is_some();
        let mut running = Running { pipeline: self, device, plan, recompute, held: HashMap::new(), input, loss };
        let samples = plan.together(step);
        let sums = parts.parts().iter().map(|part| LeafSums::new(part, plan.shards(), plan.shard_size(), samples));
        let mut sums: Vec<LeafSums> = sums.map(|sums| Ok(sums?.summed(update.is_sum()))).collect::<Result<_>>()?;
        let parts = running.run(step, parts, &mut sums);
        let parts = parts.inspect_err(|_| self.links.give_up())?;
        self.links.finish()?;
        self.time.steps += begun.elapsed();
        let chain = Chain::together(parts);
        match LeafSums::of_stages(sums, &self.world) {
            Some(sums) => Ok(update.step(rate.into(), chain, sums.into())?),
            None => Ok(chain),
        }
    }
}

/// A step under way.
struct Running<'a, I, O> {
    pipeline: &'a mut Pipeline,
    device: Device,
    plan: &'a FixedShards,
    recompute: bool,
    held: HashMap<(usize, usize), Held>,
    input: I,
    loss: O,
}

impl<I, O> Running<'_, I, O> {
    fn run<L: Layer, E: From<Error>>(
        &mut self,
        step: usize,
        mut parts: Loans<L>,
        sums: &mut [LeafSums],
    ) -> std::result::Result<Vec<Chain<L>>, E>
    where
        I: FnMut(Shard) -> std::result::Result<Flow, E>,
        O: FnMut(Shard, Flow) -> std::result::Result<Tensor<1>, E>,
    {
        let (shards, plan) = (self.plan, self.pipeline.plan);
        let shard = |micro: usize| shards.shard(step * shards.per_step() + micro);
        let (actions, mut handing) = (plan.actions(self.pipeline.world.rank()), Handing::default());
        let is_filled = |action: &&Action| shard(action.micro).samples > 0;
        for (place, action) in actions.iter().enumerate() {
            let (next, own) = (&actions[place..], action.stage / plan.workers());
            next.iter().filter(is_filled).take(AHEAD).for_each(|&next| self.pipeline.links.ask(next));
            // Even for a shard without samples: others may have some, and need what this worker lends them.
            let part = parts.open(own)?;
            if let Some(other) = next.iter().map(|next| next.stage / plan.workers()).find(|other| *other != own) {
                parts.ask(other)?;
            }
            let part = match action.pass {
                _ if !is_filled(&action) => part,
                Pass::Forward => self.forward(*action, shard(action.micro), part, &sums[own])?,
                Pass::Backward => self.backward(*action, shard(action.micro), part, &mut sums[own])?,
            };
            parts.give_back(own, part);
            if next.iter().skip(1).any(|later| later.stage == action.stage) {
                continue;
            }
            // Shards without samples are the last ones.
            for empty in (0..plan.micros()).map(shard).filter(|shard| shard.samples == 0) {
                sums[own].skip(empty.number);
            }
            if let Some((splits, kept)) = parts.kept(own) {
                let (world, name) = (splits.world.clone(), format!("gradients of stage {}", action.stage));
                handing.hand_in(own, sums, Exchanged { world, name, kept }, self.pipeline.waits)?;
            }
        }
        handing.finish(sums)?;
        Ok(parts.end())
    }

    fn forward<L: Layer, E: From<Error>>(
        &mut self,
        action: Action,
        shard: Shard,
        part: Chain<L>,
        sums: &LeafSums,
    ) -> std::result::Result<Chain<L>, E>
    where
        I: FnMut(Shard) -> std::result::Result<Flow, E>,
        O: FnMut(Shard, Flow) -> std::result::Result<Tensor<1>, E>,
    {
        let input = match action.stage {
            0 => (self.input)(shard)?,
            _ => {
                let data = self.pipeline.links.receive(action);
                let data = self.pipeline.links.noted(data)?.into_iter().flatten().collect();
                Flow::from_data(data, &self.device)?
            }
        };
        let (recompute, last) = (self.recompute, action.stage + 1 == self.pipeline.plan.stages());
        let place = (action.stage, action.micro);
        if recompute && last {
            self.held.insert(place, Held { input, made: Made::Again, statistics: Statistics::default() });
            return Ok(part);
        }
        let passing = recompute.then(|| Flow::from_data(input.data(), &self.device)).transpose()?;
        let (part, made, statistics) = self.compute(action, shard, part, passing.as_ref().unwrap_or(&input), sums)?;
        let made = match made {
            Made::Flow(flow) => {
                self.pipeline.links.will_return(action.stage, flow.floats());
                let next = Action { stage: action.stage + 1, ..action };
                let sent = self.pipeline.links.send(next, flow.data().into_iter().map(Some).collect());
                self.pipeline.links.noted(sent)?;
                if recompute { Made::Again } else { Made::Flow(flow) }
            }
            made => made,
        };
        self.held.insert(place, Held { input, made, statistics });
        passing.into_iter().for_each(Flow::forget);
        self.pipeline.most_held = self.pipeline.most_held.max(self.held.len());
        Ok(part)
    }

    /// What a stage makes of a micro-batch, with the random numbers of its shard.
    fn compute<L: Layer, E: From<Error>>(
        &mut self,
        action: Action,
        shard: Shard,
        part: Chain<L>,
        input: &Flow,
        sums: &LeafSums,
    ) -> std::result::Result<(Chain<L>, Made, Statistics), E>
    where
        O: FnMut(Shard, Flow) -> std::result::Result<Tensor<1>, E>,
    {
        let engine = self.pipeline.world.engine();
        let (_phase, _span) = (engine.phase(Phase::Forward), engine.span(LANE, || describe(action, "forward")));
        let begun = Instant::now();
        seed(&self.device, self.plan.stream("forward", shard.batch));
        let flow = failure::forward(action.stage, &part, input);
        let flow = self.pipeline.links.noted(flow)?;
        let made = if action.stage + 1 == self.pipeline.plan.stages() {
            Made::Loss(Box::new((self.loss)(shard, flow)?))
        } else {
            Made::Flow(flow)
        };
        let (part, statistics) = sums.observe(part)?;
        self.pipeline.time.busy += begun.elapsed();
        Ok((part, made, statistics))
    }

    fn backward<L: Layer, E: From<Error>>(
        &mut self,
        action: Action,
        shard: Shard,
        part: Chain<L>,
        sums: &mut LeafSums,
    ) -> std::result::Result<Chain<L>, E>
    where
        O: FnMut(Shard, Flow) -> std::result::Result<Tensor<1>, E>,
    {
        let held = self.held.remove(&(action.stage, action.micro));
        let Held { input, made, statistics } =
            held.ok_or_else(|| Error::setting("a backward pass without a forward pass", "report this"))?;
        let (part, made, statistics) = match made {
            Made::Again => self.compute(action, shard, part, &input, sums)?,
            made => (part, made, statistics),
        };
        let loss = match made {
            Made::Loss(loss) => Some(*loss),
            Made::Flow(flow) => {
                let gradients = self.pipeline.links.receive(action);
                flow.pull(self.pipeline.links.noted(gradients)?)
            }
            Made::Again => None,
        };
        let engine = self.pipeline.world.engine();
        let (_phase, _span) = (engine.phase(Phase::Backward), engine.span(LANE, || describe(action, "backward")));
        let begun = Instant::now();
        let mut gradients = loss.map(|loss| loss.backward());
        if let Some(before) = action.stage.checked_sub(1) {
            let returned = match &mut gradients {
                Some(gradients) => input.gradients(gradients),
                None => vec![None; input.floats()],
            };
            self.pipeline.links.send(Action { stage: before, ..action }, returned)?;
        }
        let gradients = gradients.map_or_else(GradientsParams::new, |all| GradientsParams::from_grads(all, &part));
        sums.add_observed(&part, (shard.number, shard.samples), gradients, statistics)?;
        self.pipeline.time.busy += begun.elapsed();
        Ok(part)
    }
}

/// What a timeline calls a pass.
fn describe(action: Action, pass: &str) -> String {
    format!("stage {}, {pass} of micro-batch {}", action.stage, action.micro)
}
