//! Looking for MPI libraries without starting one. Needs Debian's `libopenmpi3` and `libmpich12`.

use std::process::Command;

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
fn a_path_that_is_not_a_library_is_refused_by_name() {
    let choice = Choice::default().with_path(Some("/nowhere/libmpi.so".into()));
    match load(&choice) {
        Err(CommError::Unavailable { what, .. }) => assert!(what.contains("/nowhere/libmpi.so")),
        other => panic!("expected a refusal, got {:?}", other.map(|loaded| loaded.found)),
    }
}

/// A library that has the functions of MPI and is none that we know, made by the C compiler that linked this test.
#[test]
fn a_library_of_another_family_is_refused_and_not_taken_for_one_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("mpi.c"), folder.path().join("libmpi.so.12"));
    let text = r#"
        #include <string.h>
        int MPI_Get_library_version(char *text, int *length) {
            strcpy(text, "Wonder MPI 1.0\nmade in a test");
            *length = (int)strlen(text);
            return 0;
        }
    "#;
    std::fs::write(&source, text).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.expect("a C compiler").success());
    let choice = Choice::default().with_path(Some(library.clone()));
    match load(&choice) {
        Err(CommError::Unavailable { what, reason }) => {
            assert!(what.contains(library.to_str().unwrap()), "{what}");
            assert!(reason.contains("\"Wonder MPI 1.0\"") && reason.contains("SIRTAKI_MPI"), "{reason}");
        }
        other => panic!("expected a refusal, got {:?}", other.map(|loaded| loaded.found)),
    }
    assert!(find(Some(&library)).iter().all(|found| found.path != library));
}
