//! HDF5 files as far as they go without the library; `python/tests/test_hdf5.py` has the rest, with files of h5py.

use std::{fs, path::Path};

use sirtaki_volume::{
    VolumeError,
    format::{self, Choices, Dtype, Existing, Hdf5Candidates},
};

use crate::array::Array;

/// The first bytes of a file of so many bytes, as the library writes them unless asked for something newer.
fn superblock(end: u64) -> Vec<u8> {
    let addresses = [0, u64::MAX, end, u64::MAX];
    let numbers = [0, 0, 0, 0, 0, 8, 8, 0, 4, 0, 16, 0, 0, 0, 0, 0];
    [b"\x89HDF\r\n\x1a\n".to_vec(), numbers.to_vec(), addresses.map(u64::to_le_bytes).concat()].concat()
}

#[track_caller]
fn refused<T>(result: Result<T, VolumeError>, problem: &str, hint: &str) {
    let error = result.map(drop).unwrap_err();
    assert!(error.to_string().contains(problem), "`{error}` does not say `{problem}`");
    assert!(error.hint().is_some_and(|found| found.contains(hint)), "{error:?} does not hint at `{hint}`");
}

/// Opens a file of these bytes, in a process that has no library, whatever the machine has.
fn open(path: &Path, bytes: &[u8], dataset: &str) -> Result<(), VolumeError> {
    format::hdf5_from(Hdf5Candidates { given: Some("/nowhere/libhdf5.so".into()), package: Box::new(|| None) });
    fs::write(path, bytes).unwrap();
    format::open(Path::new(&format!("{}{dataset}", path.display())), &Choices::default()).map(drop)
}

#[test]
fn a_missing_library_is_named_with_the_way_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let whole = [superblock(2048), vec![0; 2048]].concat();
    // Known by its name, by its first bytes, and by both behind somebody else's bytes.
    for name in ["a.h5", "a.hdf5", "a.hdf", "a.NXS", "scan"] {
        let path = folder.path().join(name);
        for dataset in ["", ":/entry/data"] {
            let problem = format!("{name}: HDF5's library libhdf5 cannot be loaded from /nowhere/libhdf5.so");
            refused(open(&path, &whole, dataset), &problem, "pip install h5py");
        }
        assert!(format::is_hdf5(&path));
    }
    let behind = [vec![1; 512], whole].concat();
    refused(open(&folder.path().join("a.h5"), &behind, ""), "cannot be loaded", "SIRTAKI_HDF5");
    assert_eq!(format::hdf5_library(), None);
}

#[test]
fn other_files_and_short_ones_are_refused_without_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.h5");
    for bytes in [&[][..], b"something else", &[0; 5000]] {
        refused(open(&path, bytes, ":/data"), "a.h5: this is not an HDF5 file", "right file");
    }
    let whole = [superblock(2048), vec![0; 2048]].concat();
    refused(open(&path, &whole[..2047], ""), "2047 bytes, but it says that it ends at byte 2048", "cut short");
    refused(open(&path, &whole[..30], ":data"), "within its first bytes", "cut short");
    let absent = folder.path().join("b.h5:/data");
    let error = format::open(&absent, &Choices::default()).unwrap_err();
    assert!(error.to_string().contains("b.h5: No such file"), "{error}");
}

#[test]
fn only_hdf5_has_datasets() {
    let folder = tempfile::tempdir().unwrap();
    let array = Array::patterned(&[3, 4, 5], Dtype::UInt8, 1);
    for name in ["a.npy", "a.tif"] {
        let path = folder.path().join(name);
        format::create(&path, &array.layout(), Existing::Keep).unwrap().finish().unwrap();
        let named = folder.path().join(format!("{name}:/data"));
        refused(format::open(&named, &Choices::default()), "has no datasets", "behind the colon");
        assert_eq!(format::file_of(&named), path);
        assert!(!format::is_hdf5(&named));
    }
}

#[test]
fn hdf5_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let layout = Array::patterned(&[3, 4, 5], Dtype::UInt8, 1).layout();
    for name in ["out.h5", "out.hdf5:/data", "out.h5:/data.zarr", "out.nxs"] {
        let path = folder.path().join(name);
        refused(format::create(&path, &layout, Existing::Replace), "read and not written", "write zarr");
        refused(format::unit(&path, &layout), "read and not written", "write zarr");
        refused(format::resume(&path, &Choices::default(), Existing::Keep), "read and not written", "write zarr");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
