//! Errors name the file and the place, and say what to do; nothing is lost.

use std::{fs, path::Path};

use sirtaki_volume::{
    Extent, Region, VolumeError,
    format::{self, Choices, Dtype, Existing, VolumeLayout},
};

use crate::array::Array;

fn volume(path: &Path, sharded: bool) -> Array {
    let array = Array::patterned(&[8, 8, 8], Dtype::Float32, 1);
    let mut layout = array.layout().with_some_chunks();
    layout.chunk = Some(Extent::new([4, 4, 4]).unwrap());
    layout.shard = sharded.then(|| Extent::new([8, 8, 8]).unwrap());
    let volume = format::create(path, &layout, Existing::Keep).unwrap();
    volume.write(&array.whole(), &array.bytes).unwrap();
    volume.finish().unwrap();
    array
}

fn read(path: &Path, array: &Array) -> Result<(), VolumeError> {
    let mut out = vec![0; array.bytes.len()];
    format::open(path, &Choices::default())?.read(&array.whole(), &mut out)
}

#[track_caller]
fn refused(result: Result<(), VolumeError>, words: &[&str]) {
    let error = result.unwrap_err();
    for word in words {
        assert!(error.to_string().contains(word), "`{error}` does not say `{word}`");
    }
    assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error:?}");
}

#[test]
fn a_damaged_chunk_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zarr");
    let array = volume(&path, false);
    let chunk = path.join("c/1/0/1");
    let bytes = fs::read(&chunk).unwrap();
    for damaged in [&bytes[..bytes.len() / 2], &[], b"something else"] {
        fs::write(&chunk, damaged).unwrap();
        refused(read(&path, &array), &["c/1/0/1", "chunk [1, 0, 1]", "[4..8, 0..4, 4..8]"]);
    }
}

#[test]
fn a_damaged_shard_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zarr");
    let array = volume(&path, true);
    let shard = path.join("c/0/0/0");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    refused(read(&path, &array), &["c/0/0/0", "index", "checksum"]);
    let mut damaged = bytes.clone();
    damaged[..8].fill(0xFF);
    fs::write(&shard, &damaged).unwrap();
    refused(read(&path, &array), &["c/0/0/0", "chunk [0, 0, 0]"]);
}

#[test]
fn metadata_are_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zarr");
    let array = volume(&path, true);
    let file = path.join("zarr.json");
    let text = fs::read_to_string(&file).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cases: [(&str, serde_json::Value, &str); 8] = [
        ("/data_type", "complex64".into(), "type of voxels `complex64`"),
        ("/shape/0", 0.into(), "empty axis"),
        ("/shape", vec![u64::MAX; 3].into(), "more voxels"),
        ("/chunk_grid/configuration/chunk_shape/0", (1_u64 << 40).into(), "too large"),
        ("/chunk_grid/configuration/chunk_shape/0", 7.into(), "do not consist of chunks"),
        ("/codecs/0/configuration/chunk_shape", vec![4_u64, 4].into(), "axes"),
        ("/codecs/0/configuration/codecs/1/name", "zfpy".into(), "codec `zfpy`"),
        ("/fill_value", "many".into(), "fill value"),
    ];
    for (place, value, word) in cases {
        let mut changed = json.clone();
        *changed.pointer_mut(place).unwrap() = value;
        fs::write(&file, changed.to_string()).unwrap();
        refused(read(&path, &array), &["zarr.json", word]);
    }
    fs::write(&file, &text[..text.len() / 2]).unwrap();
    refused(read(&path, &array), &["zarr.json", "EOF"]);
    fs::remove_file(&file).unwrap();
    refused(read(&path, &array), &["a.zarr", "no array"]);
}

#[test]
fn a_short_file_is_refused_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let array = Array::patterned(&[8, 8, 8], Dtype::Float32, 1);
    for name in ["a.npy", "a.mrc", "a.nii", "a.tif"] {
        let path = folder.path().join(name);
        let volume = format::create(&path, &array.layout(), Existing::Keep).unwrap();
        volume.write(&array.whole(), &array.bytes).unwrap();
        volume.finish().unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        refused(read(&path, &array), &[name, "bytes"]);
        fs::write(&path, &bytes[..9]).unwrap();
        refused(read(&path, &array), &[name]);
    }
}

#[test]
fn a_raw_file_must_be_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.raw");
    fs::write(&path, [0; 24]).unwrap();
    let open = |choices: Choices| format::open(&path, &choices).map(drop);
    refused(open(Choices::default()), &["a.raw", "does not say"]);
    let told = Choices { shape: Some(vec![3, 4]), dtype: Some(Dtype::UInt16), ..Choices::default() };
    open(told.clone()).unwrap();
    refused(open(Choices { shape: Some(vec![3, 5]), ..told.clone() }), &["24 bytes", "3 × 5", "byte 30"]);
    open(Choices { shape: Some(vec![3, 3]), offset: 6, big_endian: true, ..told }).unwrap();
}

#[test]
fn regions_must_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zarr");
    let array = Array::patterned(&[8, 8, 8], Dtype::Float32, 1);
    let layout = VolumeLayout { chunk: Some(Extent::new([4, 4, 4]).unwrap()), ..array.layout() };
    let volume = format::create(&path, &layout, Existing::Keep).unwrap();
    let region = |start: [u64; 3], size: [u64; 3]| Region::new(start, size).unwrap();
    assert!(volume.read(&region([0, 0, 5], [1, 1, 4]), &mut [0; 16]).is_err());
    assert!(volume.read(&region([0, 0, 4], [1, 1, 4]), &mut [0; 15]).is_err());
    let error = volume.write(&region([0, 0, 0], [4, 4, 6]), &[0; 384]).unwrap_err();
    assert!(error.to_string().contains("whole chunks"), "{error}");
    volume.finish().unwrap();
    let opened = format::open(&path, &Choices::default()).unwrap();
    refused(opened.write(&array.whole(), &array.bytes), &["opened for reading"]);
}

#[test]
fn what_exists_is_not_replaced_unasked() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.zarr", "a.npy"] {
        let path = folder.path().join(name);
        let array = volume(&path, false);
        refused(format::create(&path, &array.layout(), Existing::Keep).map(drop), &[name, "there already"]);
        refused(format::resume(&path, &Choices::default(), Existing::Keep).map(drop), &[name, "begun"]);
        read(&path, &array).unwrap();
        let successor = format::create(&path, &array.layout(), Existing::Replace).unwrap();
        read(&path, &array).unwrap();
        successor.finish().unwrap();
        let mut out = vec![1; array.bytes.len()];
        format::open(&path, &Choices::default()).unwrap().read(&array.whole(), &mut out).unwrap();
        assert!(out.iter().all(|byte| *byte == 0));
    }
}
