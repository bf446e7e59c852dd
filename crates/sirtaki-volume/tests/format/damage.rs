//! Whatever happens to the bytes of a file, reading it gives voxels or an error.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use sirtaki_volume::{
    Extent, Region,
    format::{self, Choices, Compression, Dtype, Existing},
};

use crate::array::Array;

/// Names of volumes, and how they are compressed.
const VOLUMES: [(&str, Compression); 7] = [
    ("a.npy", Compression::None),
    ("a.mrc", Compression::None),
    ("a.nii", Compression::None),
    ("a.tif", Compression::None),
    ("b.tif", Compression::Zlib(1)),
    ("a.zarr", Compression::Zstd(1, false)),
    ("b.zarr", Compression::Lz4),
];

fn write(path: &Path, compression: Compression, sharded: bool) {
    let array = Array::patterned(&[4, 17, 20], Dtype::Int16, 3);
    let mut layout = array.layout();
    layout.compression = compression;
    layout.chunk = Some(Extent::new([1, 16, 16]).unwrap());
    layout.shard = sharded.then(|| Extent::new([4, 32, 32]).unwrap());
    layout.axes[0].scale = 2.0;
    layout.axes[0].unit = Some("micrometer".to_owned());
    let volume = format::create(path, &layout, Existing::Keep).unwrap();
    volume.write(&array.whole(), &array.bytes).unwrap();
    volume.finish().unwrap();
}

/// All files of a volume.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut inside: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    inside.sort();
    inside.iter().flat_map(|path| files(path)).collect()
}

/// Opens a volume and reads some voxels in its corners.
fn read(path: &Path) {
    let Ok(volume) = format::open(path, &Choices::default()) else { return };
    let shape = volume.layout().shape.clone();
    let size: Vec<u64> = shape.sizes().iter().map(|size| *size.min(&20)).collect();
    let last: Vec<u64> = shape.sizes().iter().zip(&size).map(|(all, size)| all - size).collect();
    for start in [vec![0; size.len()], last] {
        let region = Region::new(start, size.clone()).unwrap();
        if region.voxels() <= 1 << 20 {
            let mut out = vec![0; region.voxels() as usize * volume.layout().dtype.size()];
            let _ = volume.read(&region, &mut out);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn nothing_panics(
        volume in 0..VOLUMES.len(),
        sharded in any::<bool>(),
        file in any::<usize>(),
        // Headers are short and decide most.
        changes in prop::collection::vec((prop_oneof![0_usize..600, any::<usize>()], any::<u8>()), 1..5),
        cut in prop::option::weighted(0.2, any::<usize>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let (name, compression) = VOLUMES[volume];
        let path = folder.path().join(name);
        write(&path, compression, sharded && name.ends_with("zarr"));
        let files = files(&path);
        let file = &files[file % files.len()];
        let mut bytes = fs::read(file).unwrap();
        for (at, value) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut % bytes.len()));
        fs::write(file, bytes).unwrap();
        read(&path);
    }
}
