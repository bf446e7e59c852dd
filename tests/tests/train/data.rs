//! `sirtaki train --data`: data sets of people's own, in all their forms, and the benchmark without one.

use std::{fs, path::Path, process::Command};

use image::RgbImage;
use serde_json::Value;
use sirtaki_tests::launch::{Finished, Launch};

use super::{Place, number};

/// A folder of images of two classes, which differ in their brightness.
fn photos(place: &Place, count: u32) {
    for (class, light) in [("day", 200), ("night", 20)] {
        fs::create_dir_all(place.path(&format!("photos/{class}"))).unwrap();
        for number in 0..count {
            let pixel = |x: u32, y: u32| image::Rgb([light, (x * 5 + number) as u8, (y * 3 + number) as u8]);
            let image = RgbImage::from_fn(12, 12, pixel);
            image.save(place.path(&format!("photos/{class}/{number}.png"))).unwrap();
        }
    }
}

/// A table of two classes that one number tells apart.
fn table(place: &Place, name: &str) {
    let line = |number: usize| {
        let (class, near) = if number.is_multiple_of(2) { ("low", 1.0) } else { ("high", 9.0) };
        format!("{},{},{class}\n", near + (number % 5) as f64 / 10.0, number % 7)
    };
    fs::write(place.path(name), format!("size,other,label\n{}", (0..120).map(line).collect::<String>())).unwrap();
}

/// An `.npy` file.
fn array(path: &Path, kind: &str, shape: &str, values: Vec<u8>) {
    let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    fs::write(path, [b"\x93NUMPY\x01\x00".as_slice(), &length, header.as_bytes(), &values].concat()).unwrap();
}

#[test]
fn images_in_folders_are_found_and_damaged_ones_are_named() {
    let place = Place::new();
    photos(&place, 40);
    fs::write(place.path("photos/day/no.png"), "no image").unwrap();
    let whole = fs::read(place.path("photos/night/0.png")).unwrap();
    fs::write(place.path("photos/night/cut.png"), &whole[..whole.len() * 2 / 3]).unwrap();
    let common = "--data photos --epochs 3 --reproducible --global-batch 8 --shards 2 --lr 0.05 --json report.json";
    let run = |arguments: &str| -> (Finished, Value) {
        let done = place.train(&format!("{common} {arguments}"));
        assert_eq!(done.code, 0, "{}", done.message());
        (done, serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap())
    };
    let (done, report) = run("-n 1");
    let message = done.message();
    for text in [
        "image folder: 81 images of 12×12 pixels and 3 channels in 2 classes; 8 of them set aside to test with",
        "left out, because they cannot be read: 1\n",
        "day/no.png`: content: this is neither a PNG nor a JPEG image",
        "replaced by others, because they cannot be decoded: 1\n",
        "night/cut.png`: content: the image cannot be decoded",
        "training cnn",
    ] {
        assert!(message.contains(text), "{text}: {message}");
    }
    assert!(number(&report, "test_accuracy") > 0.9, "{report}");
    let (done, other) = run("-n 2");
    assert!(done.message().contains("night/cut.png`: content"), "{}", done.message());
    assert_eq!((&report["weights"], &report["test_accuracy"]), (&other["weights"], &other["test_accuracy"]));
    // Other files are another data set to a checkpoint.
    let common = "--data photos -n 1 --batch-size 8 --checkpoint-dir mine";
    place.report(&format!("{common} --max-steps 1"));
    fs::rename(place.path("photos/day/1.png"), place.path("photos/day/one.png")).unwrap();
    let done = place.train(&format!("{common} --max-steps 2 --resume"));
    assert!(done.code != 0 && done.message().contains("data: it was images of 12 by 12"), "{}", done.message());
}

#[test]
fn tables_and_arrays_are_learned_by_the_networks_that_suit_them() {
    let place = Place::new();
    table(&place, "sizes.csv");
    let text = fs::read_to_string(place.path("sizes.csv")).unwrap();
    fs::write(place.path("sizes.csv"), format!("{text}3,many,low\n")).unwrap();
    let done = place.train("--data sizes.csv -n 2 --epochs 10 --batch-size 8 --lr 0.05 --json report.json");
    let message = done.message();
    assert_eq!(done.code, 0, "{message}");
    for text in [
        "table: 120 rows of 2 numbers in 2 classes; 12 of them set aside to test with",
        "left out, because they cannot be read: 1\n",
        "sizes.csv`: line 122: `many` in column 2 (`other`) is not a number",
        "training mlp (",
        "on 108 rows, testing on 12; 2 workers with 8 rows per step each",
    ] {
        assert!(message.contains(text), "{text}: {message}");
    }
    let report: Value = serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap();
    assert!(number(&report, "test_accuracy") > 0.9, "{report}");
    // What one worker does alone is measured before and after, and all of it is told.
    let turns: Vec<f64> = report["turns_of_one_worker"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    let one = number(&report, "samples_per_second_one_worker");
    assert_eq!(turns.len(), 6, "{report}");
    assert!(turns.iter().any(|&turn| turn <= one) && turns.iter().any(|&turn| turn >= one), "{report}");
    assert!(done.out.iter().any(|line| line.starts_with("speed-up") && line.contains("in 6 turns")), "{:?}", done.out);

    fs::create_dir(place.path("arrays")).unwrap();
    let pixels: Vec<u8> =
        (0..60 * 64).map(|place| if place / 64 % 3 == 1 { 220 } else { (place % 90) as u8 }).collect();
    array(&place.path("arrays/images.npy"), "|u1", "(60, 8, 8)", pixels);
    let labels: Vec<u8> = (0..60_i64).flat_map(|place| i64::from(place % 3 == 1).to_le_bytes()).collect();
    array(&place.path("arrays/labels.npy"), "<i8", "(60,)", labels);
    let done = place.train("--data arrays -n 1 --epochs 4 --batch-size 4 --lr 0.02 --json report.json");
    assert_eq!(done.code, 0, "{}", done.message());
    let found = "arrays: 60 images of 8×8 pixels in 2 classes; 6 of them set aside to test with";
    assert!(done.message().contains(found) && done.message().contains("training cnn"), "{}", done.message());
    let report: Value = serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap();
    assert!(number(&report, "test_accuracy") > 0.8, "{report}");
}

#[test]
fn data_sets_that_do_not_fit_are_refused() {
    let place = Place::new();
    table(&place, "sizes.csv");
    photos(&place, 2);
    fs::create_dir_all(place.path("bad/class")).unwrap();
    fs::write(place.path("bad/class/one.jpg"), "no image").unwrap();
    fs::write(place.path("values.csv"), "1,0.5\n2,0.25\n").unwrap();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("other.bin"), "").unwrap();
    for (arguments, says) in [
        ("--data sizes.csv --model lenet", "a data set of rows of numbers, and lenet classifies images"),
        ("--data sizes.csv --model lenet", "choose --model mlp"),
        ("--data photos --model transformer", "a data set of images, and transformer continues text"),
        ("--data photos --model lenet --batch-size 1", "images of 12 by 12 pixels are too small"),
        ("--data bad", "bad/class/one.jpg`: content: this is neither a PNG nor a JPEG image"),
        ("--data values.csv", "which is a fraction"),
        ("--data empty", "there is no data set in this folder"),
        ("--data empty", "a folder with a folder of PNG or JPEG images for each class"),
        ("--data other.bin", "this is not a data set"),
        ("--data photos --batch-size 1 --image-size 99999", "images cannot be made 99999 high"),
        ("--data photos --model resnet18 --precision bf16", "the batch norm of resnet18 keeps running statistics"),
    ] {
        let refused = place.refused(&format!("-n 1 {arguments}"));
        assert!(refused.contains(says), "{arguments}: {refused}");
    }
    assert!(!place.path("runs").exists());
}

#[test]
fn batch_norm_ends_with_the_same_bits_on_any_number_of_workers() {
    let place = Place::new();
    photos(&place, 8);
    let files = |folder: &str, arguments: &str| {
        let common = "--data photos --model resnet18 --reproducible --shards 2 --global-batch 4 --max-steps 2 --keep 1";
        place.report(&format!("{common} --checkpoint-dir {folder} {arguments}"));
        fs::read(place.path(folder).join("checkpoint-000001/tensors.safetensors")).unwrap()
    };
    let alone = files("one", "-n 1");
    assert!(files("two", "-n 2") == alone, "another number of workers");
    assert!(files("staged", "-n 2 --mesh pipe=2") == alone, "stages on different workers");
}

#[test]
fn a_benchmark_measures_rounds_of_steps() {
    let place = Place::new();
    let bench = |arguments: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
        command.current_dir(place.0.path()).args(["bench", "train"]).args(arguments.split_whitespace());
        Launch::start(command).ends()
    };
    let few = "--num-warmup-batches 1 --num-batches-per-iter 2 --num-iters 3 --batch-size 4";
    let done = bench(&format!("-n 2 --model cnn --synthetic {few} --json report.json"));
    assert_eq!(done.code, 0, "{}", done.message());
    for text in ["made-up images of 28×28 pixels in 10 classes", "measuring cnn (1,199,882 weights)", "round 3  "] {
        assert!(done.message().contains(text), "{text}: {}", done.message());
    }
    for (name, says) in [("per worker", "3 rounds of 2 steps"), ("in all", "2 workers, 8 images per step")] {
        let line = done.out.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{:?}", done.out));
        assert!(line.contains(" ± ") && line.contains("images/s") && line.contains(says), "{line}");
    }
    let report: Value = serde_json::from_slice(&fs::read(place.path("report.json")).unwrap()).unwrap();
    let rounds = report["rounds"].as_array().unwrap();
    assert!(rounds.len() == 3 && rounds.iter().all(|rate| rate.as_f64().unwrap() > 0.0), "{report}");
    assert!(!place.path("runs").exists(), "nothing is recorded");
    // With a data set, whose epochs are shorter than the rounds.
    table(&place, "sizes.csv");
    let done =
        bench("-n 1 --data sizes.csv --num-warmup-batches 0 --num-batches-per-iter 60 --num-iters 1 --batch-size 4");
    assert!(done.code == 0 && done.out.iter().any(|line| line.contains("rows/s")), "{}", done.message());
    let done = bench("-n 1 --model transformer --synthetic");
    assert!(done.code == 1 && done.message().contains("transformer is not for images"), "{}", done.message());
}
