//! What only zarr has: images with levels, groups, chunks that were never written.

use std::fs;

use sirtaki_volume::{
    Extent, Region,
    format::{self, Choices, Coarsen, Dtype, Existing, VolumeLayout, ZarrStyle},
};

use crate::array::Array;

fn image(array: &Array) -> VolumeLayout {
    let mut layout = VolumeLayout { chunk: Some(Extent::new([4, 4, 4]).unwrap()), ..array.layout() };
    for (axis, scale) in layout.axes.iter_mut().zip([2.0, 0.5, 0.5]) {
        axis.scale = scale;
        axis.unit = Some("micrometer".to_owned());
    }
    layout.attributes.insert("sample".to_owned(), "a leaf".into());
    layout
}

#[test]
fn levels_are_written_and_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let array =
        Array { bytes: (0..9 * 8 * 7).map(|at| (at % 251) as u8).collect(), shape: vec![9, 8, 7], dtype: Dtype::UInt8 };
    for version in [2, 3] {
        let path = folder.path().join(format!("v{version}.zarr"));
        let layout =
            VolumeLayout { zarr: Some(ZarrStyle { version, ome: true, ..ZarrStyle::default() }), ..image(&array) };
        let volume = format::create(&path, &layout, Existing::Keep).unwrap();
        volume.write(&array.whole(), &array.bytes).unwrap();
        volume.add_levels(5, Coarsen::First).unwrap();
        volume.finish().unwrap();

        let level = |level| format::open(&path, &Choices { level, ..Choices::default() });
        let finest = level(0).unwrap();
        assert_eq!(finest.layout().axes, layout.axes);
        assert_eq!(finest.layout().attributes["sample"], "a leaf");
        assert_eq!(finest.layout().zarr.unwrap().levels, 3);
        let second = level(1).unwrap();
        assert_eq!(second.layout().shape.sizes(), [5, 4, 4]);
        assert_eq!((second.layout().axes[0].scale, second.layout().axes[0].offset), (4.0, 1.0));
        let mut voxel = [0];
        second.read(&Region::new([4, 3, 3], [1, 1, 1]).unwrap(), &mut voxel).unwrap();
        assert_eq!(voxel.to_vec(), array.read(&Region::new([8, 6, 6], [1, 1, 1]).unwrap()));
        let error = level(3).unwrap_err();
        assert!(error.to_string().contains("no level 3") && error.hint() == Some("choose one of 0 to 2"), "{error:?}");

        // An array named by itself knows its place in the image.
        let named = format::open(&path.join("1"), &Choices::default()).unwrap();
        assert_eq!(named.layout().axes, second.layout().axes);
    }
}

#[test]
fn a_voxel_size_makes_an_image() {
    let folder = tempfile::tempdir().unwrap();
    let array = Array::patterned(&[5, 6, 7], Dtype::UInt16, 1);
    let path = folder.path().join("a.zarr");
    format::create(&path, &image(&array), Existing::Keep).unwrap().finish().unwrap();
    let read = format::open(&path, &Choices::default()).unwrap();
    assert_eq!(read.layout().axes, image(&array).axes);
    assert!(path.join("0/zarr.json").exists());
}

#[test]
fn a_group_names_its_arrays() {
    let folder = tempfile::tempdir().unwrap();
    let array = Array::patterned(&[5, 6, 7], Dtype::UInt16, 1);
    let group = folder.path().join("group.zarr");
    fs::create_dir(&group).unwrap();
    fs::write(group.join("zarr.json"), r#"{"zarr_format": 3, "node_type": "group"}"#).unwrap();
    format::create(&group.join("raw.zarr"), &array.layout(), Existing::Keep).unwrap().finish().unwrap();
    let error = format::open(&group, &Choices::default()).unwrap_err();
    assert!(error.hint().unwrap().ends_with("group.zarr/raw.zarr"), "{error:?}");
}

#[test]
fn empty_chunks_take_no_space_and_are_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.zarr");
    let array = Array::patterned(&[8, 8, 8], Dtype::Float32, 2);
    let layout = VolumeLayout { chunk: Some(Extent::new([4, 8, 8]).unwrap()), ..array.layout() };
    let volume = format::create(&path, &layout, Existing::Keep).unwrap();
    volume.write(&array.whole(), &array.bytes).unwrap();
    let half = Region::new([4, 0, 0], [4, 8, 8]).unwrap();
    volume.write(&half, &vec![0; 4 * 64 * 4]).unwrap();
    volume.finish().unwrap();
    assert!(path.join("c/0/0/0").exists() && !path.join("c/1/0/0").exists());
    let mut out = vec![1; 4 * 64 * 4];
    format::open(&path, &Choices::default()).unwrap().read(&half, &mut out).unwrap();
    assert!(out.iter().all(|byte| *byte == 0));
}

#[test]
fn many_write_and_read_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let array = Array::patterned(&[16, 16, 16], Dtype::UInt32, 5);
    let layout = VolumeLayout {
        chunk: Some(Extent::new([2, 4, 4]).unwrap()),
        shard: Some(Extent::new([4, 8, 16]).unwrap()),
        ..array.layout()
    };
    let path = folder.path().join("a.zarr");
    format::create(&path, &layout, Existing::Keep).unwrap();
    let shards: Vec<Region> = (0..8).map(|at| Region::new([at / 2 * 4, at % 2 * 8, 0], [4, 8, 16]).unwrap()).collect();
    // Two writers compute every shard, as when a slow one was given up too early.
    std::thread::scope(|threads| {
        for first in 0..4 {
            let (shards, array, path) = (&shards, &array, &path);
            threads.spawn(move || {
                let volume = format::resume(path, &Choices::default(), Existing::Keep).unwrap();
                for shard in shards.iter().skip(first % 2).step_by(2) {
                    volume.write(shard, &array.read(shard)).unwrap();
                    let mut out = vec![0; shard.voxels() as usize * 4];
                    volume.read(shard, &mut out).unwrap();
                    assert_eq!(out, array.read(shard));
                }
            });
        }
    });
    format::resume(&path, &Choices::default(), Existing::Keep).unwrap().finish().unwrap();
    let volume = format::open(&path, &Choices::default()).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                let mut out = vec![0; array.bytes.len()];
                volume.read(&array.whole(), &mut out).unwrap();
                assert_eq!(out, array.bytes);
            });
        }
    });
    assert!(!path.join(".temporary").exists());
}
