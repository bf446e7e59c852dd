//! Version 2 of zarr: `.zarray`, with attributes in `.zattrs`.

use serde_json::{Map, Value, json};

use super::{
    codec::{Chain, Codec},
    metadata::{Keys, Metadata, Refusal, extent, fill, unknown_dtype},
    number,
};
use crate::format::{
    dtype::Dtype,
    layout::{Blosc, BloscInner, Compression, Shuffle},
};

/// Where other libraries keep the names of axes.
const NAMES: &str = "_ARRAY_DIMENSIONS";
const COMPRESSIONS: &str = "blosc (lz4, zlib, zstd), gzip, lz4, zlib, zstd";

pub(crate) fn parse(json: &Value, attributes: Option<Value>) -> Result<Metadata, Refusal> {
    let field = |name: &str| json.get(name).unwrap_or(&Value::Null);
    let shape = extent(field("shape"), "shape")?;
    let Some((dtype, big_endian)) = field("dtype").as_str().and_then(Dtype::from_descr) else {
        return Err(unknown_dtype(field("dtype")));
    };
    if let Some(filter) = field("filters").as_array().and_then(|filters| filters.first()) {
        let name = filter.get("id").and_then(Value::as_str).unwrap_or("?");
        return Err(Refusal {
            hint: "write the array again without filters".to_owned(),
            ..Refusal::unknown("filter", name, "none")
        });
    }
    let order = match field("order").as_str() {
        Some("C") => None,
        Some("F") => Some((0..shape.axes()).rev().collect()),
        _ => return Err(Refusal::damaged("its order is neither C nor F")),
    };
    let compression = compression(field("compressor"), dtype)?;
    let codecs = if compression == Compression::None { vec![] } else { vec![Codec::Compress(compression)] };
    let separator = match field("dimension_separator").as_str() {
        Some("/") => '/',
        Some(".") | None => '.',
        Some(other) => return Err(Refusal::damaged(format!("its dimension separator is {other:?}"))),
    };
    let mut attributes = match attributes {
        Some(Value::Object(attributes)) => attributes,
        _ => Map::new(),
    };
    let names = attributes.remove(NAMES).and_then(|names| serde_json::from_value::<Vec<String>>(names).ok());
    Ok(Metadata {
        version: 2,
        dtype,
        grid: extent(field("chunks"), "chunks")?,
        sharding: None,
        chain: Chain { order, big_endian, codecs },
        keys: Keys { separator, prefix: false },
        fill: fill(field("fill_value"), dtype)?,
        names: names.filter(|names| names.len() == shape.axes()),
        shape,
        attributes,
    })
}

pub(crate) fn files(metadata: &Metadata) -> Vec<(&'static str, Value)> {
    let array = json!({
        "zarr_format": 2,
        "shape": metadata.shape,
        "chunks": metadata.grid,
        "dtype": metadata.dtype.descr(),
        "compressor": describe(metadata.chain.compression()),
        "fill_value": number::from_bytes(&metadata.fill, metadata.dtype),
        "order": "C",
        "filters": null,
        "dimension_separator": metadata.keys.separator,
    });
    let mut attributes = metadata.attributes.clone();
    if let Some(names) = &metadata.names {
        attributes.insert(NAMES.to_owned(), json!(names));
    }
    vec![(".zarray", array), (".zattrs", Value::Object(attributes))]
}

fn compression(json: &Value, dtype: Dtype) -> Result<Compression, Refusal> {
    let Some(id) = json.get("id").and_then(Value::as_str) else {
        return match json {
            Value::Null => Ok(Compression::None),
            _ => Err(Refusal::damaged("its compressor has no id")),
        };
    };
    let level = |name: &str, usual: i64| json.get(name).and_then(Value::as_i64).unwrap_or(usual);
    Ok(match id {
        "gzip" => Compression::Gzip(level("level", 1).clamp(0, 9) as u32),
        "zlib" => Compression::Zlib(level("level", 1).clamp(0, 9) as u32),
        "zstd" => {
            let checksum = json.get("checksum").and_then(Value::as_bool).unwrap_or(false);
            Compression::Zstd(level("level", 1).clamp(-1000, 22) as i32, checksum)
        }
        "lz4" => Compression::Lz4,
        "blosc" => {
            let inner = inner(json.get("cname").and_then(Value::as_str).unwrap_or("lz4"))?;
            let shuffle = match level("shuffle", 1) {
                0 => Shuffle::None,
                2 => Shuffle::Bits,
                // The library chooses.
                -1 if dtype.size() == 1 => Shuffle::Bits,
                _ => Shuffle::Bytes,
            };
            Compression::Blosc(Blosc { inner, level: level("clevel", 5).clamp(0, 9) as u32, shuffle })
        }
        other => return Err(Refusal::unknown("compressor", other, COMPRESSIONS)),
    })
}

/// The compressor inside Blosc of this name.
pub(crate) fn inner(name: &str) -> Result<BloscInner, Refusal> {
    match name {
        "lz4" | "lz4hc" => Ok(BloscInner::Lz4),
        "zstd" => Ok(BloscInner::Zstd),
        "zlib" => Ok(BloscInner::Zlib),
        other => Err(Refusal::unknown("compressor inside Blosc", other, "lz4, zlib, zstd")),
    }
}

/// Its name.
pub(crate) fn inner_name(inner: BloscInner) -> &'static str {
    match inner {
        BloscInner::Lz4 => "lz4",
        BloscInner::Zstd => "zstd",
        BloscInner::Zlib => "zlib",
    }
}

fn describe(compression: Compression) -> Value {
    match compression {
        Compression::None => Value::Null,
        Compression::Gzip(level) => json!({ "id": "gzip", "level": level }),
        Compression::Zlib(level) => json!({ "id": "zlib", "level": level }),
        Compression::Zstd(level, checksum) => json!({ "id": "zstd", "level": level, "checksum": checksum }),
        Compression::Lz4 => json!({ "id": "lz4", "acceleration": 1 }),
        Compression::Blosc(Blosc { inner, level, shuffle }) => {
            let shuffle = match shuffle {
                Shuffle::None => 0,
                Shuffle::Bytes => 1,
                Shuffle::Bits => 2,
            };
            json!({ "id": "blosc", "cname": inner_name(inner), "clevel": level, "shuffle": shuffle, "blocksize": 0 })
        }
    }
}
