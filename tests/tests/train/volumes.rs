//! `sirtaki train --model msd`: voxels instead of images.

use std::{fs, path::Path};

use serde_json::Value;

use super::{DATA, Place, number};

/// Writes an array of NumPy.
fn write(path: &Path, shape: &[usize], kind: &str, bytes: &[u8]) {
    let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({},), }}", shape.join(", "));
    let header = format!("{text:<117}\n");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let start = [b"\x93NUMPY\x01\x00".as_slice(), &118_u16.to_le_bytes(), header.as_bytes()].concat();
    fs::write(path, [&start, bytes].concat()).unwrap();
}

/// A folder with a plane and a volume of stripes under noise, each with where its stripes are.
fn place() -> Place {
    let place = Place::new();
    for (folder, shape) in [("planes", vec![40, 30]), ("volumes", vec![12, 12, 26])] {
        let (count, width) = (shape.iter().product::<usize>(), shape[shape.len() - 1]);
        let label = |voxel: usize| (voxel % width / 5 % 2) as u8;
        let noise = |voxel: usize| (voxel.wrapping_mul(2_654_435_761) >> 8 & 0xff) as f32 / 128.0;
        let values = (0..count).map(|voxel| 7.0 + f32::from(label(voxel)) + noise(voxel));
        let inputs: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        write(&place.path(folder).join("inputs/one.npy"), &shape, "<f4", &inputs);
        let labels: Vec<u8> = (0..count).map(label).collect();
        write(&place.path(folder).join("labels/one.npy"), &shape, "|u1", &labels);
    }
    place
}

#[test]
fn it_learns_voxels_and_reports_patches() {
    let place = place();
    let common = "--model msd --data volumes --depth 4 --patch 8 -n 2 --lr 0.01 --target-accuracy 0.8 --epochs 3";
    let done = place.train(&format!("{common} --json report.json --export net.onnx"));
    assert_eq!(done.code, 0, "{}", done.message());
    for text in ["test accuracy", "time to target", "throughput", "network         net.onnx"] {
        assert!(done.out.iter().any(|line| line.starts_with(text)), "{text}: {:?}", done.out);
    }
    // The part to test with has room for one patch; weights of 27 voxels over 1 to 4 maps, and of scores over 5.
    for text in ["msd (286 weights) on 64 patches, testing on 1; 2 workers with 4 patches per step each", "patches/s"] {
        assert!(done.message().contains(text), "{text}: {}", done.message());
    }
    let report: Value = serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap();
    assert!(number(&report, "test_accuracy") > 0.8, "{report}");
    assert_eq!((&report["optimizer"], &report["domain"]), (&"adam".into(), &"volumes".into()));
    assert!(fs::read(place.path("net.onnx")).unwrap().len() > 4 * 286);
}

#[test]
fn any_number_of_workers_ends_with_the_same_bits_and_the_same_network() {
    let place = place();
    let common = "--model msd --data planes --depth 3 --width 2 --patch 9 --reproducible --shards 4 --global-batch 8";
    let weights = |folder: &str, arguments: &str| {
        place.weights(&format!("{common} --checkpoint-dir {folder} {arguments} --export {folder}.onnx"))
    };
    // Ten steps are more than an epoch, so that patches are drawn anew.
    let alone = weights("one", "-n 1 --max-steps 10");
    assert_eq!(weights("two", "-n 2 --max-steps 10"), alone);
    assert_ne!(weights("moved", "-n 2 --max-steps 3"), alone);
    assert_eq!(weights("moved", "-n 4 --max-steps 10 --resume --shard-optimizer"), alone);
    let network = |folder: &str| fs::read(place.path(&format!("{folder}.onnx"))).unwrap();
    assert!(network("one") == network("two") && network("one") == network("moved"));
    // A finished run writes its network again.
    fs::remove_file(place.path("one.onnx")).unwrap();
    assert_eq!(weights("one", "-n 1 --max-steps 10 --resume"), alone);
    assert!(network("one") == network("two"));
    let done = place.train(&format!("{common} --checkpoint-dir one -n 1 --max-steps 11 --resume --depth 4"));
    assert!(done.code != 0 && done.message().contains("--depth"), "{}", done.message());
}

#[test]
fn what_does_not_fit_is_refused() {
    let place = place();
    fs::create_dir_all(place.path("empty")).unwrap();
    write(&place.path("other/inputs/a.npy"), &[9, 9], "|u1", &[1; 81]);
    write(&place.path("other/labels/b.npy"), &[9, 9], "|u1", &[1; 81]);
    for (arguments, says) in [
        ("--model msd", "there are no volumes to train with"),
        ("--model msd --data nowhere", "this is not a folder"),
        ("--model msd --data empty", "there are no pairs of volumes in it"),
        ("--model msd --data other", "`a` is only in one of the folders inputs and labels"),
        (&format!("--model msd --data {DATA}"), "a data set of images, and msd classifies voxels"),
        ("--model lenet --data planes", "a data set of volumes, and lenet classifies images"),
        ("--model transformer --data planes", "a data set of volumes, and transformer continues text"),
        ("--model lenet --patch 8", "--patch is the size of patches of volumes"),
        ("--model lenet --depth 8", "the size of lenet is fixed"),
        ("--model cnn --export net.onnx", "cnn cannot be written as an ONNX file"),
        ("--model msd --data planes --export nowhere/net.onnx", "nowhere/net.onnx"),
        ("--model msd --data planes --global-batch 1000", "steps of 1000 patches"),
    ] {
        let refused = place.refused(&format!("-n 1 {arguments}"));
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
    let refused = place.refused("-n 2 --model msd --data planes --export net.onnx --shard-parameters");
    assert!(refused.contains("divided among workers cannot be written"), "{refused}");
    let staged = place.train("-n 2 --model msd --data planes --mesh pipe=2");
    assert!(staged.code != 0 && staged.message().contains("too few for 2 stages"), "{}", staged.message());
    assert!(!place.path("net.onnx").exists());
}
