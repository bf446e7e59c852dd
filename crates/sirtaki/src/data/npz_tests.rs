use std::io::{Cursor, Write};

use flate2::{Compression, Crc, write::DeflateEncoder};
use proptest::prelude::*;

use super::{super::Values, *};
use crate::data::npy::tests::encode;

/// A zip file as Python writes it: sizes before an entry may be left open, those in the directory are valid. A `large`
/// one has its numbers in the fields for more than 32 bits, as files beyond 4 GiB have to.
fn zip(entries: &[(&str, &[u8])], packed: bool, large: bool) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let mut crc = Crc::new();
        crc.update(content);
        let stored = if packed {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(content).unwrap();
            encoder.finish().unwrap()
        } else {
            content.to_vec()
        };
        let start = file.len() as u32;
        let method: u16 = if packed { 8 } else { 0 };
        file.extend(b"PK\x03\x04\x2d\0\0\0");
        file.extend(method.to_le_bytes());
        file.extend([0; 4]);
        file.extend([255; 12]);
        file.extend((name.len() as u16).to_le_bytes());
        file.extend(20_u16.to_le_bytes());
        file.extend(name.as_bytes());
        file.extend([0; 20]);
        file.extend(&stored);
        directory.extend(b"PK\x01\x02\x2d\x03\x2d\0\0\0");
        directory.extend(method.to_le_bytes());
        directory.extend([0; 4]);
        let short = |number: u32| if large { u32::MAX.to_le_bytes() } else { number.to_le_bytes() };
        let long = [content.len() as u64, stored.len() as u64, start.into()].map(u64::to_le_bytes).concat();
        let more = if large { [[1, 0, 24, 0].as_slice(), &long].concat() } else { Vec::new() };
        directory.extend(crc.sum().to_le_bytes());
        directory.extend(short(stored.len() as u32));
        directory.extend(short(content.len() as u32));
        directory.extend((name.len() as u16).to_le_bytes());
        directory.extend((more.len() as u16).to_le_bytes());
        directory.extend([0; 10]);
        directory.extend(short(start));
        directory.extend(name.as_bytes());
        directory.extend(more);
    }
    let (start, count) = (file.len() as u32, entries.len() as u16);
    file.extend(&directory);
    if large {
        let end = file.len() as u64;
        let (count, size) = (u64::from(count), directory.len() as u64);
        file.extend(b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0");
        file.extend([count, count, size, start.into()].map(u64::to_le_bytes).concat());
        file.extend(b"PK\x06\x07\0\0\0\0");
        file.extend(end.to_le_bytes());
        file.extend(1_u32.to_le_bytes());
    }
    file.extend(b"PK\x05\x06\0\0\0\0");
    let short = |number: u32| if large { u32::MAX.to_le_bytes() } else { number.to_le_bytes() };
    let count = if large { u16::MAX } else { count };
    file.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
    file.extend(short(directory.len() as u32));
    file.extend(short(start));
    file.extend([0; 2]);
    file
}

fn example(packed: bool, large: bool) -> Vec<u8> {
    let values: Vec<u8> = (0..40_000_i32).flat_map(i32::to_le_bytes).collect();
    let arrays = [encode("<i4", "(100, 400)", &values), encode("|u1", "(3,)", &[1, 2, 3])];
    zip(&[("x.npy", &arrays[0]), ("y.npy", &arrays[1])], packed, large)
}

fn open(bytes: Vec<u8>) -> Result<Npz<Cursor<Vec<u8>>>> {
    Npz::new(Path::new("a.npz"), Cursor::new(bytes))
}

#[test]
fn arrays_are_read_by_name() {
    for (packed, large) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut npz = open(example(packed, large)).unwrap();
        assert_eq!(npz.names().collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(npz.read("y").unwrap().into_parts(), (vec![3], Values::U8(vec![1, 2, 3])));
        let (shape, values) = npz.read("x").unwrap().into_parts();
        assert_eq!((shape, values), (vec![100, 400], Values::I32((0..40_000).collect())));
        let error = npz.read("z").unwrap_err();
        assert_eq!(error.to_string(), "`a.npz`: entry `z`: there is no such array");
        assert_eq!(error.hint(), Some("there are: x, y"));
    }
}

#[test]
fn changed_values_are_noticed() {
    for packed in [false, true] {
        let mut bytes = example(packed, false);
        bytes[5000] ^= 1;
        let error = open(bytes).unwrap().read("x").unwrap_err();
        assert!(error.to_string().starts_with("`a.npz"), "{error}");
    }
    let mut bytes = example(false, false);
    bytes[5000] ^= 1;
    let error = open(bytes).unwrap().read("x").unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
}

#[test]
fn foreign_and_impossible_files_are_refused() {
    assert!(open(vec![]).unwrap_err().to_string().contains("not a .npz file"));
    assert!(open(vec![7; 5000]).unwrap_err().to_string().contains("not a .npz file"));
    let good = example(true, false);
    assert!(open(good[..good.len() - 30].to_vec()).unwrap_err().to_string().contains("not a .npz file"));
    let mut long = good.clone();
    let end = long.len() - 22;
    long[end + 16..end + 20].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    assert!(open(long).unwrap_err().to_string().contains("not a .npz file"));
    let mut bomb = good.clone();
    let place = good.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
    bomb[place + 24..place + 28].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    assert!(open(bomb).unwrap_err().to_string().contains("cannot come out of"));
    let mut encrypted = good;
    encrypted[place + 8] |= 1;
    assert!(open(encrypted).unwrap_err().to_string().contains("encrypted"));
}

proptest! {
    #[test]
    fn any_change_is_survived(place in 0_usize..600, value: u8, cut in 0_usize..600, packed: bool, large: bool) {
        let mut bytes = zip(&[("x.npy", &encode("<f4", "(4,)", &[3; 16])), ("y.npy", b"nothing")], packed, large);
        let end = bytes.len().saturating_sub(cut / 8);
        if let Some(byte) = bytes.get_mut(place) {
            *byte = value;
        }
        bytes.truncate(end);
        if let Ok(mut npz) = open(bytes) {
            let names: Vec<String> = npz.names().map(str::to_owned).collect();
            for name in names {
                let _ = npz.read(&name);
            }
        }
    }
}
