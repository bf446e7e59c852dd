//! What is written is read again, region by region, whatever the format, type, chunks and compression.

use std::path::Path;

use proptest::prelude::*;
use sirtaki_volume::{
    Extent, Region,
    format::{
        self, AxisKind, Blosc, BloscInner, Choices, Compression, Dtype, Existing, Shuffle, Volume, VolumeLayout,
        ZarrStyle,
    },
};

use crate::array::{Array, arrays, dtypes, numbers, region_of};

/// Writes all units of a volume, the second half of them through another value, as after the death of a process.
fn write(path: &Path, layout: &VolumeLayout, array: &Array) {
    let choices = Choices { shape: Some(array.shape.clone()), dtype: Some(array.dtype), ..Choices::default() };
    let created = format::create(path, layout, Existing::Keep).unwrap();
    let units = units(created.layout());
    let (first, second) = units.split_at(units.len() / 2);
    let put = |volume: &dyn Volume, units: &[Region]| {
        units.iter().for_each(|unit| volume.write(unit, &array.read(unit)).unwrap());
    };
    put(&*created, first);
    drop(created);
    assert!(!path.exists());
    let resumed = format::resume(path, &choices, Existing::Keep).unwrap();
    put(&*resumed, second);
    resumed.finish().unwrap();
}

/// Regions of whole units that cover a volume; where any region will do, slabs.
fn units(layout: &VolumeLayout) -> Vec<Region> {
    let (sizes, mut unit) = (layout.shape.sizes(), layout.unit());
    if unit.iter().all(|size| *size == 1) {
        unit = sizes.iter().map(|size| size.div_ceil(2)).collect();
    }
    let counts: Vec<u64> = sizes.iter().zip(&unit).map(|(size, unit)| size.div_ceil(*unit)).collect();
    let at = |number: u64| {
        let mut rest = number;
        let mut start = vec![0; sizes.len()];
        for axis in (0..sizes.len()).rev() {
            start[axis] = rest % counts[axis] * unit[axis];
            rest /= counts[axis];
        }
        let size: Vec<u64> = (0..sizes.len()).map(|axis| unit[axis].min(sizes[axis] - start[axis])).collect();
        Region::new(start, size).unwrap()
    };
    (0..counts.iter().product()).map(at).collect()
}

/// Writes a volume and compares regions of it; returns what the file says of itself.
fn check(name: &str, layout: &VolumeLayout, array: &Array, regions: &[Vec<(u64, u64)>]) -> VolumeLayout {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    write(&path, layout, array);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something is left beside the volume");
    let choices = Choices { shape: Some(array.shape.clone()), dtype: Some(array.dtype), ..Choices::default() };
    let volume = format::open(&path, &choices).unwrap();
    assert_eq!((volume.layout().shape.sizes(), volume.layout().dtype), (array.shape.as_slice(), array.dtype));
    let regions = regions.iter().map(|numbers| region_of(&array.shape, numbers)).chain([array.whole()]);
    for region in regions {
        let mut out = vec![0xEE; region.voxels() as usize * array.dtype.size()];
        volume.read(&region, &mut out).unwrap();
        assert_eq!(out, array.read(&region), "{region} of {:?}", volume.layout());
    }
    volume.layout().clone()
}

const MRC: [Dtype; 5] = [Dtype::Int8, Dtype::Int16, Dtype::UInt16, Dtype::Float16, Dtype::Float32];
const NIFTI: [Dtype; 6] = [Dtype::Int8, Dtype::UInt8, Dtype::Int16, Dtype::UInt32, Dtype::Float32, Dtype::UInt64];
const TIFF: [Dtype; 7] =
    [Dtype::Int8, Dtype::UInt8, Dtype::Int16, Dtype::UInt32, Dtype::Float16, Dtype::Float64, Dtype::UInt64];

fn of(dtypes: &[Dtype]) -> impl Strategy<Value = Dtype> + use<> {
    prop::sample::select(dtypes.to_vec())
}

/// The same with a size of voxels.
fn scaled(mut layout: VolumeLayout, unit: &str) -> VolumeLayout {
    for axis in layout.axes.iter_mut().filter(|axis| axis.kind == AxisKind::Space) {
        axis.scale = 0.5;
        axis.unit = Some(unit.to_owned());
    }
    layout
}

fn compressions() -> impl Strategy<Value = Compression> {
    let inner = prop::sample::select(vec![BloscInner::Lz4, BloscInner::Zstd, BloscInner::Zlib]);
    let shuffle = prop::sample::select(vec![Shuffle::None, Shuffle::Bytes, Shuffle::Bits]);
    prop_oneof![
        Just(Compression::None),
        Just(Compression::Gzip(3)),
        Just(Compression::Zlib(3)),
        Just(Compression::Zstd(1, true)),
        Just(Compression::Lz4),
        (inner, shuffle).prop_map(|(inner, shuffle)| Compression::Blosc(Blosc { inner, level: 5, shuffle })),
    ]
}

/// How an array of zarr is stored: sizes of chunks, chunks in a shard, version and separator.
fn zarr_layouts() -> impl Strategy<Value = (Vec<u64>, Option<Vec<u64>>, ZarrStyle, Compression, bool)> {
    let chunks = prop::collection::vec(1_u64..8, 5);
    let shards = prop::option::of(prop::collection::vec(1_u64..4, 5));
    let style = (2_u8..4, any::<bool>(), any::<bool>()).prop_map(|(version, slash, ome)| ZarrStyle {
        version,
        ome,
        levels: 1,
        separator: if slash { '/' } else { '.' },
    });
    (chunks, shards, style, compressions(), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn npy_and_raw(array in arrays(1..=5, dtypes()), regions in prop::collection::vec(numbers(), 4)) {
        check("a.npy", &array.layout(), &array, &regions);
        check("a.raw", &array.layout(), &array, &regions);
    }

    #[test]
    fn mrc(array in arrays(3..=4, of(&MRC)), regions in prop::collection::vec(numbers(), 4)) {
        check("a.mrc", &scaled(array.layout(), "angstrom"), &array, &regions);
    }

    #[test]
    fn nifti(array in arrays(1..=5, of(&NIFTI)), regions in prop::collection::vec(numbers(), 4)) {
        let layout = scaled(array.layout(), "millimeter");
        let read = check("a.nii", &layout, &array, &regions);
        prop_assert_eq!(read.axes.last(), layout.axes.last());
    }

    #[test]
    fn zarr(
        array in arrays(1..=4, dtypes()),
        (chunk, shard, zarr, compression, checksum) in zarr_layouts(),
        fill in any::<bool>(),
        regions in prop::collection::vec(numbers(), 4),
    ) {
        let axes = array.shape.len();
        let shard: Option<Vec<u64>> = shard.map(|shard| (0..axes).map(|axis| shard[axis] * chunk[axis]).collect());
        let mut layout = VolumeLayout {
            chunk: Some(Extent::new(&chunk[..axes]).unwrap()),
            shard: shard.filter(|_| zarr.version == 3).map(|shard| Extent::new(shard).unwrap()),
            compression,
            checksum: checksum && zarr.version == 3,
            zarr: Some(zarr),
            ..array.layout()
        };
        if fill && array.dtype != Dtype::Bool {
            layout.fill[0] = 7;
        }
        let read = check("a.zarr", &layout, &array, &regions);
        prop_assert_eq!((&read.chunk, &read.shard, read.checksum), (&layout.chunk, &layout.shard, layout.checksum));
        prop_assert_eq!(&read.fill, &layout.fill);
        prop_assert_eq!(&read.axes, &layout.axes);
        let kept = zarr.version == 2 || !matches!(compression, Compression::Zlib(_) | Compression::Lz4);
        prop_assert!(!kept || read.compression == compression, "{:?}", read.compression);
    }
}

#[test]
fn voxels_that_look_like_the_mark_of_a_larger_format_are_voxels() {
    let array = Array { shape: vec![4, 8], dtype: Dtype::UInt8, bytes: vec![b'+'; 32] };
    check("a.tif", &array.layout(), &array, &[]);
}

// Every piece of a page is a file until the end, so these are fewer.
proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn tiff(
        array in arrays(2..=4, of(&TIFF)),
        chunk in prop::collection::vec(1_u64..15, 5),
        deflate in any::<bool>(),
        regions in prop::collection::vec(numbers(), 4),
    ) {
        let mut layout = scaled(array.layout(), "micrometer");
        if deflate {
            layout.compression = Compression::Zlib(1);
            layout.chunk = Some(Extent::new(&chunk[..array.shape.len()]).unwrap());
        }
        let read = check("a.tif", &layout, &array, &regions);
        // OME-XML has no names for these types, and so no place for the size of their voxels.
        let plain = matches!(array.dtype, Dtype::Float16 | Dtype::Int64 | Dtype::UInt64);
        prop_assert!(plain || read.axes == layout.axes, "{:?}", read.axes);
    }
}
