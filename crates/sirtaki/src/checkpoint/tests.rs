use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    path::{Path, PathBuf},
};

use proptest::prelude::*;

use super::{
    disk::{Disk, Real, WriteContent},
    save::{here, save_made, save_on},
    tensors::{Arranged, Content},
    *,
};
use crate::{Error, Result, data::Position};

fn manifest(step: u64) -> Manifest {
    Manifest {
        model: "lenet".into(),
        step,
        position: Position { seed: u64::MAX, epoch: 3, seen: 640 },
        world: 4,
        random: BTreeMap::from([("dropout".into(), vec![1, u64::MAX, 3, 4])]),
        versions: BTreeMap::from([("sirtaki".into(), "0.1.0".into())]),
        settings: BTreeMap::from([("batch".into(), "64".into())]),
    }
}

/// Saves a checkpoint whose tensors tell its step.
fn save_step(disk: &mut dyn Disk, folder: &Path, step: u64, keep: usize) -> Result<PathBuf> {
    let weights = [step as u8; 24];
    let tensors = [
        Tensor { name: "count", dtype: Dtype::I64, shape: &[], bytes: &step.to_le_bytes() },
        Tensor { name: "layer.weight", dtype: Dtype::F32, shape: &[2, 3], bytes: &weights },
    ];
    let arranged = Arranged::new(folder, here(&tensors)).unwrap();
    save_on(disk, folder, &manifest(step), (&arranged, &mut |_| Ok(Vec::new())), keep, true)
}

fn check(checkpoint: &Checkpoint, step: u64) {
    assert_eq!(checkpoint.manifest, manifest(step));
    assert_eq!(checkpoint.names(), ["count", "layer.weight"]);
    let weight = checkpoint.describe("layer.weight").unwrap();
    assert_eq!(weight, Description { name: "layer.weight".into(), dtype: Dtype::F32, shape: vec![2, 3] });
    assert_eq!(checkpoint.read("layer.weight").unwrap(), [step as u8; 24]);
    assert_eq!(checkpoint.read("count").unwrap(), step.to_le_bytes());
    assert_eq!(checkpoint.describe("other"), None);
    assert!(checkpoint.read("other").unwrap_err().to_string().ends_with("tensor `other`: it is missing"));
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn refused(path: &Path) -> String {
    load(path).unwrap_err().to_string()
}

#[test]
fn what_is_saved_is_loaded() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("new/checkpoints");
    assert!(newest(&folder, "lenet").unwrap().is_none());
    let path = save(&folder, &manifest(9), &[], 0).unwrap();
    assert!(path.ends_with("checkpoint-000001"));
    assert!(load(&path).unwrap().names().is_empty());
    let path = save_step(&mut Real, &folder, 10, 0).unwrap();
    check(&load(&path).unwrap(), 10);
    let found = newest(&folder, "lenet").unwrap().unwrap();
    assert_eq!((found.path, found.refused.len()), (path, 0));
    assert_eq!(names(&folder), ["checkpoint-000001", "checkpoint-000002"]);
}

#[test]
fn the_last_ones_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for step in 1..=5 {
        save_step(&mut Real, folder.path(), step, 2).unwrap();
    }
    assert_eq!(names(folder.path()), ["checkpoint-000004", "checkpoint-000005"]);
    check(&newest(folder.path(), "lenet").unwrap().unwrap().checkpoint, 5);
}

#[test]
fn damaged_and_foreign_ones_are_refused_and_stay() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path();
    let paths: Vec<PathBuf> = (1..=4).map(|step| save_step(&mut Real, folder, step, 0).unwrap()).collect();
    let edit = |path: &Path, file: &str, change: &dyn Fn(String) -> String| {
        let text = fs::read_to_string(path.join(file)).unwrap();
        fs::write(path.join(file), change(text)).unwrap();
    };
    edit(&paths[1], MANIFEST, &|text| text.replace("\"version\": 1", "\"version\": 2"));
    assert!(refused(&paths[1]).ends_with("manifest.json`: version: 2, and this program knows those up to 1"));
    edit(&paths[2], MANIFEST, &|text| text.replace("\"epoch\": 3", "\"epoch\": 4"));
    assert!(refused(&paths[2]).ends_with("its sum is not the one in SHA256SUMS: it was changed or cut"));
    let tensors = fs::read(paths[3].join(TENSORS)).unwrap();
    fs::write(paths[3].join(TENSORS), &tensors[..tensors.len() - 1]).unwrap();
    assert!(refused(&paths[3]).contains("tensors.safetensors`: its sum is not"));
    fs::create_dir(folder.join("checkpoint-000005")).unwrap();
    fs::write(folder.join("checkpoint-000006"), "a file").unwrap();
    fs::create_dir(folder.join("checkpoint-000007")).unwrap();
    fs::write(folder.join("checkpoint-000007").join(MANIFEST), "{\"format\": \"other\", \"version\": 1}").unwrap();
    assert!(refused(&folder.join("checkpoint-000007")).contains("\"other\" is not a checkpoint of sirtaki"));

    let found = newest(folder, "lenet").unwrap().unwrap();
    assert_eq!((found.path, found.refused.len()), (paths[0].clone(), 6));
    let other = newest(folder, "resnet").unwrap_err();
    assert!(other.hint().is_some());
    let before = names(folder);
    let path = save_step(&mut Real, folder, 8, 1).unwrap();
    assert!(path.ends_with("checkpoint-000008"));
    let mut expected: Vec<String> = before.into_iter().filter(|name| name != "checkpoint-000001").collect();
    expected.push("checkpoint-000008".into());
    assert_eq!(names(folder), expected);
}

#[test]
fn another_models_checkpoints_are_foreign() {
    let folder = tempfile::tempdir().unwrap();
    let other = Manifest { model: "resnet".into(), ..manifest(1) };
    save(folder.path(), &other, &[], 0).unwrap();
    let error = newest(folder.path(), "lenet").unwrap_err();
    assert!(error.to_string().ends_with("model: this is a checkpoint of \"resnet\", not of \"lenet\""), "{error}");
    save_step(&mut Real, folder.path(), 2, 1).unwrap();
    save_step(&mut Real, folder.path(), 3, 1).unwrap();
    assert_eq!(names(folder.path()), ["checkpoint-000001", "checkpoint-000003"]);
}

#[test]
fn two_writers_do_not_meet() {
    let folder = tempfile::tempdir().unwrap();
    let other = fs::File::open(folder.path()).unwrap();
    other.lock().unwrap();
    let error = save(folder.path(), &manifest(1), &[], 0).unwrap_err();
    assert!(error.to_string().contains("another process is saving"), "{error}");
    drop(other);
    save(folder.path(), &manifest(1), &[], 0).unwrap();
}

#[test]
fn tensors_that_cannot_be_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let good = Tensor { name: "a", dtype: Dtype::F32, shape: &[2], bytes: &[0; 8] };
    for (tensors, problem) in [
        (vec![good, good], "tensor `a`: this name is taken"),
        (vec![Tensor { name: "__metadata__", ..good }], "tensor `__metadata__`: this name is taken"),
        (vec![good, Tensor { name: "b", shape: &[3], ..good }], "tensor `b`: 8 bytes are not [3] of F32"),
        (vec![Tensor { shape: &[usize::MAX, 2], ..good }], "tensor `a`: 8 bytes are not"),
    ] {
        let error = save(folder.path(), &manifest(1), &tensors, 0).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn tensors_made_one_after_the_other_are_the_same_file() {
    let root = tempfile::tempdir().unwrap();
    let (one, other) = (root.path().join("one"), root.path().join("other"));
    let bytes: Vec<u8> = (0..24).collect();
    let tensor = |name, dtype, shape| Tensor { name, dtype, shape, bytes: &bytes };
    let tensors = [tensor("a", Dtype::F32, &[2, 3]), tensor("b", Dtype::F64, &[3]), tensor("c", Dtype::F32, &[6])];
    let whole = save(&one, &manifest(1), &tensors, 0).unwrap();
    let mut tensors = here(&tensors);
    tensors[1].1 = Content::Later;
    tensors[2].1 = Content::Later;
    let mut made = Vec::new();
    let mut make = |tensor: &Description| {
        made.push(tensor.name.clone());
        Ok(bytes.clone())
    };
    let pieces = save_made(&other, &manifest(1), tensors.clone(), &mut make, 0).unwrap();
    assert_eq!(made, ["b", "c"]);
    assert_eq!(fs::read(whole.join(SUMS)).unwrap(), fs::read(pieces.join(SUMS)).unwrap());
    let mut make = |_: &Description| Err(Error::setting("it is gone", "look for it"));
    let error = save_made(&other, &manifest(1), tensors.clone(), &mut make, 0).unwrap_err();
    assert_eq!((error.to_string().as_str(), error.hint()), ("it is gone", Some("look for it")));
    let error = save_made(&other, &manifest(1), tensors, &mut |_| Ok(vec![1]), 0).unwrap_err();
    assert!(error.to_string().contains("tensor `b` has another size"), "{error}");
    assert_eq!(names(&other), ["checkpoint-000001"]);
}

/// A disk that stops after some operations, as in a crash. What was not forced to the disk may then be lost.
struct Crashing {
    left: usize,
    lose: bool,
    written: Vec<PathBuf>,
    renamed: Vec<(PathBuf, PathBuf)>,
}

impl Crashing {
    fn step(&mut self, path: &Path) -> Result<()> {
        if self.left > 0 {
            self.left -= 1;
            return Ok(());
        }
        if self.lose {
            for file in self.written.drain(..) {
                let bytes = fs::read(&file).unwrap();
                fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
            }
            for (from, to) in self.renamed.drain(..).rev() {
                fs::rename(to, from).unwrap();
            }
        }
        Err(Error::file(path, "crashed", ""))
    }
}

impl Disk for Crashing {
    fn create_folder(&mut self, path: &Path) -> Result<()> {
        self.step(path)?;
        Real.create_folder(path)
    }

    fn write(&mut self, path: &Path, content: WriteContent<'_>) -> Result<()> {
        self.step(path).inspect_err(|_| {
            if path.parent().unwrap().exists() {
                fs::write(path, "half of it").unwrap();
            }
        })?;
        self.written.push(path.to_owned());
        Real.write(path, content)
    }

    fn sync(&mut self, path: &Path) -> Result<()> {
        self.step(path)?;
        self.written.retain(|file| file != path);
        self.renamed.retain(|(_, to)| to.parent() != Some(path));
        Real.sync(path)
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.step(to)?;
        assert!(self.written.is_empty(), "it gets its name before it is on the disk");
        self.renamed.push((from.to_owned(), to.to_owned()));
        Real.rename(from, to)
    }

    fn remove_folder(&mut self, path: &Path) -> Result<()> {
        self.step(path).inspect_err(|_| {
            // Half of the files are gone.
            let _ = fs::remove_file(path.join(TENSORS));
        })?;
        Real.remove_folder(path)
    }
}

#[test]
fn a_crash_anywhere_leaves_a_checkpoint_to_go_on_from() {
    let mut crashes = 0;
    for lose in [false, true] {
        for left in 0.. {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path();
            save_step(&mut Real, folder, 1, 2).unwrap();
            save_step(&mut Real, folder, 2, 2).unwrap();
            let mut disk = Crashing { left, lose, written: Vec::new(), renamed: Vec::new() };
            let result = save_step(&mut disk, folder, 3, 2);
            let found = newest(folder, "lenet").unwrap().unwrap();
            assert!(found.refused.is_empty(), "after {left} operations: {:?}", found.refused);
            let step = found.checkpoint.manifest.step;
            assert!(step == 2 || step == 3, "after {left} operations");
            check(&found.checkpoint, step);
            check(&load(&folder.join("checkpoint-000002")).unwrap(), 2);
            let saved = save_step(&mut Real, folder, 4, 2).unwrap();
            check(&load(&saved).unwrap(), 4);
            let left_over = names(folder);
            assert_eq!(left_over.len(), 2, "{left_over:?}");
            if result.is_ok() {
                break;
            }
            crashes += 1;
        }
    }
    // Nine operations write a checkpoint, two name it, three remove an old one.
    assert!(crashes >= 2 * 12, "{crashes}");
}

proptest! {
    #[test]
    fn any_change_of_any_file_is_refused(file in 0_usize..3, place: prop::sample::Index, bit in 0_u8..8) {
        let folder = tempfile::tempdir().unwrap();
        let path = save_step(&mut Real, folder.path(), 1, 0).unwrap();
        let file = path.join([MANIFEST, TENSORS, SUMS][file]);
        let mut bytes = fs::read(&file).unwrap();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        fs::write(&file, &bytes).unwrap();
        // The end of the last line of checksums carries no information.
        if place + 1 < bytes.len() || !file.ends_with(SUMS) {
            prop_assert!(load(&path).is_err());
        }
    }

    #[test]
    fn any_tensor_file_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..60), length in 0_u64..40) {
        let bytes = [length.to_le_bytes().as_slice(), b"{\"a\":{\"dtype\":\"F32\",", &bytes].concat();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        let _ = super::tensors::TensorFile::new(Path::new("t"), file);
    }
}
