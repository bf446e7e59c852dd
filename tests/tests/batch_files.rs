//! The examples' batch files, submitted to a real Slurm from the folder that they are in, as they say.
//!
//! Nothing in them is changed: their lines for GPUs, of which this cluster has none, are comments. What they learn is
//! compared in `python/tests/test_examples.py`, without Slurm; here it matters that they run to their end on the nodes
//! that they ask for. All are submitted at once, and Slurm runs two at a time, which have to share nodes.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]
#![allow(clippy::print_stdout, reason = "the results are printed for whoever asked for them")]

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use sirtaki_tests::{launch::Launch, python::python_with, slurm::Slurm};
use tempfile::TempDir;

/// A batch file that has been submitted.
struct Job {
    file: PathBuf,
    /// `sbatch`, which waits for the end of the job and ends like it.
    launch: Launch,
    /// What the job prints, and the folder of its run.
    folder: TempDir,
}

/// Submits a batch file. The programs beside this Python are those that the job finds.
fn submit(slurm: &Slurm, file: PathBuf, python: &Path) -> Job {
    let folder = tempfile::tempdir().unwrap();
    let programs = python.parent().unwrap().to_owned();
    let inherited = env::var_os("PATH").unwrap();
    let path = env::join_paths([programs].into_iter().chain(env::split_paths(&inherited))).unwrap();
    let mut command = slurm.command("sbatch");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIRTAKI_")) {
        command.env_remove(name);
    }
    command.current_dir(file.parent().unwrap()).args(["--wait", "--parsable", "--output"]);
    command.arg(folder.path().join("log")).arg(file.file_name().unwrap()).args(["--steps", "20"]);
    command.env("PATH", path).env("SIRTAKI_RUN_FOLDER", folder.path().join("run"));
    command.env("OMP_NUM_THREADS", "1").env("TF_CPP_MIN_LOG_LEVEL", "3").env("PYTHONDONTWRITEBYTECODE", "1");
    Job { file, launch: Launch::start(command), folder }
}

/// Waits for the end of a job, which has to be a good one.
fn check(slurm: &Slurm, job: Job) {
    let name = job.file.file_name().unwrap().to_string_lossy().into_owned();
    let done = job.launch.ends_eventually();
    let log = fs::read_to_string(job.folder.path().join("log")).unwrap_or_default();
    assert_eq!(done.code, 0, "{name}: {}\n{log}", done.message());
    let state = slurm.says("scontrol", &["--oneliner", "show", "job", &done.out[0]]);
    assert!(state.contains(" JobState=COMPLETED "), "{name}: {state}\n{log}");
    let accuracies: Vec<f64> =
        log.lines().filter_map(|line| line.strip_prefix("[0] test accuracy ")?.parse().ok()).collect();
    // Whoever has learned nothing recognises every tenth digit.
    assert!(accuracies.len() == 1 && accuracies[0] > 0.3, "{name}: {accuracies:?}\n{log}");
    let about: Value = serde_json::from_slice(&fs::read(job.folder.path().join("run/run.json")).unwrap()).unwrap();
    let hosts = about["hosts"].as_array().unwrap();
    // Every file asks for one task per node.
    let nodes = nodes(&job.file);
    assert_eq!((hosts.len(), about["ranks"].as_u64()), (nodes, Some(nodes as u64)), "{name}: {about}\n{log}");
    println!("{name:<32} completed, nodes: {nodes}, test accuracy: {:.4}", accuracies[0]);
}

/// How many nodes a batch file asks for.
fn nodes(file: &Path) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let number = text.lines().find_map(|line| line.strip_prefix("#SBATCH --nodes=")?.parse().ok());
    number.unwrap_or_else(|| panic!("{} does not say on how many nodes", file.display()))
}

fn batch_files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/examples").canonicalize().unwrap();
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|end| end == "sbatch")).collect();
    files.sort();
    files
}

#[test]
#[ignore = "needs the wheel and takes minutes; `cargo xtask test batch-files`"]
fn every_batch_file_runs_to_its_end() {
    let python = PathBuf::from(python_with("sirtaki"));
    let slurm = Slurm::start("bf", 2);
    let jobs: Vec<Job> = batch_files().into_iter().map(|file| submit(&slurm, file, &python)).collect();
    assert!(!jobs.is_empty());
    jobs.into_iter().for_each(|job| check(&slurm, job));
}
