//! One array: chunks or shards in files of their own.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    metadata::Metadata,
    pyramid,
    shard::{Shard, assemble},
};
use crate::{
    Region, VolumeError,
    format::{
        Coarsen, DAMAGED, Volume, check_region, check_units,
        layout::VolumeLayout,
        place::{OutputPlace, remove_file},
        read_only,
        window::{copy_shared, fill_box, repeat, try_each_cell},
    },
};

/// Most shards that are kept open.
const OPEN_SHARDS: usize = 64;

/// An array of zarr.
#[derive(Debug)]
pub(crate) struct ZarrArray {
    folder: PathBuf,
    metadata: Metadata,
    layout: VolumeLayout,
    place: Option<OutputPlace>,
    shards: Mutex<HashMap<Vec<u64>, Arc<Shard>>>,
}

impl ZarrArray {
    pub(crate) fn new(folder: PathBuf, metadata: Metadata, layout: VolumeLayout, place: Option<OutputPlace>) -> Self {
        Self { folder, metadata, layout, place, shards: Mutex::default() }
    }

    /// Where a chunk or shard of the grid lies in the volume, with what it has beyond the end.
    fn cell(at: &[u64], size: &[u64]) -> Region {
        let from: Vec<u64> = at.iter().zip(size).map(|(at, size)| at * size).collect();
        let to: Vec<u64> = from.iter().zip(size).map(|(from, size)| from.saturating_add(*size)).collect();
        Region::between(&from, &to)
    }

    fn damaged(file: &Path, at: &[u64], cell: &Region, problem: &str) -> VolumeError {
        VolumeError::format(file, format!("chunk {at:?}, voxels {cell}: {problem}"), DAMAGED)
    }

    /// The voxels of a chunk that has a file of its own; nothing if it was never written.
    fn read_chunk(&self, at: &[u64], cell: &Region) -> Result<Option<Vec<u8>>, VolumeError> {
        let file = self.metadata.keys.file(&self.folder, at);
        let bytes = match fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(VolumeError::Io { path: file, error }),
        };
        let decoded = self.metadata.chain.decode(bytes, cell.size(), self.metadata.dtype);
        decoded.map(Some).map_err(|problem| Self::damaged(&file, at, cell, &problem))
    }

    fn open_shard(&self, at: &[u64], count: usize) -> Result<Option<Arc<Shard>>, VolumeError> {
        let Some(sharding) = &self.metadata.sharding else { return Ok(None) };
        let shards = || self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shard) = shards().get(at) {
            return Ok(Some(Arc::clone(shard)));
        }
        let file = self.metadata.keys.file(&self.folder, at);
        let Some(shard) = Shard::open(&file, sharding, count)?.map(Arc::new) else { return Ok(None) };
        let mut shards = shards();
        if shards.len() >= OPEN_SHARDS {
            shards.clear();
        }
        shards.insert(at.to_vec(), Arc::clone(&shard));
        Ok(Some(shard))
    }

    /// Reads what a region and a shard share.
    fn read_shard(&self, at: &[u64], shared: &Region, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        let Some(sharding) = &self.metadata.sharding else { return Ok(()) };
        let (grid, chunk) = (self.metadata.grid.sizes(), sharding.chunk.sizes());
        let counts: Vec<u64> = grid.iter().zip(chunk).map(|(shard, chunk)| shard / chunk).collect();
        let shard = self.open_shard(at, counts.iter().product::<u64>() as usize)?;
        try_each_cell(shared, chunk, |inner, shared| {
            let number = inner.iter().zip(&counts).fold(0, |number, (at, count)| number * count + at % count);
            let cell = Self::cell(inner, chunk);
            let damaged =
                |problem: String| Self::damaged(&self.metadata.keys.file(&self.folder, at), inner, &cell, &problem);
            let bytes = shard.as_ref().map(|shard| shard.read(number as usize)).transpose().map_err(damaged)?.flatten();
            let decode = |bytes: Vec<u8>| self.metadata.chain.decode(bytes, chunk, self.metadata.dtype);
            let voxels = bytes.map(decode).transpose().map_err(damaged)?;
            self.place_voxels(voxels.as_deref(), &cell, shared, (region, out));
            Ok(())
        })
    }

    /// Copies what a region and a chunk share; a chunk that is not there has the fill value everywhere.
    fn place_voxels(&self, voxels: Option<&[u8]>, cell: &Region, shared: &Region, to: (&Region, &mut [u8])) {
        let (region, out) = to;
        match voxels {
            Some(voxels) => copy_shared(shared, self.metadata.dtype.size(), (voxels, cell), (out, region)),
            None => fill_box(out, region.size(), &shared.relative_to(region), &self.metadata.fill),
        }
    }

    /// The bytes in a file for a chunk; nothing if all of it has the fill value.
    fn encode(&self, cell: &Region, region: &Region, bytes: &[u8]) -> Result<Option<Vec<u8>>, VolumeError> {
        let (width, fill) = (self.metadata.dtype.size(), &self.metadata.fill);
        let shared = cell.intersection(region);
        if shared.is_empty() {
            return Ok(None);
        }
        let mut voxels = vec![0; cell.voxels() as usize * width];
        if shared != *cell {
            repeat(&mut voxels, fill);
        }
        copy_shared(&shared, width, (bytes, region), (&mut voxels, cell));
        if voxels.chunks_exact(width).all(|voxel| voxel == fill) {
            return Ok(None);
        }
        let encoded = self.metadata.chain.encode(&voxels, cell.size(), self.metadata.dtype);
        encoded.map(Some).map_err(|problem| VolumeError::Invalid(format!("chunk {cell}: {problem}")))
    }

    /// The bytes in a file for a shard; nothing if all of it has the fill value.
    fn encode_shard(&self, cell: &Region, region: &Region, bytes: &[u8]) -> Result<Option<Vec<u8>>, VolumeError> {
        let Some(sharding) = &self.metadata.sharding else { return self.encode(cell, region, bytes) };
        let mut chunks = Vec::new();
        try_each_cell(cell, sharding.chunk.sizes(), |_, inner| {
            chunks.push(self.encode(inner, region, bytes)?);
            Ok::<_, VolumeError>(())
        })?;
        Ok(assemble(chunks, sharding))
    }
}

impl Volume for ZarrArray {
    fn layout(&self) -> &VolumeLayout {
        &self.layout
    }

    fn read(&self, region: &Region, out: &mut [u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, out.len())?;
        let grid = self.metadata.grid.sizes();
        try_each_cell(region, grid, |at, shared| {
            if self.metadata.sharding.is_some() {
                return self.read_shard(at, shared, region, out);
            }
            let cell = Self::cell(at, grid);
            let voxels = self.read_chunk(at, &cell)?;
            self.place_voxels(voxels.as_deref(), &cell, shared, (region, out));
            Ok(())
        })
    }

    fn write(&self, region: &Region, bytes: &[u8]) -> Result<(), VolumeError> {
        check_region(&self.layout, region, bytes.len())?;
        check_units(&self.layout, region)?;
        let Some(place) = &self.place else { return Err(read_only(&self.folder)) };
        let grid = self.metadata.grid.sizes();
        try_each_cell(region, grid, |at, _| {
            let file = self.metadata.keys.file(&self.folder, at);
            match self.encode_shard(&Self::cell(at, grid), region, bytes)? {
                Some(bytes) => place.write_file(&file, &bytes)?,
                None => remove_file(&file)?,
            }
            self.shards.lock().unwrap_or_else(PoisonError::into_inner).remove(at);
            Ok(())
        })
    }

    fn add_levels(&self, levels: usize, how: Coarsen) -> Result<(), VolumeError> {
        match &self.place {
            Some(place) if self.layout.zarr.is_some_and(|style| style.ome) => pyramid::add(self, place, levels, how),
            Some(_) => Ok(()),
            None => Err(read_only(&self.folder)),
        }
    }

    fn finish(&self) -> Result<(), VolumeError> {
        match &self.place {
            Some(place) => place.finish(),
            None => Err(read_only(&self.folder)),
        }
    }
}
