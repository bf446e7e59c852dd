//! Programs and libraries that sirtaki can work with.

use std::{
    env::{split_paths, var_os},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sirtaki_volume::format::hdf5_library;

use super::finding::Finding;
use crate::commands::infer::{find_library, look_for_hdf5};

/// Programs that start jobs, and Python.
pub(super) fn examine() -> Vec<Finding> {
    vec![mpirun(), slurm(), ssh(), python(), onnx_runtime(), hdf5()]
}

fn mpirun() -> Finding {
    match ["mpirun", "mpiexec", "orterun"].into_iter().find_map(find) {
        Some(path) => Finding::ok("mpirun", described(&path, &["--version"])),
        None => Finding::missing("mpirun", "not in PATH", "only needed to start jobs through MPI"),
    }
}

fn slurm() -> Finding {
    let job = var_os("SLURM_JOB_ID").map(|id| format!("inside job {}", id.to_string_lossy()));
    match (find("srun"), find("scontrol"), job) {
        (Some(_), Some(_), Some(job)) => Finding::ok("Slurm", job),
        (Some(path), Some(_), None) => Finding::ok("Slurm", format!("{}, outside any job", path.display())),
        (None, None, None) => Finding::absent("Slurm", "not here"),
        (.., Some(job)) => {
            Finding::warning("Slurm", job, "srun or scontrol is not in PATH; load the centre's Slurm module")
        }
        _ => Finding::warning("Slurm", "only in part", "srun and scontrol must both be in PATH"),
    }
}

fn ssh() -> Finding {
    match find("ssh") {
        Some(path) => Finding::ok("ssh", path.display().to_string()),
        None => Finding::missing("ssh", "not in PATH", "only needed to start ranks on other hosts"),
    }
}

fn python() -> Finding {
    match ["python3", "python"].into_iter().find_map(find) {
        Some(path) => Finding::ok("Python", described(&path, &["--version"])),
        None => Finding::missing("Python", "not in PATH", "only needed to train with Python frameworks"),
    }
}

fn onnx_runtime() -> Finding {
    match find_library(None) {
        Ok(found) => Finding::ok("ONNX Runtime", format!("{} ({})", found.version(), found.path().display())),
        Err(error) => Finding::missing(
            "ONNX Runtime",
            error.to_string(),
            "only needed for `sirtaki infer`: pip install onnxruntime",
        ),
    }
}

fn hdf5() -> Finding {
    look_for_hdf5(None, None);
    match hdf5_library() {
        Some(path) => Finding::ok("HDF5", path.display().to_string()),
        None => Finding::missing("HDF5", "libhdf5 not found", "only needed to read .h5 volumes: pip install h5py"),
    }
}

/// The path of a program in `PATH`.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let is_program = |path: &PathBuf| rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file();
    split_paths(&var_os("PATH")?).map(|folder| folder.join(program)).find(is_program)
}

/// The first line a program prints, or nothing.
pub(super) fn first_line(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let line = String::from_utf8_lossy(&text).lines().next()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}

fn described(program: &Path, arguments: &[&str]) -> String {
    match first_line(program, arguments) {
        Some(line) => format!("{line} ({})", program.display()),
        None => program.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_answer() {
        let shell = find("sh").unwrap();
        assert_eq!(first_line(&shell, &["-c", "echo one; echo two"]).as_deref(), Some("one"));
        assert_eq!(first_line(&shell, &["-c", "echo no; exit 1"]), None);
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
