//! Costs of algorithms whose messages can be counted.

use super::*;

/// 1 ms and 1 MB/s of data.
fn network(per_host: usize, forced: Option<Algorithm>) -> Network {
    let local = LinearCost { fixed: 0.5, per_byte: 1e-6 };
    let bandwidth = 1e6 / PAYLOAD;
    Network { latency: 1e-3, bandwidth, rails: 1, spine: None, per_host, local, per_message: 0.0, forced }
}

fn seconds(algorithm: Algorithm, bytes: usize, workers: usize) -> f64 {
    network(1, Some(algorithm)).all_reduce(bytes, workers).seconds
}

fn near(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} and {other}");
}

#[test]
fn one_worker_has_nobody_to_talk_to() {
    near(network(1, None).all_reduce(1 << 20, 1).seconds, 0.0);
    near(network(1, None).vote(1), 0.0);
}

#[test]
fn costs_are_those_of_the_algorithms() {
    // 6 steps of 1 ms and of 10 kB.
    near(seconds(Algorithm::Ring, 40_000, 4), 6.0 * (0.001 + 0.01));
    // 8 MiB are 8 windows of 4 pieces of 256 KiB.
    near(seconds(Algorithm::Ring, 8 << 20, 4), 8.0 * 6.0 * (0.001 + 0.262_144));
    near(seconds(Algorithm::Doubling, 1000, 4), 2.0 * 0.002);
    near(seconds(Algorithm::Doubling, 1000, 5), 4.0 * 0.002);
    // Halves, quarters and back: 3/4 of everything each way.
    near(seconds(Algorithm::Halving, 40_000, 4), 4.0 * 0.001 + 2.0 * 0.03);
    near(seconds(Algorithm::Tree, 1000, 4), 4.0 * 0.002);
    near(seconds(Algorithm::Tree, 1000, 5), 6.0 * 0.002);
    near(seconds(Algorithm::Direct, 40_000, 4), 2.0 * (0.001 + 0.03));
    // Two more messages than the one whose processor time is in the latency, each way.
    let busy = Network { per_message: 0.5, ..network(1, Some(Algorithm::Direct)) };
    near(busy.all_reduce(40_000, 4).seconds, 2.0 * (0.001 + 0.03) + 2.0 * 2.0 * 0.5);
    near(network(2, None).gather_between_hosts(80_000, 8), 3.0 * (0.001 + 0.02));
    near(network(8, None).gather_between_hosts(80_000, 8), 0.0);
}

#[test]
fn the_algorithm_is_the_one_the_communicator_would_choose() {
    let chosen = |bytes, workers, per_host| network(per_host, None).all_reduce(bytes, workers).algorithm;
    assert_eq!(chosen(1000, 4, 1), Algorithm::Doubling);
    assert_eq!(chosen(100_000, 4, 1), Algorithm::Halving);
    assert_eq!(chosen(10 << 20, 4, 1), Algorithm::Ring);
    assert_eq!(chosen(1000, 4, 4), Algorithm::Flat);
    assert_eq!(chosen(1000, 8, 4), Algorithm::Layered);
    // A single host has shared memory, whatever is forced between hosts.
    assert_eq!(network(4, Some(Algorithm::Ring)).all_reduce(1000, 4).algorithm, Algorithm::Flat);
}

#[test]
fn workers_of_a_host_share_its_link() {
    // Inside: 0.5 s and 1 µs a byte. Across 2 hosts: each worker its half, by a ring over half the link.
    let expected = 0.5 + 0.2 + 2.0 * (0.001 + 0.05 / 0.5);
    near(network(2, None).all_reduce(200_000, 4).seconds, expected);
    // Around a ring only one of them sends to another host.
    near(network(2, Some(Algorithm::Ring)).all_reduce(40_000, 4).seconds, 6.0 * 0.011);
    near(network(2, None).vote(8), 0.5 + 2.0 * (0.001 + 32e-6));
    near(network(2, None).vote(2), 0.5);
}

#[test]
fn no_link_is_faster_than_a_process() {
    let fast = Network { bandwidth: 1e12, latency: 0.0, ..network(1, Some(Algorithm::Tree)) };
    near(fast.all_reduce(3_500_000_000, 2).seconds, 2.0);
}

#[test]
fn a_ring_leaves_each_group_once_and_distant_partners_all_at_once() {
    // Groups of two hosts, out of which goes half of what their links could carry.
    let spine = Spine { hosts: 2, bandwidth: 1e6 / PAYLOAD, latency: 0.0 };
    let of = |algorithm, workers| {
        Network { spine: Some(spine), ..network(1, Some(algorithm)) }.all_reduce(40_000, workers).seconds
    };
    for (algorithm, workers) in [(Algorithm::Ring, 4), (Algorithm::Tree, 4), (Algorithm::Halving, 2)] {
        near(of(algorithm, workers), seconds(algorithm, 40_000, workers));
    }
    // Halves across at half the speed, quarters inside.
    near(of(Algorithm::Halving, 4), 4.0 * 0.001 + 2.0 * (0.02 / 0.5 + 0.01));
    near(of(Algorithm::Doubling, 4), 0.001 + 0.04 + 0.001 + 0.04 / 0.5);
    // Two hosts send half of theirs each to two others, through a link as fast as one of theirs.
    near(of(Algorithm::Direct, 4), 2.0 * (0.001 + 0.04));
}

#[test]
fn far_groups_cost_latency_where_they_are_crossed() {
    let spine = Spine { hosts: 2, bandwidth: 1e5 / PAYLOAD, latency: 1.0 };
    let far = |algorithm| Network { spine: Some(spine), ..network(1, Some(algorithm)) };
    // Twice around, over both groups' lines; each of six steps takes ten times as long for its bytes.
    near(far(Algorithm::Ring).all_reduce(40_000, 4).seconds, 2.0 * (3.0 * (0.001 + 0.1) + 2.0));
    near(far(Algorithm::Tree).all_reduce(1000, 4).seconds, 2.0 * (0.002 + 0.011 + 1.0));
    near(far(Algorithm::Ring).gather_between_hosts(80_000, 4), 3.0 * (0.001 + 0.2) + 2.0);
    assert_eq!(far(Algorithm::Ring).all_reduce(40_000, 2).seconds, seconds(Algorithm::Ring, 40_000, 2));
}

#[test]
fn rails_are_used_by_as_many_streams() {
    let railed = |rails| Network { rails, ..network(2, None) };
    let one = network(2, None).all_reduce(200_000, 4).seconds;
    near(railed(1).all_reduce(200_000, 4).seconds, one);
    // Each worker's half over a rail of its own; a third rail has nobody.
    near(railed(2).all_reduce(200_000, 4).seconds, 0.5 + 0.2 + 2.0 * (0.001 + 0.05));
    near(railed(3).all_reduce(200_000, 4).seconds, railed(2).all_reduce(200_000, 4).seconds);
}

proptest::proptest! {
    #[test]
    fn sharing_links_is_never_faster(
        bytes in 1_usize..100_000_000, workers in 1_usize..2000, per_host in 1_usize..9, hosts in 1_usize..40, factor in 1.0..16.0_f64,
    ) {
        let algorithms = [Algorithm::Ring, Algorithm::Doubling, Algorithm::Halving, Algorithm::Tree, Algorithm::Direct];
        for forced in algorithms.map(Some).into_iter().chain([None]) {
            let flat = network(per_host, forced);
            let spine = Spine { hosts, bandwidth: hosts as f64 * flat.bandwidth / factor, latency: 0.0 };
            let [free, shared] = [None, Some(spine)].map(|spine| {
                Network { spine, ..flat }.all_reduce(bytes, workers).seconds
            });
            proptest::prop_assert!(shared >= free * (1.0 - 1e-9), "{forced:?}: {shared} and {free}");
            let railed = Network { rails: 4, ..flat }.all_reduce(bytes, workers).seconds;
            proptest::prop_assert!(railed <= free * (1.0 + 1e-9), "{forced:?}: {railed} and {free}");
        }
    }
}
