//! Any bytes are a volume or none, whatever the format; JSON is what describes an array of zarr. One that opens has
//! voxels in its first corner, or says why not. HDF5's library is not loaded, whatever the machine has: what it does with
//! bytes is not ours.

use std::{env, fs, path::Path, process};

use sirtaki_volume::{
    Region,
    format::{self, Choices, Hdf5Candidates},
};

pub(crate) fn check(bytes: &[u8]) {
    format::hdf5_from(Hdf5Candidates { given: Some("/nowhere".into()), package: Box::new(|| None) });
    let path = env::temp_dir().join(format!("sirtaki-fuzz-{}", process::id()));
    let described = bytes.starts_with(b"{");
    let file = if described { path.join("zarr.json") } else { path.with_extension("volume") };
    if described {
        fs::create_dir_all(&path).expect("a folder for temporary files");
    }
    fs::write(&file, bytes).expect("space for temporary files");
    read(if described { &path } else { &file });
}

fn read(path: &Path) {
    let Ok(volume) = format::open(path, &Choices::default()) else { return };
    let layout = volume.layout();
    assert_eq!((layout.axes.len(), layout.unit().len()), (layout.shape.axes(), layout.shape.axes()));
    let size: Vec<u64> = layout.shape.sizes().iter().map(|size| *size.min(&3)).collect();
    let Ok(corner) = Region::new(vec![0; size.len()], size) else { return };
    if corner.voxels() <= 1 << 16 {
        let mut out = vec![0; corner.voxels() as usize * layout.dtype.size()];
        let _ = volume.read(&corner, &mut out);
    }
}
