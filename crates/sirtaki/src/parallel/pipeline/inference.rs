//! What a network in stages makes of samples, without training it.

use std::collections::HashMap;

use burn::module::Module;

use super::{
    Pipeline,
    chain::{Chain, Layer},
    failure,
    flow::Flow,
    links::StageLinks,
};
use crate::{
    Error,
    pipeline::{Action, Pass, PipelinePlan, PipelineSchedule},
};

impl Pipeline {
    /// Passes `count` batches through all stages, one behind the other, with all workers busy at once. `input` gives
    /// what the first layer takes, on the worker with the first stage; `output` gets what the last layer gives, on the
    /// worker with the last, both in the order of batches. Batches may differ in size.
    ///
    /// All workers call it, with the same number. For a network without dropout and the like, give `chain.valid()`.
    pub fn forward<L: Layer, E: From<Error>>(
        &mut self,
        chain: &Chain<L>,
        count: usize,
        mut input: impl FnMut(usize) -> Result<Flow, E>,
        mut output: impl FnMut(usize, Flow) -> Result<(), E>,
    ) -> Result<(), E> {
        if count == 0 {
            return Ok(());
        }
        let (workers, last) = (self.plan.workers(), self.plan.stages() - 1);
        let schedule = PipelineSchedule::Interleaved;
        let plan = PipelinePlan::new(schedule, workers, self.plan.stages() / workers, count)?;
        let own = self.own_stages().map(|stage| self.stages[stage].clone());
        let parts: HashMap<usize, Chain<L>> = self.own_stages().zip(chain.clone().apart(own)).collect();
        let device = chain.devices().first().cloned().unwrap_or_else(|| self.device.clone().inner());
        let mut pass = |links: &mut StageLinks, action: Action| {
            let (Pass::Forward, Some(part)) = (action.pass, parts.get(&action.stage)) else { return Ok(()) };
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
        let mut actions = plan.actions(self.world.rank()).into_iter();
        let passed: Result<(), E> = actions.try_for_each(|action| pass(&mut self.links, action));
        passed.inspect_err(|_| self.links.give_up())?;
        self.links.finish()?;
        Ok(())
    }
}
