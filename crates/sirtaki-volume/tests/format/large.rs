//! Volumes of more than 4 GiB, in files that are mostly holes.

use sirtaki_volume::{
    Extent, Region,
    format::{self, Choices, Dtype, Existing, VolumeLayout},
};

#[test]
fn places_beyond_four_gibibytes_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let layout = VolumeLayout::new(Extent::new([5, 1 << 15, 1 << 15]).unwrap(), Dtype::UInt8);
    let last = Region::new([4, (1 << 15) - 2, 7], [1, 2, 3]).unwrap();
    for name in ["a.npy", "a.tif", "a.nii"] {
        let path = folder.path().join(name);
        let volume = format::create(&path, &layout, Existing::Keep).unwrap();
        volume.write(&last, &[1, 2, 3, 4, 5, 6]).unwrap();
        volume.finish().unwrap();
        let volume = format::open(&path, &Choices::default()).unwrap();
        let mut out = [0; 6];
        volume.read(&last, &mut out).unwrap();
        assert_eq!(out, [1, 2, 3, 4, 5, 6], "{name}");
        volume.read(&Region::new([0, (1 << 15) - 2, 7], [1, 2, 3]).unwrap(), &mut out).unwrap();
        assert_eq!(out, [0; 6], "{name}");
    }
}
