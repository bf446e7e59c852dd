//! What a network in stages makes of samples, without training it.

use std::{iter::StepBy, ops::Range};

use burn::module::Module;

use super::{
    Pipeline,
    chain::{Chain, Layer},
    failure,
    flow::Flow,
    links::StageLinks,
    loans::Loans,
    splits::Splits,
    step::AHEAD,
};
use crate::{
    Error,
    pipeline::{Action, Pass, PipelinePlan, PipelineSchedule},
};

/// Batches that go through a stage whose parameters workers lend to each other before those of the next are gathered.
const GROUP: usize = 8;

impl Pipeline {
    /// Passes `count` batches through all stages, one behind the other, with all workers busy at once. `input` gives
    /// what the first layer takes, on the worker with the first stage; `output` gets what the last layer gives, on the
    /// worker with the last, both in the order of batches. Batches may differ in size.
    ///
    /// All workers call it, those of a pipeline with the same number; where workers lend each other parameters
    /// ([`Chain::shard_over`]), those without any batches, too. For a network without dropout and the like, give
    /// `chain.valid()`.
    pub fn forward<L: Layer, E: From<Error>>(
        &mut self,
        chain: &Chain<L>,
        count: usize,
        mut input: impl FnMut(usize) -> Result<Flow, E>,
        mut output: impl FnMut(usize, Flow) -> Result<(), E>,
    ) -> Result<(), E> {
        let (workers, last, lenders) = (self.plan.workers(), self.plan.stages() - 1, chain.lenders());
        let (rounds, actions) = self.rounds(lenders.as_deref(), count)?;
        let own = self.own_stages().map(|stage| self.stages[stage].clone());
        let mut parts = Loans::new(chain.clone().apart(own))?;
        let device = chain.devices().first().cloned().unwrap_or_else(|| self.device.clone().inner());
        let mut pass = |links: &mut StageLinks, part: &Chain<L>, action: Action| {
            let flow = match action.stage {
                0 => input(action.micro)?,
                _ => {
                    let data = links.receive(action);
                    let data = links.noted(data)?.into_iter().flatten().collect();
                    Flow::from_data(data, &device)?
                }
            };
            let flow = links.noted(failure::forward(action.stage, part, &flow))?;
            if action.stage == last {
                return output(action.micro, flow);
            }
            let next = Action { stage: action.stage + 1, ..action };
            let sent = links.send(next, flow.data().into_iter().map(Some).collect());
            Ok(links.noted(sent)?)
        };
        let mut turn = |first: usize, place: usize| -> Result<(), E> {
            let later = |action: &Action| Action { micro: first + action.micro, ..*action };
            let next = actions[place..].iter().map(later).filter(|action| action.micro < count);
            next.take(AHEAD).for_each(|action| self.links.ask(action));
            let (own, action) = (actions[place].stage / workers, later(&actions[place]));
            let part = parts.open(own)?;
            let mut next = actions[place..].iter().map(|next| next.stage / workers);
            next.find(|other| *other != own).map_or(Ok(()), |other| parts.ask(other))?;
            if action.micro < count {
                pass(&mut self.links, &part, action)?;
            }
            parts.give_back(own, part);
            Ok(())
        };
        let mut turns = rounds.flat_map(|first| (0..actions.len()).map(move |place| (first, place)));
        let passed = turns.try_for_each(|(first, place)| turn(first, place));
        passed.inspect_err(|_| self.links.give_up())?;
        self.links.finish()?;
        Ok(())
    }

    /// The first batches of all rounds, and what this worker does with the batches of each.
    fn rounds(&self, lenders: Option<&Splits>, count: usize) -> crate::Result<(StepBy<Range<usize>>, Vec<Action>)> {
        // Who has fewer batches than others lends them parameters all the same.
        let all = match lenders {
            Some(splits) => splits.world.gather("batches", count as u64)?.into_iter().max().unwrap_or(0) as usize,
            None => count,
        };
        let (schedule, each) = match lenders {
            Some(_) => (PipelineSchedule::GPipe, all.clamp(1, GROUP)),
            None => (PipelineSchedule::Interleaved, all.max(1)),
        };
        let (workers, stages) = (self.plan.workers(), self.plan.stages());
        let mut actions = PipelinePlan::new(schedule, workers, stages / workers, each)?.actions(self.world.rank());
        actions.retain(|action| action.pass == Pass::Forward);
        Ok(((0..all).step_by(each), actions))
    }
}
