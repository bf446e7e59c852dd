//! The peer's side: wait for an order, run it, answer.

use std::{path::Path, time::Instant};

use sirtaki_comm::{Buffer, Communicator, Reduction, SliceMut};

use crate::protocol::{BenchError, Hello, Lines, Order, Times};

/// Untimed calls before the timed ones.
const WARM_UP: usize = 2;

/// The elements a peer works on.
pub enum Memory {
    /// Private to this process.
    Private(Vec<f32>),
    /// Provided by the communicator.
    Shared(Buffer),
}

impl Memory {
    /// The elements.
    pub fn elements(&mut self) -> &mut [f32] {
        match self {
            Memory::Private(elements) => elements,
            Memory::Shared(buffer) => bytemuck::cast_slice_mut(buffer),
        }
    }
}

/// What a peer can do with a buffer; the time of [`Work::run`] is measured.
pub trait Work {
    /// Zeroes to work on. All processes call it together.
    fn memory(&mut self, elements: usize) -> Result<Memory, BenchError> {
        Ok(Memory::Private(vec![0.0; elements]))
    }

    /// Returns when all processes have come here.
    fn barrier(&mut self) -> Result<(), BenchError>;

    /// Called before every timed call, outside the measured time.
    fn prepare(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// One call over the whole buffer.
    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError>;
}

/// Answers orders until the end.
pub fn answer(socket: &Path, hello: &Hello, work: &mut dyn Work) -> Result<(), BenchError> {
    let mut lines = Lines::connect(socket)?;
    lines.write(hello)?;
    while let Some(order) = lines.read::<Order>()?.filter(|order| !order.end) {
        let micros = measure(work, &order)?;
        lines.write(&Times { micros })?;
    }
    Ok(())
}

fn measure(work: &mut dyn Work, order: &Order) -> Result<Vec<f64>, BenchError> {
    let mut memory = work.memory(order.bytes / size_of::<f32>())?;
    let data = memory.elements();
    data.fill(1.0);
    work.barrier()?;
    for _ in 0..WARM_UP {
        work.prepare()?;
        work.run(data)?;
    }
    let mut micros = Vec::with_capacity(order.iterations);
    for _ in 0..order.iterations {
        work.prepare()?;
        let start = Instant::now();
        work.run(data)?;
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(micros)
}

struct AllReduce<'a> {
    communicator: &'a mut dyn Communicator,
    /// Work on the communicator's own memory.
    shared: bool,
}

impl Work for AllReduce<'_> {
    fn memory(&mut self, elements: usize) -> Result<Memory, BenchError> {
        if self.shared {
            return Ok(Memory::Shared(self.communicator.buffer(elements * size_of::<f32>())?));
        }
        Ok(Memory::Private(vec![0.0; elements]))
    }

    fn barrier(&mut self) -> Result<(), BenchError> {
        Ok(self.communicator.barrier()?)
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        Ok(self.communicator.all_reduce(SliceMut::from(data), Reduction::SUM)?)
    }
}

/// Serves all-reduces over any communicator, under the name `peer`; with `shared`, on the communicator's own memory.
pub fn serve(communicator: &mut dyn Communicator, peer: &str, shared: bool, socket: &Path) -> Result<(), BenchError> {
    let (rank, size) = (communicator.group().rank(), communicator.group().size());
    answer(socket, &Hello { peer: peer.into(), rank, size }, &mut AllReduce { communicator, shared })
}
