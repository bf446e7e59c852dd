//! Running programs from the root of the repository, printing which.

use std::{
    ffi::OsStr,
    fmt, fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context, Result, bail};

/// A program to run. A separate type, because a started [`Command`] cannot say what its variables were.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
}

/// A call of the cargo that runs this program.
pub(crate) fn cargo<const N: usize>(arguments: [&str; N]) -> Call {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    Call::new(program).args(arguments)
}

impl Call {
    /// A program without arguments.
    pub(crate) fn new(program: impl Into<String>) -> Self {
        Self { program: program.into(), arguments: Vec::new(), variables: Vec::new() }
    }

    /// With more arguments.
    #[must_use]
    pub(crate) fn args(mut self, arguments: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// With a variable in its environment.
    #[must_use]
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Ready to be started in a folder.
    pub(crate) fn command(&self, root: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(root).stdin(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        // What cargo sets for this program would make every inner cargo think that something changed.
        let own = |name: &str| name.starts_with("CARGO_MANIFEST_") || name.starts_with("CARGO_PKG_");
        for (name, _) in std::env::vars().filter(|(name, _)| own(name)) {
            command.env_remove(name);
        }
        command
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={value:?} ")?;
        }
        let program = Path::new(&self.program).file_name().unwrap_or(OsStr::new(&self.program));
        write!(f, "{}", program.to_string_lossy())?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// Runs programs from the root of the repository.
#[derive(Debug)]
pub(crate) struct Shell {
    /// The root of the repository.
    pub root: PathBuf,
}

impl Shell {
    /// At the root of the repository this program was built from.
    pub(crate) fn at_root() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?;
        Ok(Self { root: root.to_owned() })
    }

    /// Runs a program; returns an error if it fails.
    pub(crate) fn run(&self, call: Call) -> Result<()> {
        println!("  $ {call}");
        let status = self.status(&call)?;
        if !status.success() {
            bail!("`{call}` failed ({status})");
        }
        Ok(())
    }

    /// Runs a program with much output: the output goes into `file`, and its end is shown if the program fails.
    pub(crate) fn run_logged(&self, call: Call, file: &str) -> Result<String> {
        println!("  $ {call}");
        let path = self.root.join(file);
        let log = fs::File::create(&path).with_context(|| format!("cannot write {file}"))?;
        let mut command = call.command(&self.root);
        let status = command.stdout(log.try_clone()?).stderr(log).status();
        let status = status.with_context(|| format!("cannot run `{call}`"))?;
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        if !status.success() {
            let lines: Vec<&str> = text.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(60)..].join("\n"));
            bail!("`{call}` failed ({status}); all it said is in {file}");
        }
        Ok(text)
    }

    fn status(&self, call: &Call) -> Result<ExitStatus> {
        call.command(&self.root).status().with_context(|| format!("cannot run `{call}`"))
    }

    /// Whether a program runs and succeeds. Nothing is shown.
    pub(crate) fn succeeds(&self, call: &Call) -> bool {
        let mut command = call.command(&self.root);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// What a program prints.
    pub(crate) fn read(&self, call: &Call) -> Result<String> {
        let output = call.command(&self.root).stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("cannot run `{call}`"))?;
        if !output.status.success() {
            bail!("`{call}` failed ({})", output.status);
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The triple of this machine.
    pub(crate) fn host(&self) -> Result<String> {
        let version = self.read(&Call::new("rustc").args(["-vV"]))?;
        let host = version.lines().find_map(|line| line.strip_prefix("host: "));
        Ok(host.context("rustc names no host")?.to_owned())
    }
}

/// Whether a program is in `PATH`.
pub(crate) fn has(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).is_file())
}
