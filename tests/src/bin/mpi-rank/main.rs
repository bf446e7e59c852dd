//! One rank of an MPI job, started by an MPI launcher for the tests in `tests/mpi.rs`.
//!
//! `mpi-rank operations` and `mpi-rank conformance` run what must work and leave in good order. `mpi-rank faults` runs
//! what must fail in the right way, after which MPI cannot be left in good order. A rank that is content says
//! `rank R: fine`.

mod faults;
mod operations;

use std::{process::ExitCode, time::Duration};

use sirtaki_comm::{
    CommError, Communicator, Settings,
    communicator::mpi::{Choice, MpiCommunicator},
    secure::Secret,
};
use sirtaki_tests::conformance::check_all_as_rank;

/// How long ranks that are in order may wait for each other on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// All ranks, with this progress timeout and MPI calls of at most `limit` elements.
fn world(timeout: Duration, limit: usize) -> Result<Box<dyn Communicator>, CommError> {
    let mut settings = Settings::new(Secret::random()?);
    settings.timeout = timeout;
    let choice = Choice::from_environment(|name| std::env::var(name).ok());
    MpiCommunicator::world_in_pieces(&settings, &choice, limit)
}

fn working() -> Result<Box<dyn Communicator>, CommError> {
    let mut comm = world(PATIENCE, usize::MAX)?;
    let mut pieces = world(PATIENCE, 7)?;
    operations::all(&mut *comm)?;
    operations::all(&mut *pieces)?;
    Ok(comm)
}

fn conformance() -> Result<Box<dyn Communicator>, CommError> {
    let mut comm = world(PATIENCE, usize::MAX)?;
    check_all_as_rank(&mut *comm);
    Ok(comm)
}

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("operations") => working(),
        Some("conformance") => conformance(),
        Some("faults") => faults::all(),
        _ => Err(CommError::Invalid { problem: "use: mpi-rank operations|conformance|faults".into() }),
    };
    #[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is how the test hears of it")]
    match result {
        Ok(mut comm) => {
            println!("rank {}: fine", comm.group().rank());
            // The launcher may end everybody as soon as one leaves without MPI's farewell, so all speak first.
            let _ = comm.barrier();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mpi-rank: {error}");
            ExitCode::FAILURE
        }
    }
}
