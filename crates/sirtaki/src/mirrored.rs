//! A closure on several devices of one process, each a thread: the ranks of a job that need not be processes.
//!
//! Each thread has an engine of its own, so everything that works on processes works here, with the same code and to the
//! same bits; threads of a process and other processes of a host reach each other through the same shared memory. What
//! belongs to a process as a whole, such as Burn's generator of random numbers on CPUs, is common to its threads, which
//! is why layers that draw take [streams of their own](crate::random).
//!
//! Rejected: one engine for all devices of a process. It would need a second way to hand in tensors, and save only
//! threads that sleep.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use sirtaki_comm::{rendezvous::MemoryStore, secure::Secret};
use sirtaki_engine::job::{Job, JobError, Meeting, Position};

use crate::{
    Error, World,
    world::{discover, init},
};

/// Runs `work` on this many devices of this process at the same time, each a rank with a thread of its own, and returns
/// their results in order, or the error that came first.
///
/// It is [`init`](crate::init) and a closure: in a process that a launcher started, the devices of all its processes are
/// ranks of one world, so four processes with two devices each are eight ranks. On a CPU a device is a thread; with feature
/// `cuda`, [`World::device`] gives every rank of a host its own GPU.
///
/// Burn's own random numbers on a CPU are common to the threads of a process. Initial weights are made equal by
/// `World::broadcast` as always; dropout that depends on nothing but the data is
/// [`ShardDropout`](crate::ShardDropout).
///
/// # Panics
/// If `devices` is zero, or if `work` panics on one of them.
///
/// ```
/// let sums = sirtaki::mirrored(4, |world| world.sum(world.rank() as f64))?;
/// assert_eq!(sums, [6.0; 4]);
/// # Ok::<_, sirtaki::Error>(())
/// ```
pub fn mirrored<T, E>(devices: usize, work: impl Fn(&World) -> Result<T, E> + Sync) -> Result<Vec<T>, E>
where
    T: Send,
    E: From<Error> + Send,
{
    assert!(devices > 0, "a process computes on at least one device");
    if devices == 1 {
        return work(&init()?).map(|result| vec![result]);
    }
    let hall = Hall::new(devices)?;
    let first = Mutex::new(None);
    let fail = |failure: Failure<E>| {
        first.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    };
    let device = |number| {
        let world = hall.enter(number).map_err(|error| fail(Failure::Error(error.into()))).ok()?;
        // A failure is noted before the others notice that this one is gone.
        match catch_unwind(AssertUnwindSafe(|| work(&world))) {
            Ok(result) => result.map_err(|error| fail(Failure::Error(error))).ok(),
            Err(panic) => {
                fail(Failure::Panic(panic));
                None
            }
        }
    };
    let results: Option<Vec<T>> = thread::scope(|scope| {
        let device = &device;
        let start = |number| {
            let thread = thread::Builder::new().name(format!("device {number}"));
            thread.spawn_scoped(scope, move || device(number))
        };
        let threads: Vec<_> = (0..devices).map(start).collect();
        let result = |thread: std::io::Result<thread::ScopedJoinHandle<'_, Option<T>>>| match thread {
            Ok(thread) => thread.join().ok().flatten(),
            Err(error) => {
                fail(Failure::Error(no_thread(&error).into()));
                None
            }
        };
        // All of them are waited for, whichever fails.
        threads.into_iter().map(result).collect::<Vec<_>>().into_iter().collect()
    });
    match (results, first.into_inner().unwrap_or_else(PoisonError::into_inner)) {
        (_, Some(Failure::Panic(panic))) => resume_unwind(panic),
        (_, Some(Failure::Error(error))) => Err(error),
        (results, None) => Ok(results.unwrap_or_default()),
    }
}

/// Why a device has no result.
enum Failure<E> {
    Error(E),
    Panic(Box<dyn Any + Send>),
}

/// Where the devices of this process meet each other, and those of other processes.
struct Hall {
    job: Job,
    devices: usize,
    /// For a process that nobody started as part of a job.
    alone: Option<(Arc<MemoryStore>, Secret)>,
}

impl Hall {
    fn new(devices: usize) -> crate::Result<Self> {
        let job = discover()?;
        let alone = match &job.place.meeting {
            Meeting::Alone => Some((Arc::new(MemoryStore::new()), Secret::random().map_err(JobError::from)?)),
            Meeting::Mpi(_) => {
                let problem = format!("MPI knows one rank per process, so a process cannot be {devices}");
                return Err(Error::setting(problem, "use one device per process, or start it with `sirtaki run`"));
            }
            _ => None,
        };
        Ok(Self { job, devices, alone })
    }

    /// The world of one device, after all others have come.
    fn enter(&self, device: usize) -> crate::Result<World> {
        let job = self.job.clone();
        let joined = match &self.alone {
            Some((store, secret)) => {
                job.meet(store.clone(), Position { rank: device, size: self.devices }, Some(secret))?
            }
            None => job.of_device(device, self.devices).join()?,
        };
        Ok(World::of(joined))
    }
}

fn no_thread(error: &std::io::Error) -> Error {
    let hint = "use fewer devices, or raise the limit of threads (`ulimit -u`)";
    Error::setting(format!("cannot start a thread for a device: {error}"), hint)
}
