//! Looking for MPI libraries without starting one. Needs Debian's `libopenmpi3` and `libmpich12`.

use sirtaki_comm::{
    CommError,
    communicator::mpi::{Choice, Family, find, load},
};

#[test]
fn both_families_are_found_and_told_apart() {
    let found = find(None);
    for (family, word) in [(Family::OpenMpi, "Open MPI"), (Family::Mpich, "MPICH")] {
        let one = found.iter().find(|found| found.family == family);
        let one = one.unwrap_or_else(|| panic!("no {} among {found:?}; install Debian's package", family.name()));
        assert!(one.path.is_absolute(), "{one:?}");
        assert!(one.version.contains(word), "{one:?}");
    }
}

#[test]
fn a_path_that_is_no_library_is_refused_by_name() {
    let choice = Choice::default().with_path(Some("/nowhere/libmpi.so".into()));
    match load(&choice) {
        Err(CommError::Unavailable { what, .. }) => assert!(what.contains("/nowhere/libmpi.so")),
        other => panic!("expected a refusal, got {:?}", other.map(|loaded| loaded.found)),
    }
}
