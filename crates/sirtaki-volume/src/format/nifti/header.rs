//! The headers of NIfTI-1 and NIfTI-2: the same fields at other places, some of them wider.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    Extent, VolumeError,
    format::{
        DAMAGED,
        dtype::Dtype,
        layout::{Axis, VolumeLayout},
        unknown_dtype,
    },
};

const TYPES: [(i64, Dtype); 10] = [
    (2, Dtype::UInt8),
    (4, Dtype::Int16),
    (8, Dtype::Int32),
    (16, Dtype::Float32),
    (64, Dtype::Float64),
    (256, Dtype::Int8),
    (512, Dtype::UInt16),
    (768, Dtype::UInt32),
    (1024, Dtype::Int64),
    (1280, Dtype::UInt64),
];
const UNITS: [(i64, &str); 3] = [(1, "meter"), (2, "millimeter"), (3, "micrometer")];
/// The longest header, that of version 2.
pub(super) const LONGEST: usize = 540;
/// The attribute under which places and orientations are kept, which have no other home.
const ORIENTATION: &str = "nifti";

/// Where the fields of a version are.
struct Fields {
    length: usize,
    /// The bytes of sizes and of floating-point numbers.
    size: usize,
    float: usize,
    /// The bytes of codes.
    code: usize,
    datatype: usize,
    bits: usize,
    dim: usize,
    pixdim: usize,
    offset: usize,
    slope: usize,
    qform_code: usize,
    sform_code: usize,
    /// Three numbers of a rotation and three of a place.
    quatern: usize,
    srow: usize,
    units: usize,
    magic: (usize, &'static [u8]),
}

const VERSIONS: [Fields; 2] = [
    Fields {
        length: 348,
        size: 2,
        float: 4,
        code: 2,
        datatype: 70,
        bits: 72,
        dim: 40,
        pixdim: 76,
        offset: 108,
        slope: 112,
        qform_code: 252,
        sform_code: 254,
        quatern: 256,
        srow: 280,
        units: 123,
        magic: (344, b"n+1\0"),
    },
    Fields {
        length: 540,
        size: 8,
        float: 8,
        code: 4,
        datatype: 12,
        bits: 14,
        dim: 16,
        pixdim: 104,
        offset: 168,
        slope: 176,
        qform_code: 344,
        sform_code: 348,
        quatern: 352,
        srow: 400,
        units: 500,
        magic: (4, b"n+2\0\r\n\x1a\n"),
    },
];

/// What a header says.
pub(super) struct Read {
    pub(super) layout: VolumeLayout,
    pub(super) offset: u64,
    pub(super) big_endian: bool,
    /// Values are voxels times this, plus that.
    pub(super) scaling: Option<(f64, f64)>,
}

/// Whether a file starts like NIfTI with voxels in the same file.
pub(super) fn recognise(head: &[u8]) -> bool {
    VERSIONS.iter().any(|fields| fields.is_at(head))
}

impl Fields {
    fn is_at(&self, head: &[u8]) -> bool {
        let (at, magic) = self.magic;
        head.get(at..).is_some_and(|rest| rest.starts_with(magic))
    }
}

/// Numbers at places of a header.
struct Numbers<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

impl Numbers<'_> {
    /// A number of this width, filled up to eight bytes with its sign.
    fn whole(&self, at: usize, width: usize) -> i64 {
        let bytes = &self.bytes[at..at + width];
        let add = |number: i64, byte: &u8| number << 8 | i64::from(*byte);
        let number = if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
        let unused = 64 - 8 * width as u32;
        number << unused >> unused
    }

    fn float(&self, at: usize, width: usize) -> f64 {
        let bits = self.whole(at, width);
        if width == 4 { f32::from_bits(bits as u32).into() } else { f64::from_bits(bits as u64) }
    }

    fn floats(&self, at: usize, width: usize, count: usize) -> Vec<f64> {
        (0..count).map(|number| self.float(at + number * width, width)).collect()
    }
}

/// Reads a header of at least 540 bytes, filled up with zeros where the file is shorter.
pub(super) fn parse(bytes: &[u8; LONGEST], path: &Path) -> Result<Read, VolumeError> {
    let refuse = |problem: String| VolumeError::format(path, problem, DAMAGED);
    let Some(fields) = VERSIONS.iter().find(|fields| fields.is_at(bytes)) else {
        return Err(refuse("this is not a NIfTI file with voxels in it".to_owned()));
    };
    let length = [bytes[0], bytes[1], bytes[2], bytes[3]];
    let big_endian = u32::from_be_bytes(length) as usize == fields.length;
    if !big_endian && u32::from_le_bytes(length) as usize != fields.length {
        return Err(refuse("its header has a wrong length".to_owned()));
    }
    let numbers = Numbers { bytes, big_endian };
    let code = numbers.whole(fields.datatype, 2);
    let Some((_, dtype)) = TYPES.iter().find(|(known, _)| *known == code) else {
        return Err(unknown_dtype(path, &format!("NIfTI type {code}")));
    };
    let count = numbers.whole(fields.dim, fields.size);
    if !(1..=7).contains(&count) {
        return Err(refuse(format!("it has {count} axes")));
    }
    let size =
        |axis: usize| u64::try_from(numbers.whole(fields.dim + (axis + 1) * fields.size, fields.size)).unwrap_or(0);
    let shape: Vec<u64> = (0..count as usize).rev().map(size).collect();
    let mut layout = VolumeLayout::new(Extent::new(shape).map_err(|error| refuse(error.to_string()))?, *dtype);
    let unit_width = if fields.length == 348 { 1 } else { 4 };
    let unit = numbers.whole(fields.units, unit_width) & 7;
    let unit = UNITS.iter().find(|(known, _)| *known == unit).map(|(_, name)| (*name).to_owned());
    let names = ["x", "y", "z", "t", "c", "dim_5", "dim_6"];
    for (axis, known) in layout.axes.iter_mut().rev().enumerate() {
        *known = Axis::named(names[axis]);
        let scale = numbers.float(fields.pixdim + (axis + 1) * fields.float, fields.float);
        if axis < 3 && scale.is_finite() && scale > 0.0 {
            known.scale = scale;
            known.unit.clone_from(&unit);
        }
    }
    layout.attributes.insert(ORIENTATION.to_owned(), orientation(&numbers, fields));
    let offset = match fields.length {
        348 => numbers.float(fields.offset, 4),
        _ => numbers.whole(fields.offset, 8) as f64,
    };
    if !(offset >= fields.length as f64 && offset < 1e15) {
        return Err(refuse(format!("its voxels start at byte {offset}")));
    }
    let (slope, shift) =
        (numbers.float(fields.slope, fields.float), numbers.float(fields.slope + fields.float, fields.float));
    let plain = !slope.is_finite() || !shift.is_finite() || slope == 0.0 || slope == 1.0 && shift == 0.0;
    Ok(Read { layout, offset: offset as u64, big_endian, scaling: (!plain).then_some((slope, shift)) })
}

/// Everything about places in the world, to be written again as it is.
fn orientation(numbers: &Numbers<'_>, fields: &Fields) -> Value {
    json!({
        "qform_code": numbers.whole(fields.qform_code, fields.code),
        "sform_code": numbers.whole(fields.sform_code, fields.code),
        "qfac": numbers.float(fields.pixdim, fields.float),
        "quatern": numbers.floats(fields.quatern, fields.float, 6),
        "srow": numbers.floats(fields.srow, fields.float, 12),
    })
}

/// The header of a new file, with what comes between it and the voxels.
pub(super) fn write(layout: &VolumeLayout, path: &Path) -> Result<Vec<u8>, VolumeError> {
    let Some((code, dtype)) = TYPES.iter().find(|(_, dtype)| *dtype == layout.dtype) else {
        let hint = "write zarr, or voxels of another type, as uint8 or float32";
        return Err(VolumeError::format(path, format!("NIfTI has no voxels of {}", layout.dtype), hint));
    };
    let sizes: Vec<i64> = layout.shape.sizes().iter().rev().map(|size| *size as i64).collect();
    if sizes.len() > 7 {
        return Err(VolumeError::format(path, "NIfTI has at most seven axes", "write zarr"));
    }
    let small = sizes.iter().all(|size| *size <= i64::from(i16::MAX));
    let fields = if small { &VERSIONS[0] } else { &VERSIONS[1] };
    // Four bytes say that there are no extensions, and voxels start at a multiple of sixteen.
    let mut bytes = vec![0; (fields.length + 4).next_multiple_of(16)];
    let mut put =
        |at: usize, width: usize, value: i64| bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
    put(0, 4, fields.length as i64);
    put(fields.datatype, 2, *code);
    put(fields.bits, 2, dtype.size() as i64 * 8);
    put(fields.dim, fields.size, sizes.len() as i64);
    (0..7).for_each(|axis| {
        put(fields.dim + (axis + 1) * fields.size, fields.size, sizes.get(axis).copied().unwrap_or(1))
    });
    let unit = layout.axes.last().and_then(|axis| axis.unit.as_deref());
    let unit = UNITS.iter().find(|(_, name)| Some(*name) == unit).map_or(0, |(code, _)| *code);
    put(fields.units, 1, unit);
    let kept = layout.attributes.get(ORIENTATION);
    let made = made_orientation(layout);
    let (from, whole) = (kept.unwrap_or(&made), |value: &Value, name: &str| value[name].as_i64().unwrap_or(0));
    put(fields.qform_code, fields.code, whole(from, "qform_code"));
    put(fields.sform_code, fields.code, whole(from, "sform_code"));
    let voxels = ((fields.length + 4).next_multiple_of(16)) as i64;
    let mut put_float = |at: usize, value: f64| match fields.float {
        4 => put(at, 4, (value as f32).to_bits().into()),
        _ => put(at, 8, value.to_bits() as i64),
    };
    put_float(fields.pixdim, from["qfac"].as_f64().unwrap_or(1.0));
    (0..7).for_each(|axis| {
        let scale = layout.axes.iter().rev().nth(axis).map_or(1.0, |axis| axis.scale);
        put_float(fields.pixdim + (axis + 1) * fields.float, scale);
    });
    for (name, at) in [("quatern", fields.quatern), ("srow", fields.srow)] {
        let values = from[name].as_array().into_iter().flatten().take(12);
        values
            .enumerate()
            .for_each(|(number, value)| put_float(at + number * fields.float, value.as_f64().unwrap_or(0.0)));
    }
    put_float(fields.slope, 1.0);
    match fields.length {
        348 => put_float(fields.offset, voxels as f64),
        _ => put(fields.offset, 8, voxels),
    }
    let (at, magic) = fields.magic;
    bytes[at..at + magic.len()].copy_from_slice(magic);
    Ok(bytes)
}

/// The place of a volume that has none of its own: its axes are those of the world.
fn made_orientation(layout: &VolumeLayout) -> Value {
    let mut rows = [0.0; 12];
    for (axis, known) in layout.axes.iter().rev().take(3).enumerate() {
        rows[axis * 4 + axis] = known.scale;
        rows[axis * 4 + 3] = known.offset;
    }
    (layout.axes.len()..3).for_each(|axis| rows[axis * 4 + axis] = 1.0);
    json!({ "qform_code": 0, "sform_code": 2, "qfac": 1.0, "quatern": [], "srow": rows })
}
