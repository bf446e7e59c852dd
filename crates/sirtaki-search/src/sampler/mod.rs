//! Which point to try next.
//!
//! A suggestion is a function of the seed, the space, the history and the number of the trial. Samplers may keep what
//! they computed, since a study asks thousands of times, but must answer as one that was made a moment ago;
//! [`History::lineage`] tells whether what was kept still belongs to the history at hand.

mod automatic;
mod cma;
mod directions;
mod gaussian;
mod grid;
mod history;
mod nsga;
mod random;
mod ranking;
mod registry;
mod sobol;
#[cfg(test)]
pub(crate) mod tests;
mod tpe;

pub use automatic::AutomaticSampler;
pub use cma::CmaEsSampler;
pub use gaussian::GaussianSampler;
pub use grid::GridSampler;
pub use history::{History, Observation, Outcome};
pub use nsga::NsgaSampler;
pub use random::RandomSampler;
pub use registry::{Entry, SAMPLERS, find};
pub use sobol::{SobolSampler, sobol};
pub use tpe::TpeSampler;

use crate::space::{Point, Space};

/// All that a suggestion may depend on.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The seed of the study.
    pub seed: u64,
    /// What can be tried.
    pub space: &'a Space,
    /// What was tried, and what is being tried now.
    pub history: &'a History,
    /// The number of the trial that asks.
    pub number: u64,
}

/// A way to choose the next point.
pub trait Sampler: Send {
    /// The point for trial `question.number`; always one that [`Space::contains`].
    fn suggest(&mut self, question: &Question<'_>) -> Point;

    /// Whether all there is to suggest was tried.
    fn is_exhausted(&mut self, _question: &Question<'_>) -> bool {
        false
    }
}
