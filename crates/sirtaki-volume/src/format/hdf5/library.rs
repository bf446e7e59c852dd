//! Finding and opening HDF5's library.
//!
//! A process has it once, because it has one table of what is open and is not made for threads unless somebody compiled
//! it so: every call takes the same lock. Where to look is told once as well, by the program, and not with every volume:
//! what opens masks, inputs and pairs knows nothing of environment and Python, and the answer is the same for all of
//! them. A Python program that uses h5py has the same library in use, without this lock: it must not call h5py in another
//! thread while volumes are read.

use std::{
    collections::HashSet,
    error::Error,
    ffi::{CStr, c_int, c_uint, c_void},
    fmt, fs,
    path::{Path, PathBuf},
    ptr,
    sync::{Mutex, OnceLock, PoisonError},
};

use libloading::os::unix::{Library as Loaded, RTLD_LOCAL, RTLD_NOW};

use super::api::{Api, ErrorLine};
use crate::VolumeError;

/// Names under which the system may know it: those of compilers, then those of 2.0, 1.14, 1.12 and 1.10. Debian's builds
/// without MPI are called `serial`.
const NAMES: [&str; 11] = [
    "libhdf5.so",
    "libhdf5_serial.so",
    "libhdf5.so.320",
    "libhdf5.so.310",
    "libhdf5_serial.so.310",
    "libhdf5.so.200",
    "libhdf5_serial.so.200",
    "libhdf5.so.103",
    "libhdf5_serial.so.103",
    "libhdf5.so.101",
    "libhdf5.so.100",
];
/// How to get it.
const INSTALL: &str = "`pip install h5py` into the Python that is first in PATH, install the system's package \
                       (libhdf5-103-1 or libhdf5-310 in Debian, hdf5 elsewhere), or name the library in SIRTAKI_HDF5";
/// The first version whose identifiers have 64 bits.
const OLDEST: (c_uint, c_uint) = (1, 10);

/// Finds the folder of Python's package `h5py`.
pub type FindPackage = Box<dyn Fn() -> Option<PathBuf> + Send + Sync>;

/// Where HDF5's library may be.
pub struct Hdf5Candidates {
    /// Where the user says that it is: the file, or a folder of it. Nothing else is tried then.
    pub given: Option<PathBuf>,
    /// The folder of Python's package `h5py`, asked for only if the system does not know the library.
    pub package: FindPackage,
}

impl fmt::Debug for Hdf5Candidates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hdf5Candidates").field("given", &self.given).finish_non_exhaustive()
    }
}

static CANDIDATES: OnceLock<Hdf5Candidates> = OnceLock::new();
static PROCESS: OnceLock<Result<Library, Missing>> = OnceLock::new();

/// Tells this process where HDF5's library may be, before the first volume is opened. What was told first counts. Unless
/// told, only the system is asked.
pub fn hdf5_from(candidates: Hdf5Candidates) {
    let _ = CANDIDATES.set(candidates);
}

/// Where HDF5's library is that this process uses: a path, or a name that the system knows. Nothing if there is none.
pub fn hdf5_library() -> Option<&'static Path> {
    Library::of_process().ok().map(|library| library.path.as_path())
}

/// Why there is no library.
#[derive(Debug, Clone)]
pub(super) struct Missing(String);

impl Missing {
    /// The error for a file that would need it.
    pub(super) fn about(&self, file: &Path) -> VolumeError {
        VolumeError::format(file, format!("HDF5's library libhdf5 {}", self.0), INSTALL)
    }
}

/// The library, loaded. It stays so until the process ends, because other parts of the process may use it, too.
#[derive(Debug)]
pub(super) struct Library {
    api: Api,
    path: PathBuf,
    /// Held during each call.
    turn: Mutex<()>,
}

impl Library {
    /// The one of this process, which is found when it is first asked for.
    pub(super) fn of_process() -> Result<&'static Self, Missing> {
        let system = || Hdf5Candidates { given: None, package: Box::new(|| None) };
        let found = PROCESS.get_or_init(|| Self::find(CANDIDATES.get_or_init(system)));
        found.as_ref().map_err(Clone::clone)
    }

    /// Finds and loads it.
    fn find(candidates: &Hdf5Candidates) -> Result<Self, Missing> {
        if let Some(given) = &candidates.given {
            let file = if given.is_dir() { in_folder(given) } else { Some(given.clone()) };
            return Self::open(&file.ok_or_else(|| Missing(format!("is not in {}", given.display())))?);
        }
        if let Some(found) = NAMES.iter().find_map(|name| Self::open(Path::new(name)).ok()) {
            return Ok(found);
        }
        match (candidates.package)().and_then(|package| of_package(&package)) {
            Some(file) => Self::open(&file),
            None => Err(Missing("was not found".to_owned())),
        }
    }

    fn open(path: &Path) -> Result<Self, Missing> {
        let unusable = |problem: String| Missing(format!("cannot be loaded from {}: {problem}", path.display()));
        let loaded = load(path, &mut HashSet::new()).map_err(unusable)?;
        // SAFETY: the type is that of the library's headers, in all versions.
        let version = unsafe {
            loaded.get::<unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint) -> c_int>(b"H5get_libversion\0")
        };
        let version = version.map_err(|error| unusable(reason(&error)))?;
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: it writes three numbers.
        unsafe { version(&mut major, &mut minor, &mut patch) };
        if (major, minor) < OLDEST {
            return Err(unusable(format!("version {major}.{minor}.{patch} is older than 1.10")));
        }
        // SAFETY: the version was checked.
        let api = unsafe { Api::bind(loaded) }.map_err(|error| unusable(reason(&error)))?;
        let library = Self { api, path: path.to_owned(), turn: Mutex::new(()) };
        // SAFETY: it takes nothing and may be called any number of times.
        let begun = library.call(|api| unsafe { (api.initialise)() }.into());
        begun.map(|_| library).map_err(unusable)
    }

    /// Makes a call, alone, and turns what is negative into what the library says about it.
    pub(super) fn call(&self, function: impl FnOnce(&Api) -> i64) -> Result<i64, String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: no function means that nothing is printed. Where the library was compiled for threads, each of them has
        // this setting for itself.
        unsafe { (self.api.set_printing)(0, ptr::null_mut(), ptr::null_mut()) };
        match function(&self.api) {
            result @ 0.. => Ok(result),
            _ => Err(self.complaint()),
        }
    }

    /// What the library says about the call before, innermost cause first.
    fn complaint(&self) -> String {
        const UPWARD: c_int = 0;
        let mut texts: Vec<String> = Vec::new();
        // SAFETY: `note` takes what the library gives and the address of a list, which lives longer than the call.
        unsafe { (self.api.walk_errors)(0, UPWARD, note, (&raw mut texts).cast()) };
        texts.into_iter().find(|text| !text.is_empty()).unwrap_or_else(|| "the library does not say why".to_owned())
    }
}

/// Appends a line to the list behind `texts`.
unsafe extern "C" fn note(_: c_uint, line: *const ErrorLine, texts: *mut c_void) -> c_int {
    // SAFETY: the library gives a line that lives as long as this call, and passes on the address from `complaint`.
    let (line, texts) = unsafe { (line.as_ref(), texts.cast::<Vec<String>>().as_mut()) };
    if let (Some(line), Some(texts)) = (line, texts)
        && !line.text.is_null()
    {
        // SAFETY: the text ends with a zero byte and lives as long as the line.
        texts.push(unsafe { CStr::from_ptr(line.text) }.to_string_lossy().into_owned());
    }
    0
}

/// Loads a library, until the process ends. Some wheels have what it needs beside it without saying so in the library: that
/// is loaded before it.
fn load(path: &Path, tried: &mut HashSet<PathBuf>) -> Result<&'static Loaded, String> {
    loop {
        // SAFETY: loading runs the library's initialisers, which any program may run.
        match unsafe { Loaded::open(Some(path.as_os_str()), RTLD_NOW | RTLD_LOCAL) } {
            Ok(loaded) => return Ok(Box::leak(Box::new(loaded))),
            Err(error) => {
                let problem = reason(&error);
                // The system begins with the name of what it did not find.
                let beside = problem.split_once(':').and_then(|(name, _)| Some(path.parent()?.join(name)));
                match beside.filter(|beside| beside != path && beside.is_file() && tried.insert(beside.clone())) {
                    Some(beside) => load(&beside, tried)?,
                    None => return Err(problem),
                };
            }
        }
    }
}

/// The library in a folder, whatever version its name ends with; not those beside it for other languages and for MPI.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    let is_it = |name: &str| {
        let rest = name.strip_prefix("libhdf5").map(|rest| rest.strip_prefix("_serial").unwrap_or(rest));
        rest.is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-') && rest.contains(".so"))
    };
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.file_name().is_some_and(|name| is_it(&name.to_string_lossy()))).max()
}

/// The library that comes with h5py: beside or in it in wheels, and among those of the environment in Conda.
fn of_package(package: &Path) -> Option<PathBuf> {
    let beside = package.parent()?;
    let environment = beside.parent().and_then(Path::parent);
    let folders = [Some(beside.join("h5py.libs")), Some(package.join(".libs")), environment.map(Path::to_owned)];
    folders.iter().flatten().find_map(|folder| in_folder(folder))
}

/// What the system said; the error itself only names the function that failed.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_the_way_to_get_it() {
        let folder = tempfile::tempdir().unwrap();
        let given = Hdf5Candidates { given: Some(folder.path().to_owned()), package: Box::new(|| None) };
        let error = Library::find(&given).unwrap_err().about(Path::new("a.h5"));
        assert!(error.to_string().starts_with("a.h5: HDF5's library libhdf5 is not in /"), "{error}");
        assert!(error.hint().unwrap().contains("pip install h5py"), "{error:?}");
        fs::write(folder.path().join("libhdf5.so.310"), "no library").unwrap();
        let error = Library::find(&given).unwrap_err().about(Path::new("a.h5"));
        assert!(error.to_string().contains("cannot be loaded from"), "{error}");
    }

    #[test]
    fn what_is_no_hdf5_is_not_used() {
        let error = Library::open(Path::new("libm.so.6")).unwrap_err();
        assert!(error.0.contains("H5get_libversion"), "{error:?}");
    }

    #[test]
    fn the_library_is_told_from_its_neighbours() {
        let folder = tempfile::tempdir().unwrap();
        let libraries = folder.path().join("site-packages/h5py.libs");
        fs::create_dir_all(&libraries).unwrap();
        for name in ["libhdf5_hl-1a.so.310", "libhdf5_openmpi.so", "libhdf5_cpp.so.310", "libsz-2b.so", "libhdf5.a"] {
            fs::write(libraries.join(name), "").unwrap();
        }
        let package = folder.path().join("site-packages/h5py");
        assert_eq!(in_folder(&libraries), None);
        for name in ["libhdf5-9e.so.320.0.0", "libhdf5.so.310", "libhdf5_serial.so.103"] {
            let file = libraries.join(name);
            fs::write(&file, "").unwrap();
            assert_eq!(of_package(&package), Some(file.clone()));
            fs::remove_file(file).unwrap();
        }
    }
}
