//! The list of formats. A new one is a line here.
//!
//! What is there is recognised by its first bytes and else by the end of its name; what is new by its name alone.

use std::{fs::File, path::Path};

use super::{
    Choices, Existing, Opened, Volume, VolumeLayout, hdf5, mrc, nifti, npy, place::OutputPlace, raw, read_up_to, tiff,
    zarr,
};
use crate::VolumeError;

/// A format: how to know it, and what it can do.
struct Format {
    name: &'static str,
    /// Ends of names, without the dot; the first one is shown.
    extensions: &'static [&'static str],
    /// Whether a file starts like this format; a folder is shown as nothing.
    recognise: fn(&Path, &[u8]) -> bool,
    open: fn(&Path, &Choices) -> Opened,
    /// Nothing where volumes are only read.
    output: Option<Output>,
}

/// How a format is written.
struct Output {
    create: fn(OutputPlace, VolumeLayout) -> Opened,
    /// The size of what one writer of a new volume must write as a whole, see [`VolumeLayout::unit`].
    unit: fn(OutputPlace, VolumeLayout) -> Result<Vec<u64>, VolumeError>,
    resume: fn(OutputPlace, &Choices) -> Opened,
}

const FORMATS: &[Format] = &[
    Format {
        name: "zarr",
        extensions: &["zarr"],
        recognise: |path, _| zarr::recognise(path),
        open: zarr::open,
        output: Some(Output {
            create: zarr::create,
            unit: |_, layout| Ok(layout.with_some_chunks().unit()),
            resume: zarr::resume,
        }),
    },
    Format {
        name: "HDF5",
        extensions: hdf5::EXTENSIONS,
        recognise: |_, head| hdf5::recognise(head),
        open: hdf5::open,
        output: None,
    },
    Format {
        name: "npy",
        extensions: &["npy"],
        recognise: |_, head| head.starts_with(npy::MAGIC),
        open: npy::open,
        output: Some(Output { create: npy::create, unit: any_voxel, resume: npy::resume }),
    },
    Format {
        name: "TIFF",
        extensions: &["tif", "tiff", "ome.tif", "ome.tiff", "tf8", "btf"],
        recognise: |_, head| tiff::recognise(head),
        open: tiff::open,
        output: Some(Output { create: tiff::create, unit: tiff::unit, resume: tiff::resume }),
    },
    Format {
        name: "NIfTI",
        extensions: &["nii", "nii.gz"],
        recognise: nifti::recognise,
        open: nifti::open,
        output: Some(Output { create: nifti::create, unit: any_voxel, resume: nifti::resume }),
    },
    Format {
        name: "MRC",
        extensions: &["mrc", "mrcs", "map", "rec", "st"],
        recognise: |_, head| mrc::recognise(head),
        open: mrc::open,
        output: Some(Output { create: mrc::create, unit: any_voxel, resume: mrc::resume }),
    },
    Format {
        name: "raw",
        extensions: &["raw", "bin", "dat"],
        recognise: |_, _| false,
        open: raw::open,
        output: Some(Output { create: raw::create, unit: any_voxel, resume: raw::resume }),
    },
];

/// The formats and the ends of their names.
pub fn names() -> Vec<(&'static str, &'static [&'static str])> {
    FORMATS.iter().map(|format| (format.name, format.extensions)).collect()
}

/// Opens a volume for reading.
pub fn open(path: &Path, choices: &Choices) -> Result<Box<dyn Volume>, VolumeError> {
    let (file, dataset) = hdf5::split(path);
    let mut head = [0; 512];
    let found = file.metadata().map_err(VolumeError::io(file))?;
    let read = match found.is_dir() {
        true => 0,
        false => File::open(file).and_then(|file| read_up_to(&file, &mut head, 0)).map_err(VolumeError::io(file))?,
    };
    let recognised = FORMATS.iter().find(|format| (format.recognise)(file, &head[..read]));
    let format = recognised.map_or_else(|| by_name(file), Ok)?;
    if let (Some(dataset), Some(_)) = (dataset, &format.output) {
        let problem = format!("this is {} and has no datasets, so there is no `{dataset}` in it", format.name);
        return Err(VolumeError::format(file, problem, "leave out what is behind the colon"));
    }
    (format.open)(path, choices)
}

/// The file or folder of a volume: the path itself, unless it names a dataset inside of an HDF5 file.
pub fn file_of(path: &Path) -> &Path {
    hdf5::split(path).0
}

/// Whether HDF5's library is needed for a volume.
pub fn is_hdf5(path: &Path) -> bool {
    let mut head = [0; 8];
    let file = file_of(path);
    let read = File::open(file).and_then(|file| read_up_to(&file, &mut head, 0)).unwrap_or(0);
    hdf5::recognise(&head[..read]) || by_name(file).is_ok_and(|format| format.extensions == hdf5::EXTENSIONS)
}

/// Begins a new volume. Chunks, compression, voxel size and axes are taken from the layout, which is best that of the
/// input, as far as the format has them.
pub fn create(path: &Path, layout: &VolumeLayout, existing: Existing) -> Result<Box<dyn Volume>, VolumeError> {
    let output = output(path)?;
    (output.create)(OutputPlace::prepare(path, existing)?, layout.clone())
}

/// What one writer of such a volume would have to write as a whole, without making it.
pub fn unit(path: &Path, layout: &VolumeLayout) -> Result<Vec<u64>, VolumeError> {
    (output(path)?.unit)(OutputPlace::of(path, Existing::Keep)?, layout.clone())
}

fn any_voxel(_: OutputPlace, layout: VolumeLayout) -> Result<Vec<u64>, VolumeError> {
    Ok(vec![1; layout.shape.axes()])
}

/// Whether a volume of this name was begun and not finished.
pub fn is_begun(path: &Path) -> Result<bool, VolumeError> {
    Ok(OutputPlace::of(path, Existing::Keep)?.unfinished().exists())
}

/// Continues a volume that was begun and not finished.
pub fn resume(path: &Path, choices: &Choices, existing: Existing) -> Result<Box<dyn Volume>, VolumeError> {
    let output = output(path)?;
    let place = OutputPlace::of(path, existing)?;
    if !is_begun(path)? {
        return Err(VolumeError::format(path, "no output of this name was begun", "create it"));
    }
    (output.resume)(place, choices)
}

/// How the format that a name asks for is written.
fn output(path: &Path) -> Result<&'static Output, VolumeError> {
    if hdf5::names_dataset(path) {
        return Err(hdf5::refuse_output(path));
    }
    by_name(path)?.output.as_ref().ok_or_else(|| hdf5::refuse_output(path))
}

/// The format that a name asks for.
fn by_name(path: &Path) -> Result<&'static Format, VolumeError> {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let fits = |extension: &&str| name.strip_suffix(*extension).is_some_and(|stem| stem.ends_with('.'));
    let longest = |format: &&Format| format.extensions.iter().filter(|e| fits(e)).map(|e| e.len()).max();
    match FORMATS.iter().filter(|format| longest(format).is_some()).max_by_key(longest) {
        Some(format) => Ok(format),
        None => Err(unknown(path, name.rsplit_once('.').map(|(_, extension)| extension))),
    }
}

fn unknown(path: &Path, extension: Option<&str>) -> VolumeError {
    let every = || FORMATS.iter().flat_map(|format| format.extensions);
    let shown: Vec<String> = every().map(|extension| format!(".{extension}")).collect();
    let known = format!("the formats are {}", shown.join(", "));
    let Some(extension) = extension else {
        return VolumeError::format(path, "its name does not say which format it has", known);
    };
    let distance = |other: &&&str| strsim::damerau_levenshtein(extension, other);
    let near = every().min_by_key(distance).filter(|other| distance(other) <= 2);
    let hint = near.map_or(known.clone(), |near| format!("did you mean `.{near}`? {known}"));
    VolumeError::format(path, format!("`.{extension}` is no format of volumes"), hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_gets_the_nearest_one() {
        let error = by_name(Path::new("a/in.npz")).err().unwrap();
        assert!(error.to_string().contains("`.npz` is no format"), "{error}");
        assert!(error.hint().unwrap().starts_with("did you mean `.npy`? the formats are ."), "{error:?}");
        let error = by_name(Path::new("volume")).err().unwrap();
        assert!(error.to_string().contains("does not say"), "{error}");
        assert_eq!(by_name(Path::new("IN.NPY")).unwrap().name, "npy");
    }
}
