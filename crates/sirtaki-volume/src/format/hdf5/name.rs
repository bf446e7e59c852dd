//! `scan.h5:/entry/data`: the name of a dataset behind that of its file.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Ends of the names of HDF5 files; NeXus files are such as well.
pub(in crate::format) const EXTENSIONS: &[&str] = &["h5", "hdf5", "hdf", "nxs"];

/// A path as a file and what is named behind a colon. What exists is a file, whatever its name; else the file ends before
/// the first colon where a file is or a name like that of an HDF5 file ends.
pub(in crate::format) fn split(path: &Path) -> (&Path, Option<String>) {
    if path.exists() {
        return (path, None);
    }
    let bytes = path.as_os_str().as_bytes();
    let before = |at: usize| Path::new(OsStr::from_bytes(&bytes[..at]));
    let mut colons = (0..bytes.len()).filter(|at| bytes[*at] == b':');
    match colons.find(|at| is_named_so(before(*at)) || before(*at).is_file()) {
        Some(at) => (before(at), Some(String::from_utf8_lossy(&bytes[at + 1..]).into_owned())),
        None => (path, None),
    }
}

/// Whether a path names a dataset of an HDF5 file, whether there is one or not.
pub(in crate::format) fn names_dataset(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let mut colons = (0..bytes.len()).filter(|at| bytes[*at] == b':');
    colons.any(|at| is_named_so(Path::new(OsStr::from_bytes(&bytes[..at]))))
}

/// The other way round.
pub(super) fn with_dataset(file: &Path, dataset: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(":");
    name.push(dataset);
    name.into()
}

fn is_named_so(file: &Path) -> bool {
    let extension = file.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_stands_behind_a_colon() {
        let parts = |text: &'static str| {
            let (file, dataset) = split(Path::new(text));
            (file.to_str().unwrap(), dataset)
        };
        assert_eq!(parts("a.h5"), ("a.h5", None));
        assert_eq!(parts("/x/A.NXS:/entry/data"), ("/x/A.NXS", Some("/entry/data".into())));
        assert_eq!(parts("at 12:30/a.hdf5:b:c"), ("at 12:30/a.hdf5", Some("b:c".into())));
        assert_eq!(parts("a.h5:"), ("a.h5", Some(String::new())));
        assert_eq!(parts("host:a.zarr"), ("host:a.zarr", None));
        assert_eq!(with_dataset(Path::new("a.h5"), "/b"), Path::new("a.h5:/b"));
        assert!(names_dataset(Path::new("a.h5:/b.zarr")) && !names_dataset(Path::new("a:b/c.h5")));
    }

    #[test]
    fn what_exists_is_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("a.h5:b");
        std::fs::write(&whole, "").unwrap();
        assert_eq!(split(&whole), (whole.as_path(), None));
        let file = folder.path().join("scan");
        std::fs::write(&file, "").unwrap();
        assert_eq!(split(&with_dataset(&file, "/b")), (file.as_path(), Some("/b".into())));
    }
}
