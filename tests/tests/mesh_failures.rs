//! Ranks as threads over pipes and sockets, with things going wrong: everybody must report the same, and name the right
//! rank.

#![allow(clippy::unwrap_used, reason = "an assertion that fails has to panic")]

use std::{
    io::{self, IoSlice, Read, Write},
    net::Shutdown,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::{Arc, Barrier, atomic::AtomicU64},
    thread,
    time::Duration,
};

use sirtaki_comm::{
    CommError, Communicator, Group, Reduction, Stopper,
    collective::Algorithm,
    communicator::{Connector, MeshCommunicator},
    link::{Bell, Link, LinkError},
    mesh::Mesh,
};
use sirtaki_tests::links::{
    flaky::{Flaky, Troubles},
    pipe::{Hub, Pipe, pipe},
};

/// Small enough that larger payloads stand half sent.
const CAPACITY: usize = 4096;
/// Generous, because a loaded machine may hold up a rank that is not meant to be silent.
const PATIENCE: Duration = Duration::from_secs(30);

type Links = Vec<Option<Box<dyn Link>>>;

fn pairs(size: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..size).flat_map(move |low| (low + 1..size).map(move |high| (low, high)))
}

fn pipes(size: usize, mut wrap: impl FnMut(usize, usize, Pipe) -> Box<dyn Link>) -> Vec<Links> {
    let mut all: Vec<Links> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for (low, high) in pairs(size) {
        let (one, other) = pipe(CAPACITY);
        all[low][high] = Some(wrap(low, high, one));
        all[high][low] = Some(wrap(high, low, other));
    }
    all
}

fn plain(size: usize) -> Vec<Links> {
    pipes(size, |_, _, pipe| Box::new(pipe))
}

/// A link that rings a descriptor.
struct Socket(UnixStream);

fn moved(result: io::Result<usize>) -> Result<usize, LinkError> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        other => Ok(other?),
    }
}

impl Link for Socket {
    fn push(&mut self, parts: &[IoSlice<'_>]) -> Result<usize, LinkError> {
        moved(self.0.write_vectored(parts))
    }

    fn pull(&mut self, limit: usize, sink: &mut dyn FnMut(&[u8])) -> Result<usize, LinkError> {
        let mut piece = vec![0; limit.min(5000)];
        let count = self.fill(&mut piece)?;
        if count > 0 {
            sink(&piece[..count]);
        }
        Ok(count)
    }

    fn fill(&mut self, into: &mut [u8]) -> Result<usize, LinkError> {
        match self.0.read(into) {
            Ok(0) if !into.is_empty() => Err(LinkError::Closed("it closed the socket".into())),
            result => moved(result),
        }
    }

    fn bell(&self) -> Bell<'_> {
        Bell::Descriptor(self.0.as_fd())
    }

    fn close(&mut self) {
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

fn sockets(size: usize) -> Vec<Links> {
    let mut all: Vec<Links> = (0..size).map(|_| (0..size).map(|_| None).collect()).collect();
    for (low, high) in pairs(size) {
        let (one, other) = UnixStream::pair().unwrap();
        for (from, to, socket) in [(low, high, one), (high, low, other)] {
            socket.set_nonblocking(true).unwrap();
            all[from][to] = Some(Box::new(Socket(socket)));
        }
    }
    all
}

const BOTH: [fn(usize) -> Vec<Links>; 2] = [plain, sockets];

fn connector() -> Connector {
    let hub = Hub::new(CAPACITY);
    Arc::new(move |group, exchange| {
        let boxed = |pipe: Option<Pipe>| pipe.map(|pipe| Box::new(pipe) as Box<dyn Link>);
        Ok(hub.connect(group, exchange)?.into_iter().map(boxed).collect())
    })
}

fn run<R: Send>(
    links: Vec<Links>,
    timeout: Duration,
    algorithm: Option<Algorithm>,
    work: impl Fn(usize, MeshCommunicator) -> R + Sync,
) -> Vec<R> {
    let size = links.len();
    let (work, connector) = (&work, connector());
    thread::scope(|scope| {
        let ranks: Vec<_> = (links.into_iter().enumerate())
            .map(|(rank, links)| {
                let connector = connector.clone();
                scope.spawn(move || {
                    let mesh = Mesh::new(Group::local(rank, size), links, timeout, Stopper::new()).unwrap();
                    work(rank, MeshCommunicator::new(mesh, algorithm, connector).unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// All-reduces until something goes wrong.
fn reduce_on(mut comm: MeshCommunicator, count: usize) -> CommError {
    let mut data = vec![1.0_f32; count];
    loop {
        if let Err(error) = comm.all_reduce((&mut data).into(), Reduction::AVERAGE) {
            let again = comm.barrier().unwrap_err();
            assert_eq!(again.to_string(), error.to_string(), "the first error stays");
            return error;
        }
    }
}

#[test]
fn a_rank_that_dies_in_mid_payload_is_named_by_all() {
    for algorithm in [Algorithm::Ring, Algorithm::Doubling, Algorithm::Halving, Algorithm::Tree] {
        for bytes in [100, 1000, 5000, 50_000, 50_001, 100_003] {
            let life = Arc::new(AtomicU64::new(bytes));
            let links = pipes(4, |from, to, pipe| {
                let life = (from == 2).then(|| life.clone());
                Box::new(Flaky::new(pipe, Troubles { seed: to as u64, life, ..Troubles::default() }))
            });
            let errors = run(links, PATIENCE, Some(algorithm), |rank, comm| (rank, reduce_on(comm, 3000)));
            for (rank, error) in errors.into_iter().filter(|&(rank, _)| rank != 2) {
                let named = matches!(error, CommError::PeerLost { rank: 2, .. });
                assert!(named, "rank {rank}, {algorithm:?}, {bytes} bytes: {error}");
            }
        }
    }
}

#[test]
fn a_rank_that_leaves_is_named_by_all() {
    for (links, count) in BOTH.into_iter().flat_map(|links| [1, 3000, 500_000].map(|count| (links, count))) {
        let errors = run(links(4), PATIENCE, Some(Algorithm::Ring), |rank, mut comm| {
            if rank != 2 {
                return Some(reduce_on(comm, count));
            }
            comm.all_reduce((&mut vec![1.0_f32; count]).into(), Reduction::AVERAGE).unwrap();
            None
        });
        for error in errors.into_iter().flatten() {
            assert_eq!(error.rank(), Some(2), "{error}");
            assert!(error.to_string().contains("left the group"), "{error}");
        }
    }
}

#[test]
fn a_silent_rank_is_named_by_all() {
    let timeout = Duration::from_millis(3000);
    let cases = [(Algorithm::Ring, 1), (Algorithm::Ring, 500_000), (Algorithm::Tree, 10)];
    for (links, (algorithm, count)) in BOTH.into_iter().flat_map(|links| cases.map(|case| (links, case))) {
        let reported = Barrier::new(4);
        let errors = run(links(4), timeout, Some(algorithm), |rank, mut comm| {
            comm.barrier().unwrap();
            if rank == 3 {
                reported.wait();
                return comm.barrier().unwrap_err();
            }
            // They do not all begin to wait at the same time.
            thread::sleep(timeout * rank as u32 / 8);
            let error = reduce_on(comm, count);
            reported.wait();
            error
        });
        for error in &errors {
            assert!(matches!(error, CommError::Timeout { rank: 3, .. }), "{algorithm:?}, {count}: {error}");
            assert_eq!(error.to_string(), errors[0].to_string());
        }
    }
}

#[test]
fn a_slow_rank_is_not_taken_for_a_silent_one() {
    // Each wait stays far below the limit, all of them together do not.
    let timeout = Duration::from_secs(8);
    let results = run(plain(3), timeout, Some(Algorithm::Ring), |rank, mut comm| {
        for round in 0..6 {
            if round % 3 == rank {
                thread::sleep(timeout / 4);
            }
            let mut data = vec![1_i64; 10];
            comm.all_reduce((&mut data).into(), Reduction::SUM)?;
            assert_eq!(data, [3; 10]);
        }
        Ok::<_, CommError>(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn the_rank_that_calls_something_else_is_named_by_all() {
    type Odd = fn(&mut MeshCommunicator) -> Result<(), CommError>;
    let odd_calls: [(&str, Odd); 5] = [
        ("all_reduce(sum) of 11 f32", |comm| comm.all_reduce((&mut vec![1.0_f32; 11]).into(), Reduction::SUM)),
        ("all_reduce(sum) of 10 i32", |comm| comm.all_reduce((&mut vec![1_i32; 10]).into(), Reduction::SUM)),
        ("barrier", |comm| comm.barrier()),
        ("broadcast of 10 f32 with root 1", |comm| comm.broadcast((&mut vec![1.0_f32; 10]).into(), 1)),
        ("scale factors", |comm| comm.all_reduce((&mut vec![1.0_f32; 10]).into(), Reduction::SUM.scaled(2.0, 1.0))),
    ];
    for (links, size) in BOTH.into_iter().flat_map(|links| [2, 3, 4, 7].map(|size| (links, size))) {
        for algorithm in [Algorithm::Ring, Algorithm::Doubling, Algorithm::Tree] {
            for (text, call) in odd_calls {
                let errors = run(links(size), PATIENCE, Some(algorithm), |rank, mut comm| {
                    comm.barrier().unwrap();
                    let usual =
                        |comm: &mut MeshCommunicator| comm.all_reduce((&mut vec![1.0_f32; 10]).into(), Reduction::SUM);
                    let result = if rank == 1 { call(&mut comm) } else { usual(&mut comm) };
                    result.unwrap_err()
                });
                for error in &errors {
                    assert_eq!(error.rank(), Some(1), "{size} ranks, {text}: {error}");
                    assert!(matches!(error, CommError::Mismatch { .. }), "{error}");
                    assert!(error.to_string().contains(text), "{text}: {error}");
                    assert_eq!(error.to_string(), errors[0].to_string());
                }
            }
        }
    }
}

#[test]
fn different_roots_are_noticed_by_all() {
    type Rooted = fn(&mut MeshCommunicator, usize) -> Result<(), CommError>;
    let calls: [Rooted; 4] = [
        |comm, root| comm.broadcast((&mut vec![1.0_f32; 5000]).into(), root),
        |comm, root| comm.reduce((&mut vec![1.0_f32; 5000]).into(), Reduction::SUM, root),
        |comm, root| {
            let mine = if comm.group().rank() == root { 3 * comm.group().size() } else { 3 };
            comm.gather((&mut vec![1_u8; mine]).into(), &vec![3; comm.group().size()], root)
        },
        |comm, root| {
            let mine = if comm.group().rank() == root { 3 * comm.group().size() } else { 3 };
            comm.scatter((&mut vec![1_u8; mine]).into(), &vec![3; comm.group().size()], root)
        },
    ];
    for (links, size) in BOTH.into_iter().flat_map(|links| [2, 3, 5].map(|size| (links, size))) {
        for call in calls {
            let errors = run(links(size), PATIENCE, None, |rank, mut comm| {
                comm.barrier().unwrap();
                call(&mut comm, if rank == 1 { 1 } else { 0 }).unwrap_err()
            });
            for error in &errors {
                assert_eq!(error.rank(), Some(1), "{size} ranks: {error}");
                assert!(error.to_string().contains("with root 1"), "{error}");
                assert_eq!(error.to_string(), errors[0].to_string());
            }
        }
    }
}

#[test]
fn a_stop_ends_the_wait_and_reaches_all() {
    for links in BOTH {
        let errors = run(links(3), PATIENCE, None, |rank, mut comm| {
            if rank == 0 {
                let stopper = comm.stopper();
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(100));
                    stopper.stop("the user pressed a key");
                });
                return comm.receive((&mut vec![0_u8; 1]).into(), 1).unwrap_err();
            }
            comm.barrier().unwrap_err()
        });
        for error in errors {
            assert_eq!(error.to_string(), "stopped: the user pressed a key");
        }
    }
}

#[test]
fn a_panic_is_told_to_the_others() {
    let mut links = plain(2).into_iter();
    let mut mesh = |rank| {
        let mesh = Mesh::new(Group::local(rank, 2), links.next().unwrap(), PATIENCE, Stopper::new()).unwrap();
        MeshCommunicator::new(mesh, None, connector()).unwrap()
    };
    let (dying, mut waiting) = (mesh(0), mesh(1));
    let dead = thread::spawn(move || {
        let _comm = dying;
        panic!("on purpose");
    });
    assert!(dead.join().is_err());
    let error = waiting.barrier().unwrap_err();
    assert!(error.rank() == Some(0) && error.to_string().contains("panicked"), "{error}");
}

#[test]
fn a_wrong_count_between_two_ranks_is_an_error() {
    let errors = run(plain(2), PATIENCE, None, |rank, mut comm| {
        let mut data = vec![0_u8; 10 + rank];
        if rank == 0 { comm.send((&data).into(), 1) } else { comm.receive((&mut data).into(), 0) }
            .and_then(|()| comm.barrier())
            .unwrap_err()
    });
    for error in errors {
        assert!(error.to_string().contains("send/receive of 10 u8") && error.to_string().contains("11 u8"), "{error}");
    }
}

#[test]
fn the_last_call_succeeds_though_others_have_left() {
    for links in (0..20).flat_map(|_| BOTH) {
        let results = run(links(5), PATIENCE, None, |_, mut comm| comm.barrier());
        results.into_iter().for_each(|result| result.unwrap());
    }
}
