//! How workers learn together, as far as a step's time, bytes and memory depend on it. Pure.
//!
//! The formulas are those of docs/which-parallelism.md, with the workers of a host taken into account.

use serde::{Serialize, Serializer};

/// A weight with its gradient and the two numbers that Adam keeps.
const COPIES: f64 = 4.0;

/// How workers learn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The mean of all gradients in every step.
    Data,
    /// The same, with the optimizer's state split over the workers.
    Sharded,
    /// Sharded, with weights in memory once per host.
    Central,
    /// Weights on servers; workers are so many steps apart at most, or any number.
    Server { servers: usize, delay: Option<u64> },
    /// Steps alone, and an average of weights after so many.
    Local { every: usize },
}

/// Where the workers are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placement {
    pub workers: usize,
    pub hosts: usize,
    pub per_host: usize,
}

impl Strategy {
    /// For tables: the strategy with the setting that matters.
    pub(super) fn label(self) -> String {
        match self {
            Self::Data => "data".into(),
            Self::Sharded => "sharded".into(),
            Self::Central => "central".into(),
            Self::Server { delay: Some(delay), .. } => format!("server, delay {delay}"),
            Self::Server { delay: None, .. } => "server, delay none".into(),
            Self::Local { every } => format!("local, every {every}"),
        }
    }

    /// Steps between two averages of weights, where there are several.
    pub(super) fn every(self) -> Option<usize> {
        if let Self::Local { every } = self { Some(every) } else { None }
    }

    /// Parameter servers, where there are any.
    pub(super) fn servers(self) -> Option<usize> {
        if let Self::Server { servers, .. } = self { Some(servers) } else { None }
    }

    /// Whether steps compute what those of data parallelism compute.
    pub(super) fn is_exact(self) -> bool {
        !matches!(self, Self::Server { delay: None | Some(1..), .. } | Self::Local { every: 2.. })
    }

    /// Whether each worker changes its share of the weights only.
    pub(super) fn is_split(self) -> bool {
        matches!(self, Self::Sharded | Self::Central)
    }

    /// Bytes that a worker sends in a step, for so many bytes of weights.
    pub(super) fn sent_bytes(self, weights: usize, place: Placement) -> f64 {
        let (w, n, h) = (weights as f64, place.workers as f64, place.hosts as f64);
        let k = place.per_host.min(place.workers) as f64;
        let scattered = w * (n - 1.0) / n;
        match self {
            Self::Data | Self::Sharded => 2.0 * scattered,
            // Within a host, changed weights are there already; between hosts, one worker of each gathers them.
            Self::Central => scattered + w * (h - 1.0) / (h * k),
            Self::Server { .. } => w,
            Self::Local { every } => 2.0 * scattered / every as f64,
        }
    }

    /// Bytes of memory that a worker needs for weights, gradients and Adam's state.
    pub(super) fn memory_bytes(self, weights: usize, place: Placement) -> u64 {
        let (w, n) = (weights as f64, place.workers as f64);
        let k = place.per_host.min(place.workers) as f64;
        let bytes = match self {
            _ if place.workers == 1 && !matches!(self, Self::Server { .. }) => COPIES * w,
            Self::Data | Self::Local { .. } => COPIES * w,
            // Reduced gradients and the state are shares.
            Self::Sharded => 2.0 * w + 3.0 * w / n,
            Self::Central => w + w / k + 3.0 * w / n,
            Self::Server { .. } => 2.0 * w,
        };
        bytes as u64
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Placement = Placement { workers: 8, hosts: 2, per_host: 4 };

    #[test]
    fn bytes_are_those_of_the_page() {
        let sent = |strategy: Strategy| strategy.sent_bytes(800, PLACE);
        assert_eq!((sent(Strategy::Data), sent(Strategy::Sharded)), (1400.0, 1400.0));
        // 700 of gradients, and 400 between hosts by one of four.
        assert_eq!(sent(Strategy::Central), 800.0);
        assert_eq!(sent(Strategy::Server { servers: 2, delay: Some(0) }), 800.0);
        assert_eq!(sent(Strategy::Local { every: 7 }), 200.0);
        let one = Placement { workers: 4, hosts: 1, per_host: 4 };
        assert_eq!(Strategy::Central.sent_bytes(800, one), 600.0);
    }

    #[test]
    fn memory_is_that_of_the_page() {
        let memory = |strategy: Strategy| strategy.memory_bytes(800, PLACE);
        assert_eq!((memory(Strategy::Data), memory(Strategy::Local { every: 8 })), (3200, 3200));
        assert_eq!((memory(Strategy::Sharded), memory(Strategy::Central)), (1900, 1300));
        assert_eq!(memory(Strategy::Server { servers: 2, delay: None }), 1600);
        let alone = Placement { workers: 1, hosts: 1, per_host: 4 };
        assert_eq!(Strategy::Sharded.memory_bytes(800, alone), 3200);
    }

    #[test]
    fn what_is_computed_differently_is_known() {
        let server = |delay| Strategy::Server { servers: 1, delay };
        let exact =
            [Strategy::Data, Strategy::Sharded, Strategy::Central, server(Some(0)), Strategy::Local { every: 1 }];
        assert!(exact.into_iter().all(Strategy::is_exact));
        assert!([server(Some(1)), server(None), Strategy::Local { every: 2 }].into_iter().all(|one| !one.is_exact()));
    }
}
