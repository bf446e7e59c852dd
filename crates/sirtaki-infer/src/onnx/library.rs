//! Finding and opening ONNX Runtime.

use std::{
    error::Error,
    ffi::CStr,
    fs,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::api::{Api, Base, UseCuda, VERSION};
use crate::InferError;

/// Names under which the system may know it.
const NAMES: [&str; 2] = ["libonnxruntime.so", "libonnxruntime.so.1"];
/// How to get it.
const INSTALL: &str = "`pip install onnxruntime` into the Python that is first in PATH, or name the library in \
                       SIRTAKI_ONNXRUNTIME";

/// Where the library may be.
pub struct Candidates<'a> {
    /// Where the user says that it is: the file, or a folder of it. Nothing else is tried then.
    pub given: Option<PathBuf>,
    /// The folder of Python's package `onnxruntime`, asked for only if the system does not know the library.
    pub package: &'a dyn Fn() -> Option<PathBuf>,
}

impl std::fmt::Debug for Candidates<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidates").field("given", &self.given).finish_non_exhaustive()
    }
}

/// The library, loaded. It stays so until the process ends, because it has threads and exit handlers of its own.
#[derive(Debug, Clone)]
pub struct Runtime {
    api: Api,
    /// Lets a model compute on a GPU; builds for processors alone do not have it.
    cuda: Option<UseCuda>,
    path: PathBuf,
    version: String,
}

impl Runtime {
    /// Finds and loads it.
    pub fn find(candidates: &Candidates<'_>) -> Result<Self, InferError> {
        if let Some(given) = &candidates.given {
            let file = if given.is_dir() { in_folder(given) } else { Some(given.clone()) };
            let file = file.ok_or_else(|| missing(format!("is not in {}", given.display())))?;
            return Self::open(&file);
        }
        if let Some(found) = NAMES.iter().find_map(|name| Self::open(Path::new(name)).ok()) {
            return Ok(found);
        }
        match (candidates.package)().and_then(|folder| in_folder(&folder.join("capi"))) {
            Some(file) => Self::open(&file),
            None => Err(missing("was not found".to_owned())),
        }
    }

    fn open(path: &Path) -> Result<Self, InferError> {
        let unusable = |problem: String| InferError::Library {
            problem: format!("cannot be loaded from {}: {problem}", path.display()),
            hint: INSTALL.to_owned(),
        };
        // SAFETY: loading runs the library's initialisers, which any program may run.
        let library = unsafe { Library::open(Some(path.as_os_str()), RTLD_NOW | RTLD_LOCAL) };
        let library: &'static Library = Box::leak(Box::new(library.map_err(|error| unusable(reason(&error)))?));
        // SAFETY: the type is that of the library's header.
        let base = unsafe { library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase\0") };
        let base = base.map_err(|error| unusable(reason(&error)))?;
        // SAFETY: it takes nothing and gives the address of something that lives as long as the library.
        let base = unsafe { base().as_ref() }.ok_or_else(|| unusable("it offers no interface".to_owned()))?;
        // SAFETY: it gives the address of a text that lives as long as the library.
        let version = unsafe { CStr::from_ptr((base.version)()) }.to_string_lossy().into_owned();
        // SAFETY: any version may be asked for.
        let table = unsafe { (base.table)(VERSION) };
        if table.is_null() {
            return Err(unusable(format!("version {version} is older than 1.8")));
        }
        // SAFETY: it is the table of this version.
        let api = unsafe { Api::new(table) };
        // SAFETY: the type is that of the library's header.
        let cuda = unsafe { library.get::<UseCuda>(b"OrtSessionOptionsAppendExecutionProvider_CUDA\0") };
        Ok(Self { api, cuda: cuda.ok().map(|cuda| *cuda), path: path.to_owned(), version })
    }

    /// Fails if models cannot compute on GPUs with it.
    pub fn check_gpu(&self) -> Result<(), InferError> {
        self.cuda().map(drop)
    }

    /// What lets a model compute on a GPU.
    pub(super) fn cuda(&self) -> Result<UseCuda, InferError> {
        self.cuda.ok_or_else(|| InferError::Library {
            problem: format!("in {} computes on processors alone", self.path.display()),
            hint: "`pip install onnxruntime-gpu` instead, or leave --gpus out".to_owned(),
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its version, as in `1.31.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub(super) fn api(&self) -> Api {
        self.api
    }
}

/// The library in a folder, whatever version its name ends with.
fn in_folder(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAMES[0]));
    entries.filter(is_it).max()
}

fn missing(problem: String) -> InferError {
    InferError::Library { problem, hint: INSTALL.to_owned() }
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
        let given = |path: PathBuf| Candidates { given: Some(path), package: &|| None };
        let error = Runtime::find(&given(folder.path().to_owned())).unwrap_err();
        assert!(error.to_string().starts_with("ONNX Runtime is not in /"), "{error}");
        assert!(error.hint().unwrap().contains("pip install onnxruntime"));
        let file = folder.path().join("libonnxruntime.so.1.2.3");
        fs::write(&file, "no library").unwrap();
        assert_eq!(in_folder(folder.path()), Some(file));
        let error = Runtime::find(&given(folder.path().to_owned())).unwrap_err();
        assert!(error.to_string().contains("cannot be loaded from"), "{error}");
    }
}
