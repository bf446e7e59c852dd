//! Batches in step with all other ranks.
//!
//! Before each batch ranks say how many items they have and whether they want to stop. So an epoch ends on all ranks
//! together, though parts differ in length, and a rank that is interrupted or cannot read its data stops the others
//! instead of leaving them to wait. These messages are sent while the batch is computed.

use burn::{
    data::dataloader::{DataLoader, DataLoaderIterator},
    train::Interrupter,
};
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Operation, Request, Tensor, Ticket};

use crate::{Result, World, world::elements};

const NAME: &str = "learner round";

/// The pending answers of all ranks about a round.
pub(super) struct Asked(Ticket);

/// What all ranks together have in a round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Agreed {
    /// How many items; none at the end.
    pub(super) items: f64,
    /// Whether some rank wants to stop.
    pub(super) stop: bool,
}

/// The batches of a loader; without one, this rank only takes part in the rounds.
pub(super) struct LearnerRounds<'a, T> {
    world: &'a World,
    iterator: Option<Box<dyn DataLoaderIterator<T> + 'a>>,
    seen: usize,
    interrupter: &'a Interrupter,
}

impl<'a, T: 'static> LearnerRounds<'a, T> {
    pub(super) fn new(world: &'a World, loader: Option<&'a dyn DataLoader<T>>, interrupter: &'a Interrupter) -> Self {
        Self { world, iterator: loader.map(DataLoader::iter), seen: 0, interrupter }
    }

    /// Takes the next batch, with its number of items, and tells the others.
    pub(super) fn begin(&mut self) -> (Option<(T, usize)>, Asked) {
        let batch = self.read();
        let items = batch.as_ref().map_or(0, |(_, items)| *items);
        (batch, ask(self.world, items, self.interrupter))
    }

    fn read(&mut self) -> Option<(T, usize)> {
        if self.interrupter.should_stop() {
            return None;
        }
        let iterator = self.iterator.as_mut()?;
        match iterator.next() {
            Some(Ok(batch)) => {
                let before = std::mem::replace(&mut self.seen, iterator.progress().items_processed);
                Some((batch, self.seen.saturating_sub(before).max(1)))
            }
            Some(Err(error)) => {
                self.interrupter.fail(error);
                None
            }
            None => {
                self.iterator = None;
                None
            }
        }
    }

    /// Waits for what the others say.
    pub(super) fn end(&self, asked: Asked) -> Result<Agreed> {
        answer(asked, self.interrupter)
    }
}

/// Whether some rank wants to stop. All ranks call it.
pub(super) fn stops(world: &World, interrupter: &Interrupter) -> Result<bool> {
    Ok(answer(ask(world, 0, interrupter), interrupter)?.stop)
}

fn ask(world: &World, items: usize, interrupter: &Interrupter) -> Asked {
    let stop = if interrupter.should_stop() { 1.0 } else { 0.0 };
    let request = Request::new(NAME, Operation::AllReduce(Reduction::SUM), DType::F64, &[2]);
    Asked(world.engine().submit(request, Tensor::from_vec(vec![items as f64, stop])))
}

fn answer(asked: Asked, interrupter: &Interrupter) -> Result<Agreed> {
    let sums = elements::<f64>(NAME, asked.0.wait_one()?)?;
    let stop = sums[1] > 0.0;
    if stop && !interrupter.should_stop() {
        interrupter.stop(Some("another rank has stopped"));
    }
    Ok(Agreed { items: sums[0], stop })
}
