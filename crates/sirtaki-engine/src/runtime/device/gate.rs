//! The order in which groups of ranks use one device.
//!
//! NCCL's kernels wait on the device for those of other ranks. If two ranks queued the kernels of two groups in
//! opposite orders, and the device had room for only one of them at a time, both would wait for ever. So all ranks
//! queue them in the same order: a group of the whole job queues whenever it likes and counts; any other group queues
//! when all of its ranks hold their gates at the same time and have the same count. Ranks that do not manage that let
//! go and try again a little later, each after a time of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use sirtaki_comm::{CommError, Communicator, ReduceOp, Reduction, SliceMut};

/// The longest time between two tries.
const LONGEST: Duration = Duration::from_micros(400);

/// What queues work on one device of this process. A device belongs to the process, and so does this.
#[derive(Debug, Default)]
struct Device {
    /// Whether a group of the whole job uses the device.
    claimed: bool,
    /// How often that group has queued something.
    queued: i64,
}

type Devices = Mutex<HashMap<[u8; 16], Arc<Mutex<Device>>>>;

fn device(uuid: [u8; 16]) -> Arc<Mutex<Device>> {
    static DEVICES: std::sync::OnceLock<Devices> = std::sync::OnceLock::new();
    let mut devices = DEVICES.get_or_init(Devices::default).lock().unwrap_or_else(PoisonError::into_inner);
    devices.entry(uuid).or_default().clone()
}

/// A group's entrance to a device.
#[derive(Debug)]
pub(super) struct Gate {
    device: Arc<Mutex<Device>>,
    /// Whether the group has to ask all its ranks.
    contended: bool,
    /// Makes waits differ in length between ranks.
    dice: u64,
}

impl Gate {
    /// The entrance to a device for a group of some ranks, or of all of them.
    pub(super) fn new(uuid: [u8; 16], rank: usize) -> Self {
        Self { device: device(uuid), contended: true, dice: rank as u64 + 1 }
    }

    /// Whether another group of the whole job uses the device.
    pub(super) fn is_claimed(&self) -> bool {
        lock(&self.device).claimed
    }

    /// What all ranks have found: whether they have to ask each other.
    pub(super) fn settle(&mut self, contended: bool) {
        self.contended = contended;
        if !contended {
            lock(&self.device).claimed = true;
        }
    }

    /// Queues something while nobody else does.
    pub(super) fn pass<T>(
        &mut self,
        comm: &mut dyn Communicator,
        queue: impl FnOnce() -> Result<T, CommError>,
    ) -> Result<T, CommError> {
        if !self.contended {
            let mut device = lock(&self.device);
            device.queued += 1;
            return queue();
        }
        loop {
            let held = self.device.try_lock().ok();
            let mine = held.as_ref().map_or([0, 0, 0], |device| [1, device.queued, -device.queued]);
            let mut all = mine;
            comm.all_reduce(SliceMut::from(all.as_mut_slice()), Reduction::new(ReduceOp::Min))?;
            if all[0] == 1 && all[1] == -all[2] {
                return queue();
            }
            drop(held);
            thread::sleep(self.pause());
        }
    }

    /// A time that differs from those of other ranks.
    fn pause(&mut self) -> Duration {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        LONGEST.mul_f64((self.dice >> 40) as f64 / f64::from(1 << 24))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if !self.contended {
            lock(&self.device).claimed = false;
        }
    }
}

fn lock(device: &Mutex<Device>) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}
