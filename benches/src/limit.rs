//! The machine's own limit: processes that each read and write the same bytes in private memory at the same time.
//!
//! No all-reduce of this machine can be faster than its processes adding one buffer to another side by side. They
//! start every round together, by a counter in shared memory.

use std::{hint::spin_loop, time::Duration};

use sirtaki_comm::{
    DType, Plan, Reduction, kernel,
    shm::{Segment, Signal},
};

use crate::{protocol::BenchError, serve::Work};

/// What is done with the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// `a[i] += b[i]`.
    Add,
    /// `a[i] = b[i]`.
    Copy,
}

/// How often to read the counter before sleeping on it.
const SPINS: u32 = 2000;
/// Bytes of the shared memory: one counter.
const BYTES: usize = 4096;

/// One of the processes.
#[derive(Debug)]
pub struct Limit {
    segment: Segment,
    size: u32,
    round: u32,
    task: Task,
    other: Vec<f32>,
}

impl Limit {
    /// The first of `size` processes.
    pub fn create(size: usize, task: Task) -> Result<Self, BenchError> {
        Ok(Self::new(Segment::create(BYTES)?, size, task))
    }

    /// Another one, given the first one's [`Limit::address`].
    pub fn join(address: (u32, i32), size: usize, task: Task) -> Result<Self, BenchError> {
        Ok(Self::new(Segment::open(address.0, address.1, BYTES)?, size, task))
    }

    fn new(segment: Segment, size: usize, task: Task) -> Self {
        Self { segment, size: size as u32, round: 0, task, other: Vec::new() }
    }

    /// Where the others find the counter.
    pub fn address(&self) -> (u32, i32) {
        self.segment.address()
    }

    fn meet(&mut self) {
        self.round = self.round.wrapping_add(self.size);
        // SAFETY: the segment starts with a signal, for which zeroed memory is valid, and outlives this reference.
        let arrived = unsafe { &*self.segment.start().cast::<Signal>() };
        arrived.advance();
        let mut turns = 0;
        loop {
            let seen = arrived.get();
            if self.round.wrapping_sub(seen) as i32 <= 0 {
                return;
            }
            turns += 1;
            if turns < SPINS { spin_loop() } else { arrived.sleep(seen, Duration::from_millis(10)) }
        }
    }
}

impl Work for Limit {
    fn barrier(&mut self) -> Result<(), BenchError> {
        self.other.clear();
        self.meet();
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), BenchError> {
        self.meet();
        Ok(())
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        if self.other.len() != data.len() {
            self.other = vec![1.0; data.len()];
        }
        match self.task {
            Task::Copy => data.copy_from_slice(&self.other),
            Task::Add => {
                let plan = Plan::new(DType::F32, Reduction::SUM, 2);
                kernel::fold(&plan, as_bytes_mut(data), as_bytes(&self.other));
            }
        }
        Ok(())
    }
}

fn as_bytes(data: &[f32]) -> &[u8] {
    sirtaki_comm::Slice::from(data).bytes()
}

fn as_bytes_mut(data: &mut [f32]) -> &mut [u8] {
    // SAFETY: every byte of an `f32` may have any value, and the borrow is passed on.
    unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) }
}
