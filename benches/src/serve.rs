//! The peer's side: wait for an order, run it, answer.

use std::{path::Path, time::Instant};

use sirtaki_comm::{Communicator, Reduction, SliceMut};

use crate::protocol::{BenchError, Hello, Lines, Order, Times};

/// Untimed calls before the timed ones.
const WARM_UP: usize = 2;

/// What a peer can do with a buffer; the time of [`Work::run`] is measured.
pub trait Work {
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
        let micros = measure(work, order)?;
        lines.write(&Times { micros })?;
    }
    Ok(())
}

fn measure(work: &mut dyn Work, order: Order) -> Result<Vec<f64>, BenchError> {
    let mut data = vec![1f32; order.bytes / size_of::<f32>()];
    work.barrier()?;
    for _ in 0..WARM_UP {
        work.prepare()?;
        work.run(&mut data)?;
    }
    let mut micros = Vec::with_capacity(order.iterations);
    for _ in 0..order.iterations {
        work.prepare()?;
        let start = Instant::now();
        work.run(&mut data)?;
        micros.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(micros)
}

struct AllReduce<'a>(&'a mut dyn Communicator);

impl Work for AllReduce<'_> {
    fn barrier(&mut self) -> Result<(), BenchError> {
        Ok(self.0.barrier()?)
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        Ok(self.0.all_reduce(SliceMut::from(data), Reduction::SUM)?)
    }
}

/// Serves all-reduces over any communicator, under the name `peer`.
pub fn serve(comm: &mut dyn Communicator, peer: &str, socket: &Path) -> Result<(), BenchError> {
    let hello = Hello { peer: peer.into(), rank: comm.group().rank(), size: comm.group().size() };
    answer(socket, &hello, &mut AllReduce(comm))
}
