//! Predictions for jobs whose times are known.

use sirtaki_comm::collective::Algorithm;

use super::*;
use crate::commands::predict::{
    cost::{LinearCost, PAYLOAD},
    work::Tensor,
};

const LIMITS: Limits = Limits { fused: 16 << 20, large: 1 << 20 };

fn network() -> Network {
    Network {
        latency: 0.0,
        bandwidth: 1e6 / PAYLOAD,
        per_host: 1,
        local: LinearCost::default(),
        rails: 1,
        spine: None,
        per_message: 0.0,
        forced: Some(Algorithm::Doubling),
    }
}

fn work(computed: &[f64]) -> Work {
    let samples = computed.iter().map(|&computed| Sample { ready: vec![computed], computed }).collect();
    Work {
        title: "test".into(),
        tensors: vec![Tensor { name: "t".into(), bytes: 1_000_000 }],
        samples,
        workers: 2,
        batch: Some(10),
        fixed: 0.0,
        local: None,
        copy: 0.0,
        noise: None,
        recorded_step: None,
        notes: Vec::new(),
    }
}

fn near(one: f64, other: f64, within: f64) {
    assert!((one - other).abs() < within, "{one} and {other}");
}

#[test]
fn weak_scaling_keeps_the_work_of_a_worker() {
    let rows = predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Weak, Strategy::Data), &[1, 2, 4]);
    assert_eq!((rows[0].step_seconds, rows[0].efficiency, rows[0].samples_per_second), (4.0, 1.0, Some(2.5)));
    // 1 s by doubling between two, 2 s among four.
    near(rows[1].step_seconds, 5.0, 1e-3);
    near(rows[2].efficiency, 4.0 / 6.0, 1e-3);
    near(rows[2].speedup, 16.0 / 6.0, 1e-3);
    near(rows[2].communication_seconds, 2.0, 1e-3);
    assert_eq!(rows[2].collectives.len(), 1);
    assert_eq!((rows[2].collectives[0].algorithm, rows[2].collectives[0].count), ("doubling", 1));
}

#[test]
fn strong_scaling_shares_the_work_of_the_recorded_workers() {
    let rows = predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Strong, Strategy::Data), &[1, 2, 4]);
    assert_eq!((rows[0].step_seconds, rows[0].samples_per_second), (8.0, Some(2.5)));
    near(rows[1].step_seconds, 5.0, 1e-3);
    near(rows[2].step_seconds, 2.0 + 2.0, 1e-3);
    near(rows[2].efficiency, 8.0 / 4.0 / 4.0, 1e-3);
    near(rows[2].samples_per_second.unwrap(), 20.0 / 4.0, 1e-2);
}

#[test]
fn many_workers_wait_for_the_slowest() {
    // One step in ten takes twice as long: two workers meet it in 19 % of steps, a hundred nearly always.
    let mut times = vec![1.0; 9];
    times.push(2.0);
    let fast = Network { bandwidth: 1e12, ..network() };
    let rows = predict(&work(&times), &fast, LIMITS, (ScalingMode::Weak, Strategy::Data), &[2, 100]);
    near(rows[0].step_seconds, 1.19, 0.07);
    near(rows[1].step_seconds, 2.0, 0.02);
    near(rows[1].straggler_seconds, 0.9, 0.02);
    let again = predict(&work(&times), &fast, LIMITS, (ScalingMode::Weak, Strategy::Data), &[2, 100]);
    assert_eq!(rows, again);
}

#[test]
fn averages_of_weights_are_shared_by_the_steps_between_them_and_so_is_waiting() {
    let rows =
        predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Weak, Strategy::Local { every: 8 }), &[1, 2, 4]);
    assert_eq!((rows[0].step_seconds, rows[0].efficiency), (4.0, 1.0));
    // An eighth of 1 s by doubling between two, and of 2 s among four.
    near(rows[1].step_seconds, 4.0 + 1.0 / 8.0, 1e-3);
    near(rows[2].communication_seconds, 2.0 / 8.0, 1e-3);
    // Slow steps happen to all of a hundred workers in long windows, so none of them waits long for another.
    let times = [vec![1.0; 9], vec![2.0]].concat();
    let fast = Network { bandwidth: 1e12, ..network() };
    let waits = |every| {
        predict(&work(&times), &fast, LIMITS, (ScalingMode::Weak, Strategy::Local { every }), &[100])[0]
            .straggler_seconds
    };
    assert!(waits(100) < waits(10) && waits(10) < 0.5 * waits(1), "{} {} {}", waits(100), waits(10), waits(1));
}

fn step(work: &Work, network: &Network, strategy: Strategy, workers: usize) -> f64 {
    predict(work, network, LIMITS, (ScalingMode::Weak, strategy), &[workers])[0].step_seconds
}

#[test]
fn split_state_returns_weights_after_the_step_and_shares_the_optimizer() {
    // 4 s of which 2 s are the optimizer; 2 s by doubling among four.
    let job = Work { fixed: 2.0, ..work(&[4.0]) };
    near(step(&job, &network(), Strategy::Data, 4), 4.0 + 2.0, 1e-3);
    // Three quarters of the optimizer's time are saved; nothing is hidden either way here.
    near(step(&job, &network(), Strategy::Sharded, 4), 4.0 - 1.5 + 2.0, 1e-3);
    // Gradients take half of it, and 3/4 of 1 s go around the hosts.
    near(step(&job, &network(), Strategy::Central, 4), 4.0 - 1.5 + 1.0 + 0.75, 1e-3);
    assert_eq!(step(&job, &network(), Strategy::Sharded, 1), 4.0);
    // On one host, weights are there for all as soon as they are changed.
    let local = LinearCost { fixed: 0.0, per_byte: 2e-6 };
    let host = Network { per_host: 4, local, ..network() };
    near(step(&job, &host, Strategy::Sharded, 4), 2.5 + 2.0, 1e-3);
    near(step(&job, &host, Strategy::Central, 4), 2.5 + 1.0, 1e-3);
}

#[test]
fn servers_carry_what_all_workers_send() {
    let server = |servers, delay| Strategy::Server { servers, delay };
    // 8 times 1 MB into a server and out of it, at 1 MB/s.
    near(step(&work(&[4.0]), &network(), server(1, Some(0)), 8), 4.0 + 16.0, 1e-3);
    near(step(&work(&[4.0]), &network(), server(4, Some(0)), 8), 4.0 + 4.0, 1e-3);
    // Spread evenly, a server moves 8 MB each way at the same time; with many servers, a worker its own.
    near(step(&work(&[4.0]), &network(), server(1, None), 8), 8.0, 1e-3);
    near(step(&work(&[4.0]), &network(), server(8, None), 8), 4.0 + 2.0, 1e-3);
    let row = &predict(&work(&[4.0]), &network(), LIMITS, (ScalingMode::Weak, server(2, None)), &[8])[0];
    assert_eq!((row.sent_bytes, row.memory_bytes, row.collectives.len()), (1e6, 2_000_000, 0));
}

#[test]
fn noise_makes_a_step_slower_by_the_expected_maximum() {
    let fast = Network { bandwidth: 1e15, ..network() };
    let noisy = Work { noise: Some(0.05), ..work(&[1.0]) };
    assert!((step(&noisy, &fast, Strategy::Data, 1) - 1.0).abs() < 1e-9);
    // The expected maximum of 100 normal numbers is 2.508, and windows of 16 steps vary by a quarter.
    near(step(&noisy, &fast, Strategy::Data, 100), 1.0 + 0.05 * 2.508, 4e-3);
    near(step(&noisy, &fast, Strategy::Local { every: 16 }, 100), 1.0 + 0.05 * 2.508 / 4.0, 4e-3);
    let server = |delay| step(&noisy, &fast, Strategy::Server { servers: 100, delay }, 100);
    near(server(Some(0)), 1.0 + 0.05 * 2.508, 5e-3);
    near(server(None), 1.0, 1e-3);
    assert!(server(Some(4)) < server(Some(1)) && server(Some(1)) < server(Some(0)));
}

#[test]
fn drawn_steps_and_quantiles_agree() {
    let mut random = Random(5);
    let times: Vec<f64> = (0..20_000).map(|_| 1.0 + 0.05 * random.normal()).collect();
    let fast = Network { bandwidth: 1e15, ..network() };
    let (drawn, noisy) = (work(&times), Work { noise: Some(0.05), ..work(&[1.0]) });
    for workers in [2, 16, 128] {
        let [one, other] = [&drawn, &noisy].map(|work| step(work, &fast, Strategy::Data, workers));
        near(one, other, 1e-2);
    }
}

#[test]
fn long_windows_need_no_drawing() {
    let job = work(&[1.0, 1.2, 0.8, 1.0]);
    let (long, longest) = (Strategy::Local { every: 256 }, Strategy::Local { every: 257 });
    let [one, other] = [long, longest].map(|strategy| step(&job, &network(), strategy, 50));
    near(one, other, 5e-3);
    assert!(step(&job, &network(), Strategy::Local { every: usize::MAX }, 50).is_finite());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn more_noise_is_never_faster(
        noise in 0.0..0.3_f64, more in 0.0..0.3_f64, workers in 1_usize..5000, every in 1_usize..40, megabytes in 0.001..20.0_f64,
    ) {
        let links = Network { bandwidth: 1e6 * megabytes, latency: 1e-4, per_host: 2, ..network() };
        for strategy in [Strategy::Data, Strategy::Sharded, Strategy::Central, Strategy::Local { every }] {
            let of = |noise| step(&Work { noise: Some(noise), fixed: 0.1, ..work(&[1.0]) }, &links, strategy, workers);
            let (quiet, loud) = (of(noise), of(noise + more));
            proptest::prop_assert!(loud >= quiet - 1e-6 * quiet, "{strategy:?}: {loud} and {quiet}");
        }
    }

    #[test]
    fn more_noise_is_never_faster_with_servers_either(
        noise in 0.0..0.2_f64,
        more in 0.0..0.1_f64,
        workers in 1_usize..60,
        delay in 0_u64..6,
    ) {
        for delay in [Some(delay), None] {
            let strategy = Strategy::Server { servers: 2, delay };
            let of = |noise| step(&Work { noise: Some(noise), ..work(&[1.0]) }, &network(), strategy, workers);
            let (quiet, loud) = (of(noise), of(noise + more));
            proptest::prop_assert!(loud >= quiet - 1e-6 * quiet, "{strategy:?}: {loud} and {quiet}");
        }
    }

    #[test]
    fn averaging_after_every_step_is_data_parallelism(
        times in proptest::collection::vec(0.1..2.0_f64, 1..9), noise in 0.0..0.3_f64, workers in 1_usize..300,
    ) {
        for noise in [None, Some(noise)] {
            let job = Work { noise, ..work(&times) };
            let [data, local] = [Strategy::Data, Strategy::Local { every: 1 }].map(|strategy| {
                let row = predict(&job, &network(), LIMITS, (ScalingMode::Weak, strategy), &[workers]).remove(0);
                Prediction { strategy: Strategy::Data, ..row }
            });
            proptest::prop_assert_eq!(data, local);
        }
    }

    #[test]
    fn waiting_for_nobody_is_never_slower_than_waiting_for_some_or_all(
        times in proptest::collection::vec(0.1..2.0_f64, 1..9), workers in 1_usize..100, delay in 1_u64..50, servers in 1_usize..9,
    ) {
        let links = Network { latency: 1e-4, per_message: 1e-5, ..network() };
        let of = |delay| step(&work(&times), &links, Strategy::Server { servers, delay }, workers);
        let [all, some, nobody] = [Some(0), Some(delay), None].map(of);
        proptest::prop_assert!(nobody <= some + 1e-9 && some <= all + 1e-9, "{nobody} {some} {all}");
    }
}
