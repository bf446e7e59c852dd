//! Finding and loading MPI at run time, so that neither building nor starting needs one.
//!
//! Open MPI must be visible to the whole process: its plug-ins are libraries of their own that expect to find its
//! symbols there. MPICH has none and stays private. Two libraries must never be active together, because both export
//! the same names; so a library that is already in the process always wins, and one that was only looked at is closed
//! before the next is opened. A library in use is never closed: it has threads and exit handlers.

use std::{
    ffi::{CStr, c_char, c_int},
    path::{Path, PathBuf},
    sync::Arc,
};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use super::{
    abi_mpich, abi_open,
    choice::{Choice, Family},
    raw::Mpi,
    table::Table,
};
use crate::{
    CommError,
    library::{RTLD_NOLOAD, path_of, reason},
};

/// Names under which libraries of either family are installed. The interface number 12 was Open MPI's once too, so
/// the name does not tell the family.
const NAMES: [&str; 6] =
    ["libmpi.so.40", "libmpich.so.12", "libmpi.so.12", "libmpi_cray.so.12", "libmpi_gnu.so.12", "libmpi.so"];

/// What libraries that promise the binary interface of MPICH call themselves.
const MPICH_WORDS: [&str; 4] = ["MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation MPI"];
/// The longest text by which any library describes itself.
const VERSION_TEXT: usize = 8192;

/// An MPI library of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// Its binary interface.
    pub family: Family,
    /// How it describes itself; the first line.
    pub version: String,
}

/// A library ready for use.
pub struct Loaded {
    /// Its functions.
    pub mpi: Arc<dyn Mpi>,
    /// Which one it is.
    pub found: Found,
}

/// The MPI libraries that the system's loader finds, and the one at `path`. None of them is initialised.
pub fn find(path: Option<&Path>) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for name in path.into_iter().chain(NAMES.iter().map(Path::new)) {
        let Ok(library) = open(name, RTLD_NOW | RTLD_LOCAL) else { continue };
        if let Ok(Loaded { found, .. }) = bind(&library, name)
            && all.iter().all(|other| other.path != found.path)
        {
            all.push(found);
        }
    }
    all
}

/// Loads the library of this choice.
pub fn load(choice: &Choice) -> Result<Loaded, CommError> {
    if let Some(path) = &choice.path {
        return keep(path);
    }
    if let Some(name) = NAMES.iter().find(|name| open(Path::new(name), RTLD_NOW | RTLD_NOLOAD).is_ok()) {
        return keep(Path::new(name));
    }
    let mut other = None;
    for name in NAMES.map(Path::new) {
        let Ok(library) = open(name, RTLD_NOW | RTLD_LOCAL) else { continue };
        // A library that we cannot identify is as good as none.
        let Ok(family) = family(&library, name) else { continue };
        drop(library);
        if choice.family.is_none_or(|wanted| wanted == family) {
            return keep(name);
        }
        other = other.or(Some((name, family)));
    }
    match (other, choice.family) {
        (Some((name, _)), _) if !choice.strict => keep(name),
        (Some((name, family)), Some(wanted)) => Err(CommError::Unavailable {
            what: format!("the {} library of the launcher", wanted.name()),
            reason: format!(
                "only {} ({}) was found; install {} or start with the other launcher",
                name.display(),
                family.name(),
                wanted.name()
            ),
        }),
        _ => Err(CommError::Unavailable {
            what: "MPI".into(),
            reason: format!("no library was found under the names {}; install one or name its path", NAMES.join(", ")),
        }),
    }
}

fn open(name: &Path, flags: c_int) -> Result<Library, libloading::Error> {
    // SAFETY: loading runs the library's initialisers; that MPI libraries may be loaded without being initialised is
    // what every program linked against one relies on.
    unsafe { Library::open(Some(name.as_os_str()), flags) }
}

fn has(library: &Library, symbol: &str) -> bool {
    // SAFETY: only its existence is checked.
    unsafe { library.get::<*mut u8>(format!("{symbol}\0").as_bytes()) }.is_ok()
}

/// The binary interface of a library; an error if it is neither of those we know. Guessing would mean calling its
/// functions with the constants of another library.
fn family(library: &Library, name: &Path) -> Result<Family, CommError> {
    let says = says_of_itself(library);
    match &says {
        _ if has(library, abi_open::MARK) => Ok(Family::OpenMpi),
        Some(text) if MPICH_WORDS.iter().any(|word| text.contains(word)) => Ok(Family::Mpich),
        _ => {
            let says = says.as_deref().and_then(|text| text.lines().next()).unwrap_or("nothing");
            Err(CommError::Unavailable {
                what: format!("MPI at {}", name.display()),
                reason: format!(
                    "it is neither Open MPI nor a relative of MPICH (it says of itself: {:?}); name the path of another \
                     library with SIRTAKI_MPI, or start the job with `sirtaki run`",
                    says.trim()
                ),
            })
        }
    }
}

/// The version text of a library. The function is the same in all of them and may be called at any time.
fn says_of_itself(library: &Library) -> Option<String> {
    type Ask = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    // SAFETY: the type is the one that the MPI standard gives this function.
    let ask = unsafe { library.get::<Ask>(b"MPI_Get_library_version\0") }.ok()?;
    let (mut text, mut length) = (vec![0_u8; VERSION_TEXT], 0);
    // SAFETY: the text has room for what any library writes, and the last byte stays zero.
    let code = unsafe { ask(text.as_mut_ptr().cast(), &raw mut length) };
    *text.last_mut()? = 0;
    (code == 0).then(|| CStr::from_bytes_until_nul(&text).ok())?.map(|text| text.to_string_lossy().into_owned())
}

/// Opens it for the rest of the process's life.
fn keep(name: &Path) -> Result<Loaded, CommError> {
    let failed = |error: libloading::Error| CommError::Unavailable {
        what: format!("MPI at {}", name.display()),
        reason: reason(&error),
    };
    let library = open(name, RTLD_NOW | RTLD_LOCAL).map_err(failed)?;
    let library = match family(&library, name)? {
        Family::OpenMpi => open(name, RTLD_NOW | RTLD_GLOBAL).map_err(failed)?,
        Family::Mpich => library,
    };
    let loaded = bind(&library, name);
    if loaded.is_ok() {
        std::mem::forget(library);
    }
    loaded
}

fn bind(library: &Library, name: &Path) -> Result<Loaded, CommError> {
    let family = family(library, name)?;
    let mpi: Arc<dyn Mpi> = match family {
        Family::OpenMpi => Arc::new(Table::new(library, abi_open::constants(library)?)?),
        Family::Mpich => Arc::new(Table::new(library, abi_mpich::CONSTANTS)?),
    };
    let version = mpi.version().lines().next().unwrap_or_default().trim().to_owned();
    let path = path_of(library, "MPI_Init_thread").unwrap_or_else(|| name.to_owned());
    Ok(Loaded { mpi, found: Found { path, family, version } })
}
