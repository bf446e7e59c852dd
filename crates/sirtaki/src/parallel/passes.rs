//! Several backward passes of a step, added up.

use burn::{
    module::Module,
    optim::{GradientsAccumulator, GradientsParams},
};

use crate::{Error, Result};

/// The gradients of those passes of a step that are done.
#[derive(Default)]
pub(super) struct PassSums {
    kept: GradientsParams,
    done: usize,
}

impl PassSums {
    /// The gradients of all passes, after the last of them.
    pub(super) fn gather<M: Module>(
        &mut self,
        module: &M,
        gradients: GradientsParams,
        passes: usize,
    ) -> Option<GradientsParams> {
        self.done += 1;
        let earlier = std::mem::take(&mut self.kept);
        let gathered = if earlier.is_empty() {
            gradients
        } else {
            let mut sum = GradientsAccumulator::new();
            sum.accumulate(module, earlier);
            sum.accumulate(module, gradients);
            sum.grads()
        };
        if self.done < passes {
            self.kept = gathered;
            return None;
        }
        self.done = 0;
        Some(gathered)
    }

    /// Refuses to save in the middle of a step.
    pub(super) fn check_complete(&self) -> Result<()> {
        if self.done == 0 {
            return Ok(());
        }
        let problem = "some passes of a step are done and others are not, so there is no state to save";
        Err(Error::setting(problem, "save after the last pass of a step"))
    }
}
