//! One rank of a job that joins with whatever its starter has set, adds up numbers with the others and prints what it
//! found: `rank R of N, local R of N, host R of N, SUM over BACK END`. With the argument `stay` it then waits to be
//! killed.

use std::{io::Write, process::ExitCode, time::Duration};

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{
    Operation, Request, Tensor,
    job::{Job, JobError, Position},
};

fn say(text: &str) {
    // In one piece, because all ranks may share one output.
    let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
}

fn run() -> Result<(), JobError> {
    let job = Job::discover(&|name| std::env::var(name).ok())?;
    let world = job.join()?;
    let request = Request::new("ranks", Operation::AllReduce(Reduction::SUM), DType::F32, &[1]);
    let data = Tensor::from_vec(vec![(world.rank() + 1) as f32]);
    let sum: Option<Vec<f32>> = world.engine().submit(request, data).wait_one()?.into_vec();
    let show = |Position { rank, size }: Position| format!("{rank} of {size}");
    let here = show(Position { rank: world.rank(), size: world.size() });
    let (local, host, sum) = (show(world.local()), show(world.cross()), sum.unwrap_or_default());
    say(&format!("rank {here}, local {local}, host {host}, {sum:?} over {}", world.back_end()));
    if std::env::args().nth(1).as_deref() == Some("stay") {
        std::thread::sleep(Duration::from_secs(3600));
    }
    // An MPI launcher may end all ranks as soon as one has left.
    Ok(world.engine().barrier("end")?)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("error: {error}\nhint: {}", error.hint().unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}
