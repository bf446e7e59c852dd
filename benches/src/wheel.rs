//! Environments with the Python package in them, one for each Python that has its own PyTorch.
//!
//! PyTorch is not installed a second time: a new environment sees the folder in which the other Python has it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use clap::Args;

use crate::BenchError;

/// The Python package, and what to measure of it.
#[derive(Debug, Args)]
pub struct Package {
    /// The package; `cargo xtask bench` builds it
    #[arg(long, value_name = "FILE")]
    pub wheel: PathBuf,
    /// Turns of everybody at every work
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// What to measure; everything if nothing is named
    #[arg(long, value_delimiter = ',')]
    works: Vec<String>,
    /// Two rounds: to see that it works
    #[arg(long)]
    quick: bool,
}

impl Package {
    /// How many turns everybody gets.
    pub fn rounds(&self) -> usize {
        if self.quick { 2 } else { self.rounds.max(1) }
    }

    /// Whether this work is to be measured.
    pub fn wants(&self, name: &str) -> bool {
        self.works.is_empty() || self.works.iter().any(|work| work == name)
    }
}

/// A Python with PyTorch and the package.
#[derive(Debug, Clone)]
pub struct Environment {
    /// The interpreter.
    pub python: PathBuf,
    /// The package's command.
    pub sirtaki: PathBuf,
    /// The version of PyTorch.
    pub torch: String,
    /// Whether Horovod for PyTorch is installed.
    pub horovod: bool,
    /// Whether the package has a back end for `torch.distributed`.
    pub group: bool,
    /// Whether PyTorch has pipelines.
    pub pipelining: bool,
}

impl Environment {
    /// Makes one below `folder` that has the wheel and sees what `other` has.
    pub fn make(other: &Path, wheel: &Path, folder: &Path) -> Result<Self, BenchError> {
        let place = said(other, "import torch, os; print(os.path.dirname(torch.__path__[0]))")?;
        let version = said(other, "import torch; print(torch.__version__)")?;
        let folder = folder.join(&version);
        run(Command::new(other).args(["-m", "venv", "--clear"]).arg(&folder))?;
        let python = folder.join("bin/python");
        let own = PathBuf::from(said(&python, "import sysconfig; print(sysconfig.get_path('purelib'))")?);
        fs::write(own.join("torch.pth"), place).map_err(BenchError::io("cannot tell an environment of PyTorch"))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        run(Command::new(&python).args(pip).arg(wheel))?;
        let group = "import sirtaki.torch, torch.distributed as d; print(hasattr(d.Backend, 'SIRTAKI'))";
        Ok(Self {
            sirtaki: folder.join("bin/sirtaki"),
            torch: version.split('+').next().unwrap_or_default().to_owned(),
            horovod: said(&python, "import horovod.torch").is_ok(),
            group: said(&python, group)? == "True",
            pipelining: said(&python, "import torch.distributed.pipelining").is_ok(),
            python,
        })
    }
}

fn failed(command: &Command, why: &str) -> BenchError {
    let words: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    BenchError::Protocol(format!("{} {}: {why}", command.get_program().display(), words.join(" ")))
}

pub(crate) fn run(command: &mut Command) -> Result<(), BenchError> {
    let status = command.stdin(Stdio::null()).status().map_err(|error| failed(command, &error.to_string()))?;
    if status.success() { Ok(()) } else { Err(failed(command, &status.to_string())) }
}

pub(crate) fn said(python: &Path, program: &str) -> Result<String, BenchError> {
    let mut command = Command::new(python);
    command.args(["-c", program]).stdin(Stdio::null());
    let output = command.output().map_err(|error| failed(&command, &error.to_string()))?;
    if !output.status.success() {
        return Err(failed(&command, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
