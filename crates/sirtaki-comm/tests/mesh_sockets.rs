//! The mesh over real sockets, plain and encrypted: results, splitting, and ranks that leave in the middle.

#![allow(clippy::unwrap_used)]

use std::{sync::Arc, thread, time::Duration};

use sirtaki_comm::{
    CommError, Communicator, Group, Reduction, Settings, Stopper,
    collective::Algorithm,
    communicator::{Connector, MeshCommunicator},
    link::connect_links,
    mesh::Mesh,
    rendezvous::{MemoryStore, Network, StoreExchange},
    secure::Secret,
};

const SIZE: usize = 4;

fn run<R: Send>(tls: bool, algorithm: Algorithm, work: impl Fn(usize, MeshCommunicator) -> R + Sync) -> Vec<R> {
    let mut settings = Settings::new(Secret::random().unwrap());
    settings.tls = tls;
    let (store, work, settings): (Arc<MemoryStore>, _, _) = (Arc::default(), &work, &settings);
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..SIZE)
            .map(|rank| {
                let mut exchange = StoreExchange::new(store.clone(), "world", rank, SIZE, Duration::from_secs(30));
                scope.spawn(move || {
                    let owned = settings.clone();
                    let connector: Connector =
                        Arc::new(move |group, exchange| connect_links(group, exchange, &owned, &Network::loopback()));
                    let group = Group::local(rank, SIZE);
                    let links = connector(&group, &mut exchange).unwrap();
                    let mesh = Mesh::new(group, links, Duration::from_secs(30), Stopper::new()).unwrap();
                    work(rank, MeshCommunicator::new(mesh, Some(algorithm), connector).unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn reduces(tls: bool) {
    for algorithm in [Algorithm::Ring, Algorithm::Doubling, Algorithm::Halving, Algorithm::Tree] {
        run(tls, algorithm, |rank, mut comm| {
            for count in [0, 1, 17, 5000, 400_003] {
                let mut data: Vec<f32> = (0..count).map(|i| (i % 100 + rank) as f32).collect();
                comm.all_reduce((&mut data).into(), Reduction::SUM).unwrap();
                assert!(
                    data.iter().enumerate().all(|(i, &x)| x == (4 * (i % 100) + 6) as f32),
                    "{algorithm:?} {count}"
                );
            }
            let mut half = comm.split(Some((rank % 2) as u64)).unwrap().unwrap();
            let mut sum = [rank as i64];
            half.all_reduce((&mut sum[..]).into(), Reduction::SUM).unwrap();
            assert_eq!(sum, [2 + 2 * (rank as i64 % 2)]);
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn all_algorithms_reduce_plain() {
    reduces(false);
}

#[test]
fn all_algorithms_reduce_over_tls() {
    reduces(true);
}

fn a_leaver_is_named(tls: bool) {
    for count in [1, 3000, 2_000_000] {
        let errors: Vec<Option<CommError>> = run(tls, Algorithm::Ring, |rank, mut comm| {
            let mut data = vec![1.0_f32; count];
            for _ in 0..if rank == 2 { 2 } else { usize::MAX } {
                if let Err(error) = comm.all_reduce((&mut data).into(), Reduction::AVERAGE) {
                    return Some(error);
                }
            }
            None
        });
        for (rank, error) in errors.iter().enumerate().filter(|(rank, _)| *rank != 2) {
            let error = error.as_ref().unwrap();
            assert_eq!(error.rank(), Some(2), "rank {rank}, {count} elements: {error}");
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named_plain() {
    a_leaver_is_named(false);
}

#[test]
fn a_rank_that_leaves_is_named_over_tls() {
    a_leaver_is_named(true);
}

#[test]
fn a_different_call_is_named() {
    for tls in [false, true] {
        for count in [1, 300_000] {
            let errors = run(tls, Algorithm::Ring, |rank, mut comm| {
                let mut data = vec![1.0_f32; count + usize::from(rank == 2)];
                comm.all_reduce((&mut data).into(), Reduction::SUM).unwrap_err()
            });
            for error in &errors {
                assert!(matches!(error, CommError::Mismatch { rank: 2, .. }), "tls {tls}, {count}: {error}");
            }
        }
    }
}
