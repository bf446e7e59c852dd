//! An MPI library as a benchmark peer: its own all-reduce, without sirtaki.

use std::{path::PathBuf, process::ExitCode};

use sirtaki_bench::{
    BenchError, exit_with,
    protocol::{Hello, SOCKET},
    serve::{Work, answer},
};
use sirtaki_comm::communicator::mpi::{
    Choice, Family, Loaded, load,
    raw::{Answer, Mpi, MpiOp, Threads, Type},
};

struct World<'a>(&'a dyn Mpi);

impl World<'_> {
    fn check<T>(&self, answer: Answer<T>) -> Result<T, BenchError> {
        answer.map_err(|code| BenchError::Protocol(self.0.explain(code)))
    }
}

impl Work for World<'_> {
    fn barrier(&mut self) -> Result<(), BenchError> {
        self.check(self.0.barrier(self.0.world()))
    }

    fn run(&mut self, data: &mut [f32]) -> Result<(), BenchError> {
        // SAFETY: every byte of an `f32` may have any value, and the borrow is passed on.
        let bytes = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), size_of_val(data)) };
        self.check(self.0.all_reduce(bytes, Type::F32, MpiOp::Sum, self.0.world()))
    }
}

fn run() -> Result<(), BenchError> {
    let socket = std::env::var_os(SOCKET).map(PathBuf::from).ok_or_else(|| {
        BenchError::Protocol(format!("{SOCKET} is not set; this program is started by the benchmark"))
    })?;
    let Loaded { mpi, found } = load(&Choice::from_environment(|name| std::env::var(name).ok()))?;
    let mut world = World(&*mpi);
    // There is only one thread, so the library can do without locks.
    world.check(mpi.init(Threads::Single))?;
    let peer = match found.family {
        Family::OpenMpi => "openmpi",
        Family::Mpich => "mpich",
    };
    let (rank, size) = (world.check(mpi.rank(mpi.world()))?, world.check(mpi.size(mpi.world()))?);
    answer(&socket, &Hello { peer: peer.into(), rank, size }, &mut world)?;
    world.check(mpi.finalize())
}

fn main() -> ExitCode {
    exit_with("mpi-peer", run())
}
