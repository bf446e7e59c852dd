//! Steps with parameter servers: what goes over their links, and who waits for whom. Pure.
//!
//! A worker computes, pushes its gradients to all servers and pulls weights. It may pull for its step `c` once the slowest
//! worker has pushed `c - delay` times, and that rule is simulated, with times drawn for every worker and step. The draws
//! do not depend on the delay, so a larger one is never slower.

use super::{cost::Network, replay::StepTimes};

/// Worker steps that are drawn at most.
const EFFORT: usize = 4_000_000;
/// Steps that are simulated at most, and at least.
const STEPS: usize = 400;
const FEWEST: usize = 50;

/// What a push or a pull takes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ServerTraffic {
    /// One worker by itself.
    pub alone: f64,
    /// All workers at once: the servers' links and processors are shared by them.
    pub together: f64,
    /// Pushes and pulls of one step of all workers at a server, if they are spread evenly; its link carries both at once.
    pub busy: f64,
}

impl ServerTraffic {
    /// Of `bytes` of gradients, and as many of weights, for each of `workers`.
    pub(super) fn new(network: &Network, bytes: usize, workers: usize, servers: usize) -> Self {
        let (bytes, n, s) = (bytes as f64, workers as f64, servers as f64);
        let (payload, latency) = network.outwards(workers);
        let own = s * network.per_message + bytes / payload;
        let (messages, link) = (n * network.per_message, n * bytes / s / network.payload());
        Self { alone: latency + own, together: latency + own.max(messages + link), busy: 2.0 * messages + link }
    }
}

/// A step with servers on average, if a worker computes for `mean` seconds, of which `draw` gives examples.
pub(super) fn step(
    traffic: ServerTraffic,
    (workers, delay): (usize, Option<u64>),
    mean: f64,
    draw: impl FnMut() -> f64,
) -> StepTimes {
    let transfer = 2.0 * if delay == Some(0) { traffic.together } else { traffic.alone };
    let steps = (EFFORT / workers.max(1)).clamp(FEWEST, STEPS);
    let computed = mean + waiting((workers, steps), delay, transfer, draw);
    let ended = computed + transfer;
    StepTimes { computed, ended: if delay == Some(0) { ended } else { ended.max(traffic.busy) } }
}

/// Seconds per step that a worker waits for slower ones, on average.
fn waiting((workers, steps): (usize, usize), delay: Option<u64>, transfer: f64, mut draw: impl FnMut() -> f64) -> f64 {
    let mut ended = vec![0.0_f64; workers];
    // When the slowest worker had made so many steps.
    let mut slowest = vec![0.0_f64];
    let mut drawn = 0.0;
    for step in 0..steps {
        let allowed = delay.and_then(|delay| step.checked_sub(usize::try_from(delay).ok()?));
        let from = allowed.map_or(0.0, |step| slowest[step]);
        for end in &mut ended {
            let computing = draw();
            drawn += computing;
            *end = end.max(from) + computing + transfer;
        }
        slowest.push(ended.iter().copied().fold(0.0, f64::max));
    }
    // In step, all go on together, so the last step also ends with the slowest.
    let end = match delay {
        Some(0) => slowest[steps],
        _ => ended.iter().sum::<f64>() / workers.max(1) as f64,
    };
    let own = drawn / workers.max(1) as f64 + transfer * steps as f64;
    ((end - own) / steps as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{
            cost::{LinearCost, PAYLOAD},
            random::Random,
        },
        *,
    };

    /// 1 MB/s of data, 1 s of latency and 0.1 s per message.
    fn network(per_host: usize) -> Network {
        let local = LinearCost::default();
        Network {
            latency: 1.0,
            bandwidth: 1e6 / PAYLOAD,
            per_host,
            local,
            rails: 1,
            spine: None,
            per_message: 0.1,
            forced: None,
        }
    }

    #[test]
    fn servers_links_are_shared_by_all_workers() {
        let traffic = ServerTraffic::new(&network(1), 2_000_000, 8, 2);
        // Two messages and 2 s; eight messages and half of 8 times 2 s.
        assert!((traffic.alone - (1.0 + 0.2 + 2.0)).abs() < 1e-9, "{traffic:?}");
        assert!((traffic.together - (1.0 + 0.8 + 8.0)).abs() < 1e-9, "{traffic:?}");
        assert!((traffic.busy - (1.6 + 8.0)).abs() < 1e-9, "{traffic:?}");
        // With as many servers as workers, the workers' own links count, and those of a host share one.
        let shared = ServerTraffic::new(&network(4), 2_000_000, 8, 8);
        assert!((shared.together - (1.0 + 0.8 + 8.0)).abs() < 1e-9, "{shared:?}");
    }

    /// One of four workers stalls for three steps' time in its tenth step.
    fn stalled(delay: Option<u64>) -> f64 {
        let mut number = 0;
        waiting((4, 100), delay, 0.0, || {
            number += 1;
            if number == 4 * 9 + 2 { 4.0 } else { 1.0 }
        })
    }

    #[test]
    fn a_delay_hides_as_many_steps_of_a_stall() {
        // In step, three of four workers wait for three steps.
        assert!((stalled(Some(0)) - 0.75 * 3.0 / 100.0).abs() < 1e-9, "{}", stalled(Some(0)));
        for hidden in [Some(3), Some(10), None] {
            assert_eq!(stalled(hidden), 0.0);
        }
        let part = stalled(Some(1));
        assert!(part > 0.0 && part < stalled(Some(0)), "{part}");
    }

    #[test]
    fn alone_or_with_equal_steps_nobody_waits() {
        let mut random = Random(1);
        assert!(waiting((1, 50), Some(0), 0.5, || 1.0 + 0.1 * random.normal()) < 1e-9);
        assert!(waiting((64, 50), Some(0), 0.5, || 1.0) < 1e-9);
    }

    proptest! {
        #[test]
        fn more_delay_is_never_slower(
            seed: u64, workers in 1_usize..40, delay in 0_u64..20, more in 0_u64..20, noise in 0.0..0.3_f64, servers in 1_usize..9,
        ) {
            let traffic = ServerTraffic::new(&network(2), 3_000_000, workers, servers);
            let of = |delay| {
                let mut random = Random(seed);
                let draw = move || (1.0 + noise * random.normal()).max(0.1);
                step(traffic, (workers, delay), 1.0, draw).ended
            };
            let [sync, some, larger, none] = [Some(0), Some(delay), Some(delay + more), None].map(of);
            prop_assert!(some <= sync + 1e-9 && larger <= some + 1e-9 && none <= larger + 1e-9, "{sync} {some} {larger} {none}");
        }
    }
}
