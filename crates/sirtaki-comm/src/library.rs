//! Libraries that are loaded at run time: MPI, the CUDA driver, NCCL.

use std::{
    error::Error,
    path::{Path, PathBuf},
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::CommError;

/// `dlopen` only what is already loaded; the value of both C libraries of Linux.
pub(crate) const RTLD_NOLOAD: i32 = 4;

/// Declares a table of C functions that return a status, and how to fill it from a library.
macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $symbol:literal($($argument:ty),* $(,)?);)* }) => {
        $(#[$doc])*
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> std::ffi::c_int,)*
        }

        impl $name {
            /// The functions of this library; an error names the first one that is missing.
            ///
            /// # Safety
            /// The library must be the one whose functions have these types.
            pub(crate) unsafe fn bind(
                library: &libloading::os::unix::Library,
            ) -> Result<Self, libloading::Error> {
                // SAFETY: the caller's promise.
                Ok(Self { $($field: *unsafe { library.get($symbol.as_bytes()) }?,)* })
            }
        }
    };
}
pub(crate) use functions;

/// Opens the library at `path` if one is given, else whichever of these names the process has already loaded, else the
/// first that the system finds. It stays open until the process ends, because such libraries have threads of their own.
pub(crate) fn open(what: &str, path: Option<&Path>, names: &[&str]) -> Result<&'static Library, CommError> {
    let unavailable = |reason: String| CommError::Unavailable { what: what.into(), reason };
    let load = |name: &Path, flags| {
        // SAFETY: loading runs the library's initialisers, which any program may run.
        unsafe { Library::open(Some(name.as_os_str()), flags) }
    };
    let opened = match path {
        Some(path) => load(path, RTLD_NOW | RTLD_LOCAL).map_err(|error| unavailable(reason(&error)))?,
        None => {
            let names = || names.iter().map(Path::new);
            let present = names().find_map(|name| load(name, RTLD_NOW | RTLD_NOLOAD).ok());
            let found = present.or_else(|| names().find_map(|name| load(name, RTLD_NOW | RTLD_LOCAL).ok()));
            found.ok_or_else(|| {
                unavailable(format!(
                    "no library was found as {}",
                    names().map(|name| name.display().to_string()).collect::<Vec<_>>().join(" or ")
                ))
            })?
        }
    };
    Ok(Box::leak(Box::new(opened)))
}

/// What the system said; the error itself only names the function that failed.
pub(crate) fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

/// The file from which the library that has this symbol was loaded.
pub(crate) fn path_of(library: &Library, symbol: &str) -> Option<PathBuf> {
    // SAFETY: only the address is used.
    let address = unsafe { library.get::<*mut u8>(symbol.as_bytes()) }.ok()?.into_raw() as usize;
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let [from, to] = [from, to].map(|text| usize::from_str_radix(text, 16));
        let inside = from.ok()? <= address && address < to.ok()?;
        inside.then(|| rest.find('/').map(|at| PathBuf::from(&rest[at..]))).flatten()
    })
}
