//! A Python that has PyTorch: the one in SIRTAKI_BENCH_PYTHON, or an environment made for the benchmark. Horovod is
//! only used if it is installed: in that Python, or in the one in SIRTAKI_BENCH_HOROVOD.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::start;

/// Whether this Python can import PyTorch.
fn has_torch(python: &Path) -> bool {
    let mut command = Command::new(python);
    command.args(["-c", "import torch"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}

/// Finds one or makes one below `folder`, saying what it does. `None` if that fails.
pub fn with_torch(folder: &Path, say: &dyn Fn(&str)) -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("SIRTAKI_BENCH_PYTHON").map(PathBuf::from) {
        return has_torch(&given).then_some(given);
    }
    if has_torch(Path::new("python3")) {
        return Some("python3".into());
    }
    let environment = folder.join("bench-python");
    let python = environment.join("bin/python");
    if !has_torch(&python) {
        say("installing PyTorch for comparison, once; this takes some minutes and some gigabytes");
        let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&environment));
        let installed =
            made && succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet", "numpy", "torch"]));
        if !installed {
            say("PyTorch could not be installed; Gloo is left out");
            return None;
        }
    }
    Some(python)
}

/// A Python that has Horovod for PyTorch.
#[derive(Debug, Clone)]
pub struct Horovod {
    /// The interpreter.
    pub python: PathBuf,
    /// Which of `gloo` and `mpi` it can run over.
    pub carriers: Vec<&'static str>,
}

impl Horovod {
    /// The Python in SIRTAKI_BENCH_HOROVOD or else `torch`, if it has Horovod.
    pub fn find(torch: Option<&Path>) -> Option<Self> {
        let given = std::env::var_os("SIRTAKI_BENCH_HOROVOD").map(PathBuf::from);
        let python = given.or_else(|| torch.map(Path::to_owned))?;
        let mut command = Command::new(&python);
        command.args(["-c", "import horovod.torch as h; print('gloo' * h.gloo_built(), 'mpi' * h.mpi_built())"]);
        let output = command.stderr(Stdio::null()).output().ok().filter(|output| output.status.success())?;
        let built = String::from_utf8_lossy(&output.stdout).into_owned();
        let mpi = start::has_open_mpi();
        let usable = |carrier: &&str| built.contains(carrier) && (mpi || *carrier != "mpi");
        let carriers = ["gloo", "mpi"].into_iter().filter(usable).collect();
        Some(Self { python, carriers })
    }
}
