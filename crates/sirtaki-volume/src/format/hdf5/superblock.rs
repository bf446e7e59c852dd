//! The first bytes of an HDF5 file: what is checked before the library is given it, or even looked for.
//!
//! The library would notice as well, but in words that name its own variables.

use std::{fs::File, path::Path};

use crate::{
    VolumeError,
    format::{DAMAGED, TRUNCATED, read_up_to},
};

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
/// The signature may stand at 0 or at this place and twice, four times as far and so on, behind somebody else's bytes.
const SECOND: u64 = 512;
/// As much of a superblock as is looked at.
const LONGEST: usize = 64;

/// Whether a file starts like HDF5.
pub(in crate::format) fn recognise(head: &[u8]) -> bool {
    head.starts_with(SIGNATURE)
}

/// Fails if a file is none of HDF5, or is cut short.
pub(super) fn check(path: &Path) -> Result<(), VolumeError> {
    let file = File::open(path).map_err(VolumeError::io(path))?;
    let length = file.metadata().map_err(VolumeError::io(path))?.len();
    let doubled = std::iter::successors(Some(SECOND), |at| at.checked_mul(2));
    for at in std::iter::once(0).chain(doubled).take_while(|at| *at < length) {
        let mut bytes = [0; LONGEST];
        let read = read_up_to(&file, &mut bytes, at).map_err(VolumeError::io(path))?;
        if !recognise(&bytes[..read]) {
            continue;
        }
        return match end(&bytes[..read]) {
            Some(end) if end > length => {
                let problem = format!("{length} bytes, but it says that it ends at byte {end}");
                Err(VolumeError::format(path, problem, TRUNCATED))
            }
            Some(_) => Ok(()),
            None => Err(VolumeError::format(path, "it ends within its first bytes", TRUNCATED)),
        };
    }
    Err(VolumeError::format(path, "this is not an HDF5 file", DAMAGED))
}

/// Where a file says that it ends; 0 where that is not known, and nothing where its superblock is not whole.
fn end(superblock: &[u8]) -> Option<u64> {
    let (width, before) = match superblock.get(8)? {
        version @ (0 | 1) => (*superblock.get(13)?, if *version == 0 { 24 } else { 28 }),
        2 | 3 => (*superblock.get(9)?, 12),
        _ => return Some(0),
    };
    let width = usize::from(width);
    if !matches!(width, 2 | 4 | 8) {
        return Some(0);
    }
    // Behind the addresses of where it begins and of its free space or extension.
    let place = before + 2 * width;
    let bytes = superblock.get(place..place + width)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(version: u8, width: u8, end: u64) -> Vec<u8> {
        let mut bytes = SIGNATURE.to_vec();
        bytes.push(version);
        match version {
            0 => bytes.extend([0, 0, 0, 0, width, width, 0, 4, 0, 16, 0, 0, 0, 0, 0]),
            1 => bytes.extend([0, 0, 0, 0, width, width, 0, 4, 0, 16, 0, 0, 0, 0, 0, 32, 0, 0, 0]),
            _ => bytes.extend([width, width, 0]),
        }
        bytes.extend(vec![0; 2 * usize::from(width)]);
        bytes.extend(&end.to_le_bytes()[..usize::from(width)]);
        bytes
    }

    #[test]
    fn the_end_is_found_in_every_version() {
        for version in 0..4 {
            for width in [4, 8] {
                let bytes = superblock(version, width, 123_456);
                assert_eq!(end(&bytes), Some(123_456), "version {version}, {width} bytes");
                assert_eq!(end(&bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(end(&superblock(9, 8, 5)), Some(0));
        let mut unknown = superblock(2, 8, 5);
        unknown[9] = 200;
        assert_eq!(end(&unknown), Some(0));
    }

    #[test]
    fn the_signature_may_stand_further_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let problem = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            check(&path).err().map(|error| error.to_string())
        };
        let behind = |at: usize, end: u64| [vec![7; at], superblock(2, 8, end), vec![0; 100]].concat();
        for at in [0, 512, 1024] {
            assert_eq!(problem(&behind(at, 60)), None);
            assert!(problem(&behind(at, 9999)).unwrap().contains("ends at byte 9999"));
        }
        for bytes in [vec![], vec![0; 3000], behind(513, 60)] {
            assert!(problem(&bytes).unwrap().contains("not an HDF5 file"));
        }
        assert!(problem(&behind(0, 60)[..20]).unwrap().contains("within its first bytes"));
    }
}
