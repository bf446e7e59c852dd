//! Gradients on their way to the workers that keep their rows, while this worker computes those of the stage before.
//!
//! An exchange is several messages, each of which depends on the one before, so a thread of its own sees to it. Those of one
//! stage are on their way at a time: nobody needs room for more.

use std::{
    collections::HashMap,
    panic::resume_unwind,
    thread::{Builder, JoinHandle},
};

use burn::module::ParamId;

use crate::{Error, LeafSums, Result, World};

/// What is on its way.
#[derive(Default)]
pub(super) struct Handing {
    underway: Option<(usize, JoinHandle<Result<LeafSums>>)>,
}

/// Where the gradients of a stage go.
pub(super) struct Exchanged {
    pub(super) world: World,
    pub(super) name: String,
    /// Elements of each parameter that each worker keeps.
    pub(super) kept: HashMap<ParamId, Vec<usize>>,
}

impl Handing {
    /// Hands in the gradients of a stage, once those before are through; waits for them if that is wanted.
    pub(super) fn hand_in(&mut self, stage: usize, sums: &mut [LeafSums], to: Exchanged, waits: bool) -> Result<()> {
        self.finish(sums)?;
        let mut own = std::mem::replace(&mut sums[stage], LeafSums::none());
        let exchange = move || -> Result<LeafSums> {
            own.keep_rows(&to.world, &to.name, &to.kept)?;
            Ok(own)
        };
        if waits {
            sums[stage] = exchange()?;
            return Ok(());
        }
        let thread = Builder::new().name("sirtaki-gradients".into()).spawn(exchange);
        let failed =
            |error| Error::setting(format!("cannot start a thread for gradients: {error}"), "allow more threads");
        self.underway = Some((stage, thread.map_err(failed)?));
        Ok(())
    }

    /// Waits for what is on its way.
    pub(super) fn finish(&mut self, sums: &mut [LeafSums]) -> Result<()> {
        let Some((stage, thread)) = self.underway.take() else { return Ok(()) };
        sums[stage] = thread.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(())
    }
}
