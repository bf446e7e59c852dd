//! Jobs whose workers come and go, with workers in Rust.

use std::{fs, process::Command, time::Instant};

use rustix::process::{Pid, Signal, kill_process};
use sirtaki_tests::launch::{Finished, Launch};
use tempfile::TempDir;

/// A job, and the file that ends it.
struct Elastic {
    launch: Launch,
    folder: TempDir,
}

impl Elastic {
    fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
        for name in ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"] {
            command.env_remove(name);
        }
        command.arg("run").args(options).args(["--cooldown", "0.01,0.02", "--"]);
        command.arg(env!("CARGO_BIN_EXE_elastic-rank")).arg(folder.path().join("stop"));
        Self { launch: Launch::start(command), folder }
    }

    /// The workers' processes.
    fn workers(&self) -> Vec<Pid> {
        let all = self.launch.processes().into_iter();
        let mut workers: Vec<Pid> = all
            .filter(|(_, line)| line.contains("elastic-rank") && !line.contains(" run "))
            .map(|(pid, _)| pid)
            .collect();
        workers.sort_by_key(|pid| pid.as_raw_nonzero());
        workers
    }

    fn stop(self) -> Finished {
        fs::write(self.folder.path().join("stop"), "").expect("a file");
        self.launch.ends()
    }
}

#[test]
fn survivors_go_on_and_a_newcomer_gets_their_state() {
    let job = Elastic::start(&["--min-ranks", "1", "--max-ranks", "3"]);
    job.launch.prints("round 1 rank", 3);
    let before = job.workers();
    kill_process(before[0], Signal::KILL).unwrap();
    job.launch.says("lost (was killed by SIGKILL)");
    job.launch.says("has come");
    job.launch.says("3 workers go on");
    let after = job.workers();
    assert!(before[1..].iter().all(|pid| after.contains(pid)), "survivors keep their processes");
    let done = job.stop();
    assert_eq!(done.code, 0, "{}", done.message());
    assert_eq!(done.out.iter().filter(|line| line.contains("done after")).count(), 3, "{:?}", done.out);
}

#[test]
fn a_job_whose_workers_are_all_lost_does_not_begin_again() {
    let job = Elastic::start(&["--min-ranks", "1", "--max-ranks", "3"]);
    job.launch.prints("round 1 rank", 3);
    for worker in job.workers() {
        kill_process(worker, Signal::KILL).unwrap();
    }
    let done = job.launch.ends();
    assert_ne!(done.code, 0, "{}", done.message());
    assert!(done.message().contains("was killed by SIGKILL"), "{}", done.message());
    assert!(!done.out.iter().any(|line| line.contains("round 2 rank")), "{:?}", done.out);
}

/// Workers are killed at random, again and again; no step may be lost or done twice, and nothing may hang.
/// `ELASTIC_CHANGES` says how many.
#[test]
#[ignore = "takes minutes; `cargo xtask test elastic-changes`"]
fn any_number_of_changes() {
    let changes = std::env::var("ELASTIC_CHANGES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    let job = Elastic::start(&["--min-ranks", "1", "--max-ranks", "4"]);
    let (began, mut seed) = (Instant::now(), 7_u64);
    for change in 1..=changes {
        let first = job.launch.prints(&format!("] round {change} rank 0 of "), 1).swap_remove(0);
        let size = first.rsplit(' ').next().and_then(|size| size.parse().ok()).expect("a number of workers");
        // Whoever says that it is in the round has the state. One that has it is left, and what is lost comes back.
        job.launch.prints(&format!("] round {change} rank "), size);
        let workers = job.workers();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if size > 1 {
            let _ = kill_process(workers[(seed >> 33) as usize % workers.len()], Signal::KILL);
        }
    }
    let done = job.stop();
    assert_eq!(done.code, 0, "{}", done.message());
    println!("{changes} changes in {:.0} s", began.elapsed().as_secs_f64());
}
