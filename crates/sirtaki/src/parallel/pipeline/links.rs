//! Flows and their gradients between the workers of a pipeline.
//!
//! What goes from one stage to the next is sent as one message for each tensor, in the order of the flow. Messages are
//! asked for before they are needed, so that they travel while this worker computes. How many tensors there are is said
//! once, with the first flow.

use std::collections::HashMap;

use burn::tensor::{DType, Shape, TensorData};
use sirtaki_engine::{Expected, Operation, Output, Source, Ticket};

use super::{
    super::convert::{inbound, outbound},
    failure::{self, Reason},
};
use crate::{
    Error, Result, World,
    pipeline::{Action, Pass, PipelinePlan},
    world::{elements, wrong_type},
};

/// The tensors of a flow, or their gradients; `None` for a tensor without a gradient.
pub(super) type Tensors = Vec<Option<TensorData>>;

/// Where flows of one direction arrive.
type Entrance = (Pass, usize);

/// This worker's connections to the stages before and after its own.
pub(super) struct StageLinks {
    world: World,
    plan: PipelinePlan,
    /// The number of the pipeline in its world.
    number: usize,
    /// What the first flow was like: type and all sizes but the first, which is that of the micro-batch.
    forms: HashMap<Entrance, Vec<(DType, Vec<usize>)>>,
    /// How many tensors arrive.
    counts: HashMap<Entrance, usize>,
    /// Between two stages of this worker.
    own: HashMap<Action, Tensors>,
    asked: HashMap<Action, Vec<Ticket>>,
    sent: Vec<Ticket>,
    /// Why this worker cannot go on.
    reason: Option<Reason>,
}

impl StageLinks {
    pub(super) fn new(world: &World, plan: PipelinePlan) -> Self {
        let (number, world) = (world.next_layer(), world.clone());
        let (forms, counts, own, asked) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Self { world, plan, number, forms, counts, own, asked, sent: Vec::new(), reason: None }
    }

    /// Says how many gradients will come back for what a stage has sent on.
    pub(super) fn will_return(&mut self, stage: usize, count: usize) {
        self.counts.insert((Pass::Backward, stage), count);
    }

    /// Sends on what a stage has made; the action is what the receiver will do with it.
    pub(super) fn send(&mut self, to: Action, tensors: Tensors) -> Result<()> {
        self.check(to, &tensors)?;
        let owner = self.plan.owner(to.stage);
        if owner == self.world.rank() {
            self.own.insert(to, tensors);
            return Ok(());
        }
        let (tag, label) = (self.tag(to), label(to));
        if to.pass == Pass::Forward && self.counts.insert((to.pass, to.stage), tensors.len()).is_none() {
            let count = vec![tensors.len() as i64];
            self.sent.push(self.world.send(owner, tag | COUNT, &format!("number of {label}"), &[1], count));
        }
        for tensor in tensors {
            let tensor = tensor.unwrap_or_else(|| TensorData::new(Vec::<u8>::new(), [0]));
            let (request, tensor) = outbound(&label, Operation::Barrier, tensor);
            self.sent.push(self.world.engine().send(owner, tag, &label, &request.shape, tensor));
        }
        Ok(())
    }

    /// Asks for what this action needs, if that is known already.
    pub(super) fn ask(&mut self, action: Action) {
        let Some(from) = self.before(action) else { return };
        let Some(&count) = self.counts.get(&(action.pass, action.stage)) else { return };
        if !self.asked.contains_key(&action) {
            self.asked.insert(action, self.receives(action, from, count));
        }
    }

    /// What this action needs.
    pub(super) fn receive(&mut self, action: Action) -> Result<Tensors> {
        let Some(from) = self.before(action) else {
            return self.own.remove(&action).ok_or_else(|| wrong_type(&label(action)));
        };
        let label = label(action);
        let _bubble = self.world.engine().span(LANE, || format!("bubble: waits for {label}"));
        let tickets = match self.asked.remove(&action) {
            Some(tickets) => tickets,
            None => {
                let count = self.count(action, from)?;
                self.receives(action, from, count)
            }
        };
        let tensors: Tensors =
            tickets.into_iter().map(|ticket| tensor(action, &label, ticket.wait_one()?)).collect::<Result<_>>()?;
        self.check(action, &tensors)?;
        Ok(tensors)
    }

    /// Keeps in mind why this worker cannot go on, for those that wait for it.
    pub(super) fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let reason = || (error.to_string(), error.hint().unwrap_or_default().to_owned());
            self.reason.get_or_insert_with(reason);
        }
        result
    }

    /// Tells the workers with the stages before and after these that nothing more will come, and why.
    pub(super) fn give_up(&mut self) {
        let rank = self.world.rank();
        let unknown = || (format!("worker {rank} of the pipeline failed"), "its own error says why".to_owned());
        let reason = self.reason.take().unwrap_or_else(unknown);
        for stage in self.plan.stages_of(rank) {
            let next = Action { pass: Pass::Forward, stage: stage + 1, micro: 0 };
            let before = stage.checked_sub(1).map(|stage| Action { pass: Pass::Backward, stage, micro: 0 });
            for to in [Some(next).filter(|next| next.stage < self.plan.stages()), before].into_iter().flatten() {
                let owner = self.plan.owner(to.stage);
                if owner == rank {
                    continue;
                }
                let counted = to.pass == Pass::Backward || self.counts.contains_key(&(to.pass, to.stage));
                let tag = if counted { self.tag(to) } else { self.tag(to) | COUNT };
                let (tensor, shape) = failure::message(&reason);
                drop(self.world.engine().send(owner, tag, "the reason why a stage failed", &shape, tensor));
            }
        }
    }

    /// Waits until everything has been sent.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.sent.drain(..).try_for_each(|ticket| ticket.wait_one().map(drop)).map_err(Error::from)
    }

    /// The other worker that has what an action needs.
    fn before(&self, action: Action) -> Option<usize> {
        let stage = match action.pass {
            Pass::Forward => action.stage.checked_sub(1)?,
            Pass::Backward => Some(action.stage + 1).filter(|&stage| stage < self.plan.stages())?,
        };
        Some(self.plan.owner(stage)).filter(|&owner| owner != self.world.rank())
    }

    fn count(&mut self, action: Action, from: usize) -> Result<usize> {
        if let Some(&count) = self.counts.get(&(action.pass, action.stage)) {
            return Ok(count);
        }
        let label = format!("number of {}", label(action));
        let ticket = self.world.receive(Source::Rank(from), self.tag(action) | COUNT, &label, Expected::Anything);
        let output = ticket.wait_one()?;
        failure::check(&output)?;
        let count = elements::<i64>(&label, output)?;
        let count = count.first().and_then(|&count| usize::try_from(count).ok()).ok_or_else(|| wrong_type(&label))?;
        self.counts.insert((action.pass, action.stage), count);
        Ok(count)
    }

    fn receives(&self, action: Action, from: usize, count: usize) -> Vec<Ticket> {
        let (tag, label) = (self.tag(action), label(action));
        let receive = |_| self.world.receive(Source::Rank(from), tag, &label, Expected::Anything);
        (0..count).map(receive).collect()
    }

    /// One tag for everything that arrives at a stage from one side.
    fn tag(&self, action: Action) -> u64 {
        let back = u64::from(action.pass == Pass::Backward);
        (self.number as u64) << 34 | (action.stage as u64) << 2 | back << 1
    }

    /// One tag for everything else that goes from worker to worker.
    pub(super) fn tag_of_tensors(&self) -> u64 {
        (self.number as u64) << 34 | COUNT << 1 | COUNT
    }

    /// Only the first size, that of the micro-batch, may change.
    fn check(&mut self, action: Action, tensors: &Tensors) -> Result<()> {
        if action.pass == Pass::Backward {
            return Ok(());
        }
        let form = |tensor: &TensorData| (tensor.dtype(), tensor.shape().iter().skip(1).copied().collect());
        let now: Vec<(DType, Vec<usize>)> = tensors.iter().flatten().map(form).collect();
        let first = self.forms.entry((action.pass, action.stage)).or_insert_with(|| now.clone());
        if *first == now {
            return Ok(());
        }
        let (before, stage) = (describe(first), action.stage - 1);
        let problem = format!(
            "stage {stage} gives {} for micro-batch {}, and gave {before} before",
            describe(&now),
            action.micro
        );
        Err(Error::setting(problem, "only the first size of a tensor, the samples of a micro-batch, may change"))
    }
}

/// Where a timeline shows what stages do.
pub(super) const LANE: &str = "stages";

/// Marks a message that says how many follow.
const COUNT: u64 = 1;

fn describe(form: &[(DType, Vec<usize>)]) -> String {
    let tensor = |(dtype, sizes): &(DType, Vec<usize>)| {
        let sizes: String = sizes.iter().map(|size| format!(", {size}")).collect();
        format!("{} [samples{sizes}]", dtype.name())
    };
    form.iter().map(tensor).collect::<Vec<_>>().join(" and ")
}

fn label(action: Action) -> String {
    let (what, from) = match action.pass {
        Pass::Forward => ("activations", action.stage.saturating_sub(1)),
        Pass::Backward => ("gradients", action.stage + 1),
    };
    format!("{what} of micro-batch {} from stage {from}", action.micro)
}

fn tensor(action: Action, label: &str, output: Output) -> Result<Option<TensorData>> {
    failure::check(&output)?;
    let Output::Message { tensor, shape, .. } = &output else { return Err(wrong_type(label)) };
    let (dtype, shape) = (burn_type(tensor.dtype()), Shape::from(shape.clone()));
    // What has no gradient is sent as no bytes.
    if action.pass == Pass::Backward && dtype == Some(DType::U8) {
        return Ok(None);
    }
    let dtype = dtype.ok_or_else(|| wrong_type(label))?;
    inbound(label, output, shape, dtype).map(Some)
}

/// Burn's type for elements that came from another worker.
fn burn_type(dtype: sirtaki_comm::DType) -> Option<DType> {
    use sirtaki_comm::DType as Engine;

    Some(match dtype {
        Engine::F64 => DType::F64,
        Engine::F32 => DType::F32,
        Engine::F16 => DType::F16,
        Engine::BF16 => DType::BF16,
        Engine::I64 => DType::I64,
        Engine::I32 => DType::I32,
        Engine::I8 => DType::I8,
        Engine::U8 => DType::U8,
        _ => return None,
    })
}
