//! Version 3 of zarr: `zarr.json`, with shards.

use serde_json::{Map, Value, json};

use super::{
    codec::{Chain, Codec},
    metadata::{Keys, Metadata, Refusal, Sharding, extent, fill, unknown_dtype},
    number,
    v2::{inner, inner_name},
};
use crate::format::{
    dtype::Dtype,
    layout::{Blosc, BloscInner, Compression, Shuffle},
};

const CODECS: &str = "transpose, bytes, gzip, zstd, blosc (lz4, zlib, zstd), crc32c, sharding_indexed";

/// Something with a name and settings, as nearly everything in version 3.
struct Named<'a> {
    name: &'a str,
    settings: &'a Value,
}

fn named<'a>(value: &'a Value, what: &str) -> Result<Named<'a>, Refusal> {
    let name = value.as_str().or_else(|| value.get("name")?.as_str());
    let name = name.ok_or_else(|| Refusal::damaged(format!("its {what} has no name")))?;
    Ok(Named { name, settings: value.get("configuration").unwrap_or(&Value::Null) })
}

pub(crate) fn parse(json: &Value) -> Result<Metadata, Refusal> {
    let field = |name: &str| json.get(name).unwrap_or(&Value::Null);
    let shape = extent(field("shape"), "shape")?;
    let Some(dtype) = field("data_type").as_str().and_then(Dtype::from_name) else {
        return Err(unknown_dtype(field("data_type")));
    };
    let grid = named(field("chunk_grid"), "chunk grid")?;
    if grid.name != "regular" {
        return Err(Refusal::unknown("chunk grid", grid.name, "regular"));
    }
    if let Some(other) = field("storage_transformers").as_array().and_then(|all| all.first()) {
        return Err(Refusal::unknown("storage transformer", &other.to_string(), "none"));
    }
    let (chain, sharding) = parse_codecs(field("codecs"))?;
    let names = field("dimension_names").as_array().map(|names| {
        let name = |(axis, name): (usize, &Value)| name.as_str().map_or_else(|| format!("dim_{axis}"), str::to_owned);
        names.iter().enumerate().map(name).collect::<Vec<_>>()
    });
    Ok(Metadata {
        version: 3,
        dtype,
        grid: extent(grid.settings.get("chunk_shape").unwrap_or(&Value::Null), "chunk shape")?,
        sharding,
        chain,
        keys: parse_keys(field("chunk_key_encoding"))?,
        fill: fill(field("fill_value"), dtype)?,
        names: names.filter(|names| names.len() == shape.axes()),
        attributes: field("attributes").as_object().cloned().unwrap_or_else(Map::new),
        shape,
    })
}

fn parse_keys(json: &Value) -> Result<Keys, Refusal> {
    let encoding = named(json, "chunk key encoding")?;
    let separator = encoding.settings.get("separator").and_then(Value::as_str);
    let (prefix, usual) = match encoding.name {
        "default" => (true, "/"),
        "v2" => (false, "."),
        other => return Err(Refusal::unknown("chunk key encoding", other, "default, v2")),
    };
    match separator.unwrap_or(usual) {
        "/" => Ok(Keys { separator: '/', prefix }),
        "." => Ok(Keys { separator: '.', prefix }),
        other => Err(Refusal::damaged(format!("its separator is {other:?}"))),
    }
}

/// The steps of chunks; where they are in shards, those inside.
fn parse_codecs(json: &Value) -> Result<(Chain, Option<Sharding>), Refusal> {
    let list = json.as_array().ok_or_else(|| Refusal::damaged("its codecs are not a list"))?;
    let sharded = |codec: &&Value| named(codec, "codec").is_ok_and(|codec| codec.name == "sharding_indexed");
    let Some(shard) = list.iter().find(sharded) else { return Ok((parse_chain(list)?, None)) };
    if list.len() > 1 {
        return Err(Refusal::unknown("codec around shards", &list.len().to_string(), "none"));
    }
    let settings = named(shard, "codec")?.settings;
    let field = |name: &str| settings.get(name).unwrap_or(&Value::Null);
    let codecs = field("codecs").as_array().ok_or_else(|| Refusal::damaged("its shards have no codecs"))?;
    let index = field("index_codecs").as_array().ok_or_else(|| Refusal::damaged("its index has no codecs"))?;
    let index = parse_chain(index)?;
    let index_checksum = index.codecs == [Codec::Crc32c];
    if index.order.is_some() || index.big_endian || !(index_checksum || index.codecs.is_empty()) {
        return Err(Refusal::unknown("codecs of the index", &field("index_codecs").to_string(), "bytes, crc32c"));
    }
    let index_first = match field("index_location").as_str() {
        Some("end") | None => false,
        Some("start") => true,
        Some(other) => return Err(Refusal::damaged(format!("its index is at {other:?}"))),
    };
    let chunk = extent(field("chunk_shape"), "chunk shape in shards")?;
    Ok((parse_chain(codecs)?, Some(Sharding { chunk, index_first, index_checksum })))
}

fn parse_chain(list: &[Value]) -> Result<Chain, Refusal> {
    let mut chain = Chain::default();
    for codec in list {
        let codec = named(codec, "codec")?;
        let setting = |name: &str| codec.settings.get(name).unwrap_or(&Value::Null);
        let level = |name: &str| setting(name).as_i64().unwrap_or(0);
        let step = match codec.name.trim_start_matches("numcodecs.") {
            "transpose" if chain == Chain::default() => {
                let order = setting("order").as_array().map(|order| order.iter().map(Value::as_u64).collect());
                let order: Option<Vec<u64>> = order.flatten();
                let order = order.ok_or_else(|| Refusal::damaged("its transposition has no order"))?;
                chain.order = Some(order.into_iter().map(|axis| axis as usize).collect());
                continue;
            }
            "bytes" if chain.codecs.is_empty() => {
                chain.big_endian = setting("endian").as_str() == Some("big");
                continue;
            }
            "crc32c" => Codec::Crc32c,
            "gzip" => Codec::Compress(Compression::Gzip(level("level").clamp(0, 9) as u32)),
            "zlib" => Codec::Compress(Compression::Zlib(level("level").clamp(0, 9) as u32)),
            "lz4" => Codec::Compress(Compression::Lz4),
            "zstd" => {
                let checksum = setting("checksum").as_bool().unwrap_or(false);
                Codec::Compress(Compression::Zstd(level("level").clamp(-1000, 22) as i32, checksum))
            }
            "blosc" => {
                let shuffle = match setting("shuffle").as_str() {
                    Some("shuffle") => Shuffle::Bytes,
                    Some("bitshuffle") => Shuffle::Bits,
                    _ => Shuffle::None,
                };
                let inner = inner(setting("cname").as_str().unwrap_or("lz4"))?;
                let level = level("clevel").clamp(0, 9) as u32;
                Codec::Compress(Compression::Blosc(Blosc { inner, level, shuffle }))
            }
            _ => return Err(Refusal::unknown("codec", codec.name, CODECS)),
        };
        if matches!(step, Codec::Compress(_)) && chain.compression() != Compression::None {
            return Err(Refusal::unknown("second compression", codec.name, "one codec that compresses"));
        }
        chain.codecs.push(step);
    }
    Ok(chain)
}

pub(crate) fn files(metadata: &Metadata) -> Vec<(&'static str, Value)> {
    let codecs = describe(&metadata.chain, metadata.dtype);
    let codecs = match &metadata.sharding {
        None => codecs,
        Some(Sharding { chunk, .. }) => vec![json!({
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": chunk,
                "codecs": codecs,
                "index_codecs": [bytes(), { "name": "crc32c" }],
                "index_location": "end",
            },
        })],
    };
    let array = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": metadata.shape,
        "data_type": metadata.dtype.name(),
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": metadata.grid } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": metadata.keys.separator } },
        "fill_value": number::from_bytes(&metadata.fill, metadata.dtype),
        "codecs": codecs,
        "attributes": metadata.attributes,
        "dimension_names": metadata.names,
        "storage_transformers": [],
    });
    vec![("zarr.json", array)]
}

fn bytes() -> Value {
    json!({ "name": "bytes", "configuration": { "endian": "little" } })
}

fn describe(chain: &Chain, dtype: Dtype) -> Vec<Value> {
    let step = |codec: &Codec| match codec {
        Codec::Crc32c => Some(json!({ "name": "crc32c" })),
        Codec::Compress(Compression::Gzip(level)) => {
            Some(json!({ "name": "gzip", "configuration": { "level": level } }))
        }
        Codec::Compress(Compression::Zstd(level, checksum)) => {
            Some(json!({ "name": "zstd", "configuration": { "level": level, "checksum": checksum } }))
        }
        Codec::Compress(Compression::Blosc(Blosc { inner, level, shuffle })) => {
            let shuffle = match shuffle {
                Shuffle::None => "noshuffle",
                Shuffle::Bytes => "shuffle",
                Shuffle::Bits => "bitshuffle",
            };
            let settings = json!({
                "cname": inner_name(*inner), "clevel": level, "shuffle": shuffle, "typesize": dtype.size(), "blocksize": 0,
            });
            Some(json!({ "name": "blosc", "configuration": settings }))
        }
        // Nothing to say, or something that `nearest` has replaced.
        Codec::Compress(Compression::None | Compression::Zlib(_) | Compression::Lz4) => None,
    };
    std::iter::once(bytes()).chain(chain.codecs.iter().filter_map(step)).collect()
}

/// The compression in version 3 that comes nearest to one that it lacks.
pub(crate) fn nearest(compression: Compression) -> Compression {
    match compression {
        Compression::Zlib(level) => Compression::Gzip(level),
        Compression::Lz4 => Compression::Blosc(Blosc { inner: BloscInner::Lz4, level: 5, shuffle: Shuffle::None }),
        other => other,
    }
}
