//! Programs that use Open MPI, each process of which is a job by itself unless Open MPI's own launcher starts it.
//!
//! Its `mpirun` starts a *relay* for every rank, which hands the variables it finds to the agent of its host and waits.
//! The agent starts the rank with them, so `mpirun` connects the ranks, and everything else (output, cores, limits, the
//! end) stays as in any job. Whether this is needed is detected from the program; where detection fails, ranks that use
//! Open MPI are made to fail with a message instead of computing alone: [`GUARD`].
//!
//! Rejected: becoming a server of PMIx, whose protocol is Open MPI's own and changes; running the job below `mpirun`,
//! which has its own tags, limits and way of ending.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Advice, JobSpec,
    programs::{in_path, is_program, python},
};

/// A variable that no Open MPI can obey: it names a component that does not exist. So `MPI_Init` fails, in all
/// versions, and repeats the name.
pub const GUARD: (&str, &str) = ("OMPI_MCA_pml", "needs-sirtaki-run--mpi");

/// Run by the Python of the ranks. It does not initialise MPI.
const QUESTION: &str = "import mpi4py, sys; mpi4py.rc.initialize = mpi4py.rc.finalize = False; from mpi4py import MPI; \
                        print(sys.prefix); print(MPI.Get_library_version())";
/// Bytes of a program that are searched for the names of its libraries, which are near its beginning.
const HEAD: u64 = 64 << 20;

/// The MPI that a program uses.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Library {
    /// Open MPI of this major version, if known, and a folder in which its launcher may be.
    Open { major: Option<String>, folder: Option<PathBuf> },
    /// Another one, for which PMI is enough.
    Other,
}

/// How ranks are connected through Open MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenMpi {
    /// Its launcher.
    pub mpirun: String,
    /// Why it is used, if the user did not ask for it.
    pub note: Option<String>,
}

/// Whether ranks of this program need Open MPI's launcher, and which one.
pub fn find(spec: &JobSpec) -> Result<Option<OpenMpi>, Advice> {
    if spec.mpi == Some(false) {
        return Ok(None);
    }
    let seen = library(&spec.program);
    let (major, folder) = match (seen, spec.mpi) {
        (Some(Library::Open { major, folder }), _) => (major, folder),
        (None, Some(true)) => (None, None),
        _ => return Ok(None),
    };
    let mpirun = launcher(major.as_deref(), folder.as_deref()).ok_or_else(|| absent(major.as_deref()))?;
    let note = format!("the program uses Open MPI, so its ranks are connected through {mpirun} (--mpi)");
    Ok(Some(OpenMpi { note: spec.mpi.is_none().then_some(note), mpirun }))
}

fn absent(major: Option<&str>) -> Advice {
    let version = major.map(|major| format!(" {major}")).unwrap_or_default();
    Advice::new(
        format!("the program needs the mpirun of Open MPI{version}, which is not in PATH"),
        "add its folder to PATH; --mpi=no runs every process as an MPI job of its own",
    )
}

fn library(program: &[String]) -> Option<Library> {
    match program.iter().take(8).find(|word| word.ends_with(".py")) {
        Some(script) => imports_mpi(&fs::read_to_string(script).ok()?).then(|| ask(python(program))).flatten(),
        None => linked(&beginning(&path_of(program.first()?)?)?),
    }
}

/// Whether a Python program imports mpi4py itself.
fn imports_mpi(text: &str) -> bool {
    text.lines().map(str::trim_start).any(|line| {
        let module = line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")).unwrap_or_default();
        let rest = module.trim_start().strip_prefix("mpi4py");
        rest.is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_'))
    })
}

fn ask(python: &str) -> Option<Library> {
    let output = Command::new(python).args(["-c", QUESTION]).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (prefix, version) = text.split_once('\n')?;
    Some(told(Path::new(prefix.trim()), version))
}

/// What an MPI says about itself: `Open MPI v4.1.4, package: …`.
fn told(prefix: &Path, version: &str) -> Library {
    match version.trim().strip_prefix("Open MPI v") {
        Some(rest) => Library::Open { major: major(rest), folder: Some(prefix.join("bin")) },
        None => Library::Other,
    }
}

fn major(version: &str) -> Option<String> {
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    (!digits.is_empty()).then_some(digits)
}

/// The MPI among the libraries that a native program names.
fn linked(bytes: &[u8]) -> Option<Library> {
    let names = |library: &str| {
        let library = [b"\0", library.as_bytes()].concat();
        bytes.starts_with(b"\x7fELF") && bytes.windows(library.len()).any(|part| part == library)
    };
    match () {
        () if names("libmpi.so.40\0") => Some(Library::Open { major: None, folder: None }),
        () if names("libmpi.so.12\0") || names("libmpich.so.12\0") => Some(Library::Other),
        () => None,
    }
}

fn beginning(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(HEAD).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn path_of(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(program.into());
    }
    in_path(program).find(|path| path.is_file())
}

/// A launcher of Open MPI, of this version if one is given: beside Python, else in `PATH`.
fn launcher(version: Option<&str>, folder: Option<&Path>) -> Option<String> {
    let beside = folder.map(|folder| folder.join("mpirun").display().to_string());
    let names = ["mpirun", "mpirun.openmpi", "mpiexec", "orterun"].map(str::to_owned);
    let fits = |name: &String| is_program(name) && is_open(&version_of(name), version);
    beside.into_iter().chain(names).find(fits)
}

fn version_of(launcher: &str) -> String {
    let output = Command::new(launcher).arg("--version").stdin(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}

/// Whether a launcher that says this is one of Open MPI: `mpirun (Open MPI) 4.1.4`.
fn is_open(text: &str, version: Option<&str>) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let open = first.contains("(Open MPI)") || first.contains("(OpenRTE)");
    let own = first.rsplit(' ').next().and_then(major);
    open && (version.is_none() || own.as_deref() == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_import_mpi_are_recognised() {
        for text in ["from mpi4py import MPI", "import os\n  import mpi4py.MPI as m", "import mpi4py"] {
            assert!(imports_mpi(text), "{text}");
        }
        for text in ["# from mpi4py import MPI", "import mpi4pytorch", "x = 'import mpi4py'", ""] {
            assert!(!imports_mpi(text), "{text}");
        }
    }

    #[test]
    fn libraries_are_told_apart() {
        let open = told(Path::new("/env"), "Open MPI v4.1.4, package: Debian OpenMPI");
        assert_eq!(open, Library::Open { major: Some("4".into()), folder: Some("/env/bin".into()) });
        assert_eq!(told(Path::new("/env"), "MPICH Version:\t4.0.2"), Library::Other);
        let program = |library: &str| [b"\x7fELF..\0libc.so.6\0", library.as_bytes(), b"\0more"].concat();
        assert_eq!(linked(&program("libmpi.so.40")), Some(Library::Open { major: None, folder: None }));
        assert_eq!(linked(&program("libmpich.so.12")), Some(Library::Other));
        assert_eq!(linked(&program("libmpi.so.40.1")), None);
        assert_eq!(linked(b"#!/bin/sh\n# \0libmpi.so.40\0"), None);
    }

    #[test]
    fn launchers_of_other_mpis_and_versions_do_not_fit() {
        assert!(is_open("mpirun (Open MPI) 4.1.4\n\nReport bugs", Some("4")));
        assert!(is_open("mpirun.openmpi (OpenRTE) 4.1.4", None));
        assert!(!is_open("mpirun (Open MPI) 5.0.11", Some("4")));
        assert!(!is_open("HYDRA build details:\n    Version: 4.0.2", None));
    }
}
