//! How pushes change weights.
//!
//! A rule changes each element by itself, so it does not matter how a table is cut into blocks and which rows were
//! touched. Products and sums are rounded one by one and in the order of Burn's optimizers, so that servers in step
//! give the same bits as workers that each have a Burn optimizer of their own.
//!
//! - `gradient`: SGD with momentum, Adam, AdamW.
//! - `sparse`: AdaGrad and FTRL, for models with many features that are rarely seen.

mod gradient;
mod sparse;

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use self::{
    gradient::{Adam, Sgd},
    sparse::{AdaGrad, Ftrl},
};

/// A change of some neighbouring elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// The learning rate.
    pub rate: f64,
    /// Which change of its block this is, from one on.
    pub number: u64,
}

/// How a gradient changes weights.
pub trait Rule: Send + Sync {
    /// How many numbers are kept for each weight. They begin as zeros.
    fn slots(&self) -> usize;

    /// Changes weights and what is kept for them; all slices have the same length.
    fn apply(&self, change: Change, weights: &mut [f32], slots: &mut [&mut [f32]], gradient: &[f32]);
}

/// A rule by its name and numbers, as workers ask for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RuleSpec {
    /// Stochastic gradient descent.
    Sgd {
        /// Part of the velocity that is kept; zero without momentum.
        momentum: f64,
        /// Part of a gradient that the velocity does not get.
        dampening: f64,
        /// Whether the step looks ahead.
        nesterov: bool,
        /// What weights times this is added to gradients.
        weight_decay: f32,
    },
    /// Adam, with weight decay as a part of gradients.
    Adam {
        /// Part of the first moment that is kept.
        beta_1: f32,
        /// Part of the second.
        beta_2: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// What weights times this is added to gradients.
        weight_decay: f32,
    },
    /// Adam, with weight decay beside gradients.
    AdamW {
        /// Part of the first moment that is kept.
        beta_1: f32,
        /// Part of the second.
        beta_2: f32,
        /// Added to the denominator.
        epsilon: f32,
        /// Part of the weights that a step with rate one takes away.
        weight_decay: f32,
    },
    /// Steps that shrink with what each weight has seen.
    AdaGrad {
        /// Added to the denominator.
        epsilon: f32,
    },
    /// Follow the regularized leader, which keeps weights of rare features at zero.
    Ftrl {
        /// Smooths the rate of weights that have seen little.
        beta: f32,
        /// Penalty that makes weights zero.
        l1: f32,
        /// Penalty that makes weights small.
        l2: f32,
    },
    /// The function that servers were given under this name.
    Named(String),
}

impl RuleSpec {
    /// Plain gradient descent.
    pub fn sgd() -> Self {
        Self::momentum(0.0)
    }

    /// Gradient descent with momentum, as PyTorch means it.
    pub fn momentum(momentum: f64) -> Self {
        RuleSpec::Sgd { momentum, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }

    /// Adam with the usual numbers.
    pub fn adam() -> Self {
        RuleSpec::Adam { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }

    /// AdamW with the usual numbers.
    pub fn adamw() -> Self {
        RuleSpec::AdamW { beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: 0.01 }
    }

    /// AdaGrad with the usual numbers.
    pub fn adagrad() -> Self {
        RuleSpec::AdaGrad { epsilon: 1e-10 }
    }

    /// FTRL with these penalties.
    pub fn ftrl(l1: f32, l2: f32) -> Self {
        RuleSpec::Ftrl { beta: 1.0, l1, l2 }
    }
}

/// The rules that a server knows: all of ours, and functions of its program.
#[derive(Clone, Default)]
pub struct Rules(BTreeMap<String, Arc<dyn Rule>>);

impl Rules {
    /// Adds a function under a name, for [`RuleSpec::Named`]. All servers need the same.
    #[must_use]
    pub fn with(mut self, name: &str, rule: impl Rule + 'static) -> Self {
        self.0.insert(name.to_owned(), Arc::new(rule));
        self
    }

    /// The rule, unless it is one that the program does not have.
    pub fn find(&self, spec: &RuleSpec) -> Result<Arc<dyn Rule>, String> {
        Ok(match spec {
            &RuleSpec::Sgd { momentum, dampening, nesterov, weight_decay } => {
                Arc::new(Sgd { momentum: momentum as f32, dampening, nesterov, weight_decay })
            }
            &RuleSpec::Adam { beta_1, beta_2, epsilon, weight_decay } => {
                Arc::new(Adam { beta_1, beta_2, epsilon, weight_decay, beside: false })
            }
            &RuleSpec::AdamW { beta_1, beta_2, epsilon, weight_decay } => {
                Arc::new(Adam { beta_1, beta_2, epsilon, weight_decay, beside: true })
            }
            &RuleSpec::AdaGrad { epsilon } => Arc::new(AdaGrad { epsilon }),
            &RuleSpec::Ftrl { beta, l1, l2 } => Arc::new(Ftrl { beta, l1, l2 }),
            RuleSpec::Named(name) => {
                let unknown =
                    || format!("this server has no rule `{name}`; hint: give it to all servers with Rules::with");
                self.0.get(name).cloned().ok_or_else(unknown)?
            }
        })
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
