//! Patches of volumes whose voxels say where they are.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::{collections::BTreeSet, fs, path::Path};

use sirtaki::data::{Pairs, Patches, Samples as _, Split};

/// Writes an array of NumPy.
fn write(path: &Path, shape: &[u64], kind: &str, bytes: &[u8]) {
    let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({},), }}", shape.join(", "));
    let header = format!("{text:<117}\n");
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &118_u16.to_le_bytes(), header.as_bytes()].concat();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, [&start, bytes].concat()).unwrap();
}

/// A volume in which each voxel has its own number, and a class that follows from it.
fn make(folder: &Path, name: &str, shape: &[u64]) {
    let count = shape.iter().product::<u64>();
    let numbers: Vec<u8> = (0..count).flat_map(|number| (number as f32).to_le_bytes()).collect();
    let labels: Vec<u8> = (0..count).map(|number| (number % 3) as u8).collect();
    write(&folder.join("inputs").join(format!("{name}.npy")), shape, "<f4", &numbers);
    write(&folder.join("labels").join(format!("{name}.npy")), shape, "|u1", &labels);
}

/// The numbers of a sample's voxels as they are in the file, and their classes.
fn voxels(patches: &Patches, epoch: u64, index: usize) -> Vec<(u64, u64)> {
    let mut values = vec![0.0; patches.shape().iter().product()];
    patches.read_in(epoch, index, &mut values).unwrap();
    let (shift, scale) = patches.pairs().scaling()[0];
    let (numbers, labels) = values.split_at(values.len() / 2);
    let number = |value: &f32| (value * scale + shift).round() as u64;
    numbers.iter().map(number).zip(labels.iter().map(|label| *label as u64)).collect()
}

#[test]
fn what_is_drawn_keeps_its_classes_and_stays_apart_from_tests() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), "a", &[8, 12, 30]);
    let Split { train, test } = Patches::split(Pairs::open(folder.path()).unwrap(), 4, 7).unwrap();
    assert_eq!((train.shape(), train.classes()), ([2, 4, 4, 4].as_slice(), 3));
    assert_eq!((train.count(), test.count()), (64, 2 * 3));
    let column = |(number, _): &(u64, u64)| number % 30;
    for index in 0..test.count() {
        assert!(voxels(&test, 0, index).iter().all(|voxel| column(voxel) >= 26));
        assert_eq!(voxels(&test, 0, index), voxels(&test, 5, index), "tests stay the same");
    }
    for index in 0..train.count() {
        let found = voxels(&train, 0, index);
        assert!(found.iter().all(|voxel| column(voxel) < 26 && voxel.1 == voxel.0 % 3));
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 64, "no voxel is there twice");
        assert_eq!(found, voxels(&train, 0, index), "the same epoch draws the same");
        assert_ne!(found, voxels(&train, 1, index), "another epoch draws others");
    }
    let mut values = vec![0.0; 128];
    assert!(train.read(64, &mut values).is_err() && train.read(0, &mut values[1..]).is_err());
}

/// In how many ways patches of a volume are turned, from how numbers grow along their axes.
fn turns(shape: &[u64]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), "a", shape);
    let Split { train, .. } = Patches::split(Pairs::open(folder.path()).unwrap(), 6, 7).unwrap();
    let &[_, _, lines, columns] = train.shape() else { panic!("{:?}", train.shape()) };
    // Several epochs, until the rarest has its chance.
    let drawn = (0..8).flat_map(|epoch| (0..64).map(move |index| (epoch, index)));
    let steps = |(epoch, index): (u64, usize)| {
        let numbers: Vec<i64> = voxels(&train, epoch, index).iter().map(|voxel| voxel.0 as i64).collect();
        [lines * columns, columns, 1].map(|step| numbers[step] - numbers[0])
    };
    drawn.map(steps).collect::<BTreeSet<_>>().len()
}

#[test]
fn patches_are_turned_in_all_ways_that_fit() {
    assert_eq!(turns(&[12, 13, 40]), 48);
    // Of five voxels along the first axis and six along the others.
    assert_eq!(turns(&[5, 13, 40]), 16);
}

#[test]
fn planes_and_small_volumes_have_patches_that_fit() {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), "a", &[20, 50]);
    make(folder.path(), "b", &[9, 60]);
    let Split { train, test } = Patches::split(Pairs::open(folder.path()).unwrap(), 100, 7).unwrap();
    assert_eq!(train.shape(), [2, 1, 9, 25]);
    assert_eq!((train.pairs().axes(), train.pairs().channels(), test.count()), (2, 1, 2 + 1));
    let drawn: BTreeSet<usize> = (0..64).map(|index| voxels(&train, 0, index).len()).collect();
    assert_eq!(drawn, BTreeSet::from([9 * 25]));
}

#[test]
fn pairs_that_do_not_fit_are_refused() {
    let said = |change: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path(), "a", &[6, 6, 6]);
        change(folder.path());
        let error = Pairs::open(folder.path()).unwrap_err();
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
        error.to_string()
    };
    let labels = |folder: &Path| folder.join("labels/a.npy");
    for (change, says) in [
        (&|folder: &Path| fs::remove_file(labels(folder)).unwrap() as (), "`a` is only in one of the folders"),
        (&|folder: &Path| fs::remove_dir_all(folder.join("labels")).unwrap(), "no pairs of volumes"),
        (&|folder: &Path| write(&labels(folder), &[6, 6, 5], "|u1", &[1; 180]), "6 × 6 × 5 labels for 6 × 6 × 6"),
        (&|folder: &Path| write(&labels(folder), &[6, 6, 6], "|u1", &[0; 216]), "all voxels have class 0"),
        (&|folder: &Path| write(&labels(folder), &[6, 6, 6], "<f4", &[0x3f; 864]), "voxel [0, 0, 0] has the label 0.7"),
        (&|folder: &Path| write(&labels(folder), &[6, 6, 6], "<u2", &[1; 432]), "has the label 257"),
        (&|folder: &Path| make(folder, "b", &[30, 30]), "2 axes of space"),
        (
            &|folder: &Path| fs::copy(labels(folder), folder.join("labels/a.raw")).map(drop).unwrap(),
            "several volumes `a`",
        ),
        (&|folder: &Path| fs::write(folder.join("inputs/a.npy"), "no").unwrap(), "inputs/a.npy"),
    ] as [(&dyn Fn(&Path), &str); 9]
    {
        let said = said(change);
        assert!(said.contains(says), "{says}: {said}");
    }
}
