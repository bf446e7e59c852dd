//! The mesh communicator passes all checks, over good links and over bad ones, by every algorithm.

#![allow(clippy::unwrap_used, clippy::needless_range_loop, reason = "tests panic to fail; two ranks index one table")]

use std::{sync::Arc, time::Duration};

use sirtaki_comm::{
    Communicator, Group, Stopper,
    collective::Algorithm,
    communicator::{Connector, MeshCommunicator},
    link::Link,
    mesh::Mesh,
};
use sirtaki_tests::links::{
    flaky::{Flaky, Troubles},
    pipe::{Hub, Pipe, pipe},
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// All ranks of a group over pipes of this capacity, each end wrapped.
fn ranks(
    size: usize,
    capacity: usize,
    algorithm: Option<Algorithm>,
    wrap: impl Fn(Pipe) -> Box<dyn Link> + Clone + Send + Sync + 'static,
) -> Vec<Box<dyn Communicator>> {
    let mut links: Vec<Vec<Option<Box<dyn Link>>>> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for (low, high) in (0..size).flat_map(|low| (low + 1..size).map(move |high| (low, high))) {
        let (one, other) = pipe(capacity);
        links[low][high] = Some(wrap(one));
        links[high][low] = Some(wrap(other));
    }
    let hub = Hub::new(capacity);
    let connector: Connector = Arc::new(move |group, exchange| {
        let pipes = hub.connect(group, exchange)?;
        Ok(pipes.into_iter().map(|pipe| pipe.map(&wrap)).collect())
    });
    let rank = |(rank, links)| {
        let mesh = Mesh::new(Group::local(rank, size), links, TIMEOUT, Stopper::new()).expect("one link per peer");
        Box::new(MeshCommunicator::new(mesh, algorithm, connector.clone()).unwrap()) as Box<dyn Communicator>
    };
    links.into_iter().enumerate().map(rank).collect()
}

fn good(size: usize, algorithm: Option<Algorithm>) -> Vec<Box<dyn Communicator>> {
    ranks(size, 1 << 16, algorithm, |pipe| Box::new(pipe))
}

/// Pieces of odd lengths, through pipes that hold little more than a header.
fn short(size: usize) -> Vec<Box<dyn Communicator>> {
    ranks(size, 5000, None, |pipe| {
        let troubles = Troubles { seed: 3, short: 4000, ..Troubles::default() };
        Box::new(Flaky::new(pipe, troubles))
    })
}

/// Pauses at any point.
fn slow(size: usize) -> Vec<Box<dyn Communicator>> {
    ranks(size, 1 << 16, None, |pipe| {
        let troubles = Troubles { seed: 7, pause: Duration::from_micros(50), ..Troubles::default() };
        Box::new(Flaky::new(pipe, troubles))
    })
}

sirtaki_tests::conformance!(chosen, |size| good(size, None), [1, 2, 3, 4, 7]);
sirtaki_tests::conformance!(ring, |size| good(size, Some(Algorithm::Ring)), [2, 3, 8]);
sirtaki_tests::conformance!(doubling, |size| good(size, Some(Algorithm::Doubling)), [2, 3, 4, 7]);
sirtaki_tests::conformance!(halving, |size| good(size, Some(Algorithm::Halving)), [2, 3, 4, 7]);
sirtaki_tests::conformance!(tree, |size| good(size, Some(Algorithm::Tree)), [2, 3, 5]);
sirtaki_tests::conformance!(direct, |size| good(size, Some(Algorithm::Direct)), [2, 3]);
sirtaki_tests::conformance!(short_pieces, short, [2, 3, 4]);
sirtaki_tests::conformance!(pauses, slow, [2, 3]);
