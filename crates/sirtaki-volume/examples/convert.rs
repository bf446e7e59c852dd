//! Copies a volume from any format into any other, unit by unit: `convert IN OUT [NAME=VALUE]...`.
//!
//! Names: `shape=5,6,7`, `dtype=uint16`, `offset=0` and `endian=big` for raw files; `level=1` to read a coarser level;
//! `levels=3` to write so many; `chunk=64,64,64`, `shard=256,256,256`, `compression=none|gzip|zlib|zstd|lz4|blosc` and
//! `zarr=2` for another layout than that of the input. The variable `SIRTAKI_HDF5` says where HDF5's library is.

use std::{env, error::Error, path::Path, process::ExitCode};

use sirtaki_volume::{
    Extent, Region, VolumeError,
    format::{
        self, Blosc, BloscInner, Choices, Coarsen, Compression, Dtype, Existing, Hdf5Candidates, Shuffle, Volume,
        VolumeLayout,
    },
};

fn main() -> ExitCode {
    let given = env::var_os("SIRTAKI_HDF5").map(Into::into);
    format::hdf5_from(Hdf5Candidates { given, package: Box::new(|| None) });
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let hint = error.downcast_ref::<VolumeError>().and_then(VolumeError::hint);
            write_error(&format!("error: {error}{}", hint.map(|hint| format!("\nhint: {hint}")).unwrap_or_default()));
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr, reason = "a program, not the library")]
fn write_error(text: &str) {
    eprintln!("{text}");
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let [input, output, settings @ ..] = arguments else { return Err("usage: convert IN OUT [NAME=VALUE]...".into()) };
    let setting = |name: &str| settings.iter().find_map(|setting| setting.strip_prefix(name)?.strip_prefix('='));
    let sizes = |name: &str| -> Result<Option<Vec<u64>>, Box<dyn Error>> {
        let parse = |text: &str| text.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>();
        Ok(setting(name).map(parse).transpose()?)
    };
    let number = |name: &str| setting(name).map(str::parse::<usize>).transpose();
    let choices = Choices {
        shape: sizes("shape")?,
        dtype: setting("dtype").and_then(Dtype::from_name),
        big_endian: setting("endian") == Some("big"),
        offset: number("offset")?.unwrap_or(0) as u64,
        level: number("level")?.unwrap_or(0),
    };
    let source = format::open(Path::new(input), &choices)?;
    source.note().inspect(|note| write_error(&format!("note: {note}")));
    let mut layout = source.layout().clone();
    if let Some(chunk) = sizes("chunk")? {
        layout.chunk = Some(Extent::new(chunk)?);
    }
    if let Some(shard) = sizes("shard")? {
        layout.shard = Some(Extent::new(shard)?);
    }
    if let Some(name) = setting("compression") {
        layout.compression = compression(name).ok_or_else(|| format!("no compression is called {name}"))?;
    }
    if let Some(version) = number("zarr")? {
        layout.zarr = Some(format::ZarrStyle { version: version as u8, ..layout.zarr.unwrap_or_default() });
    }
    let target = format::create(Path::new(output), &layout, Existing::Keep)?;
    copy(&*source, &*target)?;
    if let Some(levels) = number("levels")? {
        target.add_levels(levels, Coarsen::Mean)?;
    }
    Ok(target.finish()?)
}

fn compression(name: &str) -> Option<Compression> {
    Some(match name {
        "none" => Compression::None,
        "gzip" => Compression::Gzip(3),
        "zlib" => Compression::Zlib(3),
        "zstd" => Compression::Zstd(3, false),
        "lz4" => Compression::Lz4,
        "blosc" => Compression::Blosc(Blosc { inner: BloscInner::Lz4, level: 5, shuffle: Shuffle::Bytes }),
        "blosc-bits" => Compression::Blosc(Blosc { inner: BloscInner::Zstd, level: 3, shuffle: Shuffle::Bits }),
        _ => return None,
    })
}

/// Copies everything, a unit at a time; where any region can be written, slabs of about a megabyte.
fn copy(source: &dyn Volume, target: &dyn Volume) -> Result<(), VolumeError> {
    let VolumeLayout { shape, dtype, .. } = target.layout();
    let mut unit = target.layout().unit();
    if target.layout().chunk.is_none() {
        unit.clone_from(&shape.sizes().to_vec());
        let below = shape.voxels() / unit[0] * dtype.size() as u64;
        unit[0] = ((1 << 20) / below).clamp(1, unit[0]);
    }
    let counts: Vec<u64> = shape.sizes().iter().zip(&unit).map(|(size, unit)| size.div_ceil(*unit)).collect();
    for number in 0..counts.iter().product::<u64>() {
        let mut rest = number;
        let mut start = vec![0; unit.len()];
        for axis in (0..unit.len()).rev() {
            start[axis] = rest % counts[axis] * unit[axis];
            rest /= counts[axis];
        }
        let region = Region::new(start, unit.clone())?.intersection(&Region::whole(shape));
        let mut bytes = vec![0; region.voxels() as usize * dtype.size()];
        source.read(&region, &mut bytes)?;
        target.write(&region, &bytes)?;
    }
    Ok(())
}
