//! One rank of an MPI job, started by an MPI launcher for the tests in `tests/mpi.rs`.
//!
//! `mpi-rank operations` and `mpi-rank conformance` run what must work and leave in good order; `mpi-rank arena` and
//! `mpi-rank layered` do so with shared memory within hosts, and check the name of the communicator they get. `mpi-rank
//! faults` runs what must fail in the right way, after which MPI cannot be left in good order. A rank that succeeds
//! prints `rank R: fine`.

mod faults;
mod operations;

use std::{process::ExitCode, time::Duration};

use sirtaki_comm::{
    CommError, Communicator, Settings,
    communicator::mpi::{Choice, MpiCommunicator},
    rendezvous::connect_over_mpi,
    secure::Secret,
};
use sirtaki_tests::conformance::check_all_as_rank;

/// How long healthy ranks may wait for each other on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Settings with this progress timeout, and the library that fits the launcher.
fn prepare(timeout: Duration) -> Result<(Settings, Choice), CommError> {
    let mut settings = Settings::new(Secret::random()?);
    settings.timeout = timeout;
    Ok((settings, Choice::from_environment(|name| std::env::var(name).ok())))
}

/// All ranks, with this progress timeout and MPI calls of at most `limit` elements.
fn world(timeout: Duration, limit: usize) -> Result<Box<dyn Communicator>, CommError> {
    let (settings, choice) = prepare(timeout)?;
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

/// The communicator that [`connect_over_mpi`] makes for ranks on these hosts must be called `name`.
fn settled(name: &str, hosts: &[&[usize]]) -> Result<Box<dyn Communicator>, CommError> {
    let (settings, choice) = prepare(PATIENCE)?;
    let mut comm = connect_over_mpi(&settings, &choice)?;
    assert_eq!((comm.name(), comm.group().hosts()), (name, hosts.iter().map(|ranks| ranks.to_vec()).collect()));
    operations::all(&mut *comm)?;
    Ok(comm)
}

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some("operations") => working(),
        Some("conformance") => conformance(),
        Some("arena") => settled("arena", &[&[0, 1, 2]]),
        Some("layered") => settled("layered", &[&[0, 1], &[2], &[3]]),
        Some("faults") => faults::all(),
        _ => Err(CommError::Invalid { problem: "use: mpi-rank operations|conformance|arena|layered|faults".into() }),
    };
    #[allow(clippy::print_stdout, clippy::print_stderr, reason = "this is how the test hears of it")]
    match result {
        Ok(mut comm) => {
            println!("rank {}: fine", comm.group().rank());
            // The launcher may end all ranks as soon as one leaves without finalizing MPI, so all print first.
            let _ = comm.barrier();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("mpi-rank: {error}");
            ExitCode::FAILURE
        }
    }
}
