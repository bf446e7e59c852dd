//! NVIDIA GPUs and NCCL.

use std::{ffi::c_int, path::PathBuf};

use libloading::Library;

use super::{
    finding::Finding,
    software::{find, first_line},
};
use sirtaki_launch::gpus::models;

/// GPUs and the library that connects them.
pub(super) fn examine() -> Vec<Finding> {
    let gpus = gpus();
    let any = !gpus.is_empty();
    let gpus = if any { gpus } else { vec![Finding::absent("GPU", "no NVIDIA GPU")] };
    gpus.into_iter().chain([nccl(any)]).collect()
}

/// One line per GPU: from the driver's tool, else from what the kernel module shows.
fn gpus() -> Vec<Finding> {
    let listed = find("nvidia-smi").map(|tool| list(&tool)).unwrap_or_default();
    let names = if listed.is_empty() { models() } else { listed };
    names.into_iter().enumerate().map(|(index, text)| Finding::ok(format!("GPU {index}"), text)).collect()
}

fn list(tool: &std::path::Path) -> Vec<String> {
    let query = ["--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"];
    let Ok(output) = std::process::Command::new(tool).args(query).output() else { return Vec::new() };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        return Vec::new();
    }
    text.lines().filter(|line| !line.trim().is_empty()).map(describe).collect()
}

/// `NVIDIA H200, 143771 MiB, 570.1` becomes `NVIDIA H200, 143771 MiB, driver 570.1`.
fn describe(line: &str) -> String {
    match line.rsplit_once(", ") {
        Some((rest, driver)) => format!("{rest}, driver {driver}"),
        None => line.into(),
    }
}

fn nccl(wanted: bool) -> Finding {
    let found = candidates().into_iter().find_map(|path| Some((version(&path)?, path)));
    match found {
        Some((version, path)) => Finding::ok("NCCL", format!("{version} ({})", path.display())),
        None if wanted => {
            let hint = "GPUs will talk through host memory; install libnccl2, or `pip install nvidia-nccl-cu12`";
            Finding::missing("NCCL", "libnccl.so.2 not found", hint)
        }
        None => Finding::absent("NCCL", "libnccl.so.2 not found"),
    }
}

/// Where the library may be: wherever the loader looks, and where distributions, CUDA and pip put it.
fn candidates() -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("libnccl.so.2")];
    for folder in ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/cuda/lib64"] {
        paths.push(PathBuf::from(folder).join("libnccl.so.2"));
    }
    let python = ["python3", "python"].into_iter().find_map(find);
    let script = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
    if let Some(packages) = python.and_then(|python| first_line(&python, &["-c", script])) {
        paths.push(PathBuf::from(packages).join("nvidia/nccl/lib/libnccl.so.2"));
    }
    paths
}

/// The version of the NCCL library at `path`, such as `2.27.3`.
fn version(path: &PathBuf) -> Option<String> {
    // SAFETY: NCCL's initialisers only set up its own state; the library is closed again below.
    let library = unsafe { Library::new(path) }.ok()?;
    let mut code: c_int = 0;
    // SAFETY: every NCCL since 2.0 exports this function with this signature, and it writes one int.
    let answer = unsafe {
        let ask = library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0").ok()?;
        ask(&mut code)
    };
    (answer == 0).then(|| readable(code))
}

/// Up to 2.8, the major version is in the thousands; since then, in the ten thousands.
fn readable(code: c_int) -> String {
    let unit = if code < 10_000 { 1000 } else { 10_000 };
    format!("{}.{}.{}", code / unit, code % unit / 100, code % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_old_and_new() {
        assert_eq!((readable(2804).as_str(), readable(22703).as_str()), ("2.8.4", "2.27.3"));
    }

    #[test]
    fn a_line_of_the_tool_becomes_readable() {
        assert_eq!(describe("NVIDIA H200, 143771 MiB, 570.1"), "NVIDIA H200, 143771 MiB, driver 570.1");
    }

    #[test]
    fn a_file_that_is_not_a_library_is_not_taken_for_one() {
        assert_eq!(version(&PathBuf::from("/etc/passwd")), None);
    }
}
