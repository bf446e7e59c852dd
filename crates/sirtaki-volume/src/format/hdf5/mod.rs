//! HDF5, the everyday format of synchrotrons: one dataset of a file, `scan.h5:/entry/data`.
//!
//! Files are read by HDF5's own library, which is loaded at run time as MPI, NCCL and ONNX Runtime are: whoever has it,
//! from the system or with `pip install h5py`, can use it, and nobody else needs it. A reader of our own was rejected: the
//! format has four superblocks, two kinds of groups, six indices of chunks, virtual datasets and filters that sites add,
//! and files at hand use most of them. Crates that link with the library, or compile it, were rejected because building
//! should need nothing but Rust.
//!
//! It is here and not in a crate of its own or in `sirtaki-infer`, because a format is a line in the registry, and
//! everything that opens volumes gets it with that: inputs, masks and pairs to train with.
//!
//! Nothing is written. The library writes a file from one process alone unless all of them are ranks of one MPI job, which
//! workers that come, die and join are not.
//!
//! What is in a file is looked at by the library, not by us: its first bytes and its length are checked before, and sizes
//! are those of the dataset that it opened. A file made to attack the library may succeed, see SECURITY.md.
//!
//! # Layout
//!
//! - `library` finds and opens it, `api` are its functions, `object` is what is safe to call.
//! - `superblock` is what is checked before, `name` the name of a dataset behind that of a file.
//! - `element` has types of voxels, `search` the datasets of a file that can be meant.

mod api;
mod element;
mod library;
mod name;
mod object;
mod search;
mod superblock;

use std::path::{Path, PathBuf};

use element::Element;
use library::Library;
use object::Object;

use super::{
    Choices, DAMAGED, Opened, Volume, check_region,
    layout::{Compression, VolumeLayout},
    read_only,
    value::value,
};
use crate::{Extent, Region, VolumeError};

pub use library::{FindPackage, Hdf5Candidates, hdf5_from, hdf5_library};
pub(super) use name::{EXTENSIONS, names_dataset, split};
pub(super) use superblock::recognise;

/// The filter of gzip.
const DEFLATE: i32 = 1;
/// The filter that is part of h5py and no plugin.
const LZF: i32 = 32000;
/// Filters that change the order of bytes, or check them, and do not compress.
const PLAIN: [i32; 2] = [2, 3];
/// From one voxel to the next along each axis of space, in micrometres.
const VOXEL_SIZE: &str = "element_size_um";

pub(super) fn open(path: &Path, _choices: &Choices) -> Opened {
    let (file, asked) = split(path);
    superblock::check(file)?;
    let library = Library::of_process().map_err(|missing| missing.about(file))?;
    let root = Object::file(library, file).map_err(|problem| unreadable(file, problem))?;
    let found = search::find(&root, file, asked)?;
    let name = name::with_dataset(file, &found.path);
    let layout = describe(&found.dataset, &found.element, found.shape, &name)?;
    let note = found.chosen.then(|| format!("reading {}, the only volume in it", name.display()));
    let dataset = found.dataset;
    Ok(Box::new(Dataset { name, dataset, element: found.element, layout, note, _file: root }))
}

/// Says why nothing is written, for whatever asks for that.
pub(super) fn refuse_output(path: &Path) -> VolumeError {
    let problem = "HDF5 files are read and not written, because its library writes a file from one process alone";
    VolumeError::format(path, problem, "write zarr, as in `out.zarr`; h5py copies that into HDF5 when it is complete")
}

/// Says what the library did not like about a file.
fn unreadable(path: &Path, problem: String) -> VolumeError {
    let hint = match () {
        () if problem.contains("lock") => {
            "another program may be writing it; where the file system has no locks, set HDF5_USE_FILE_LOCKING=FALSE"
        }
        () => newer(&problem).unwrap_or(DAMAGED),
    };
    VolumeError::format(path, problem, hint)
}

/// What to do where a file may have been written by a newer library.
fn newer(problem: &str) -> Option<&'static str> {
    let hint =
        "a newer library may read it: `pip install h5py`, and name the folder h5py.libs beside it in SIRTAKI_HDF5";
    problem.contains("version").then_some(hint)
}

/// What is known about a dataset besides its voxels.
fn describe(dataset: &Object, element: &Element, shape: Vec<u64>, name: &Path) -> Result<VolumeLayout, VolumeError> {
    let damaged = |problem: String| VolumeError::format(name, problem, DAMAGED);
    let shape = Extent::new(shape).map_err(|error| damaged(error.to_string()))?;
    let mut layout = VolumeLayout::new(shape, element.dtype);
    let storage = dataset.storage(layout.shape.axes()).map_err(damaged)?;
    if let Some(chunk) = storage.chunk {
        // Those of a dataset that can grow may be larger than it is now.
        let sizes: Vec<u64> = chunk.iter().zip(layout.shape.sizes()).map(|(chunk, size)| *chunk.min(size)).collect();
        layout.chunk = Some(Extent::new(sizes).map_err(|error| damaged(error.to_string()))?);
    }
    for filter in &storage.filters {
        if !filter.available {
            let problem =
                format!("its voxels are packed by filter {} ({}), which is not there", filter.id, filter.name);
            let hint = match filter.id {
                LZF => "only h5py has it; copy the dataset with h5py, with `compression=\"gzip\"`",
                _ => "`pip install hdf5plugin`, and name its folder `plugins` in HDF5_PLUGIN_PATH",
            };
            return Err(VolumeError::format(name, problem, hint));
        }
        match filter.id {
            DEFLATE => layout.compression = Compression::Gzip(filter.level.clamp(1, 9)),
            id if PLAIN.contains(&id) => {}
            _ => layout.compression = Compression::Zstd(1, false),
        }
    }
    if let Some(sizes) = voxel_size(dataset) {
        let axes = layout.axes.len();
        if sizes.len() == axes || sizes.len() == axes.min(3) {
            for (axis, size) in layout.axes[axes - sizes.len()..].iter_mut().zip(sizes) {
                axis.scale = size;
                axis.unit = Some("micrometer".to_owned());
            }
        }
    }
    Ok(layout)
}

/// What a dataset says about the size of its voxels, if that makes sense.
fn voxel_size(dataset: &Object) -> Option<Vec<f64>> {
    let attribute = dataset.attribute(VOXEL_SIZE)?;
    let element = Element::of(&attribute.type_of_attribute().ok()?).ok()?.ok()?;
    let values = attribute.values(&element.memory, element.dtype.size()).ok()?;
    let sizes: Vec<f64> = values.chunks_exact(element.dtype.size()).map(|size| value(size, element.dtype)).collect();
    (!sizes.is_empty() && sizes.iter().all(|size| size.is_finite() && *size > 0.0)).then_some(sizes)
}

/// A dataset that is open for reading.
#[derive(Debug)]
struct Dataset {
    /// The file with the dataset behind it.
    name: PathBuf,
    dataset: Object,
    element: Element,
    layout: VolumeLayout,
    note: Option<String>,
    /// Open as long as its dataset is.
    _file: Object,
}

impl Volume for Dataset {
    fn layout(&self) -> &VolumeLayout {
        &self.layout
    }

    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, out.len())?;
        if region.is_empty() {
            return Ok(());
        }
        let read = self.dataset.read(&self.element.memory, (region.start(), region.size()), out);
        read.map_err(|problem| VolumeError::format(&self.name, format!("voxels {region}: {problem}"), DAMAGED))
    }

    fn write(&self, _: &Region, _: &[u8]) -> Result<(), VolumeError> {
        Err(read_only(&self.name))
    }

    fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    fn finish(&self) -> Result<(), VolumeError> {
        Err(read_only(&self.name))
    }
}
