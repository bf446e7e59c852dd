//! Writing a checkpoint and removing old ones.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use sirtaki_engine::files;

use super::{
    Description, MANIFEST, Manifest, SUMS, TENSORS, Tensor,
    disk::{Disk, Real, WriteContent},
    load::{hex, intact, read_manifest},
    tensors::{Arranged, Content, Make},
};
use crate::{Error, Result};

/// How the names of folders begin that are being written or removed; left-over ones have no meaning.
pub(super) const HIDDEN: &str = ".unfinished-";

/// Saves a checkpoint in a folder, which is created if need be, and removes all but the `keep` newest of this model; 0
/// keeps all. Returns the folder of the checkpoint.
///
/// Called by one process of a job. When it returns, the checkpoint is on the disk. If it fails, earlier checkpoints are
/// as they were, unless the failure was in removing old ones: then the new one is there as well.
pub fn save(folder: &Path, manifest: &Manifest, tensors: &[Tensor<'_>], keep: usize) -> Result<PathBuf> {
    save_made(folder, manifest, here(tensors), &mut |_| Ok(Vec::new()), keep)
}

/// The same for tensors of which some are made while they are written, in the order of [`Description::order`].
pub(crate) fn save_made(
    folder: &Path,
    manifest: &Manifest,
    tensors: Vec<(Description, Content<'_>)>,
    make: Make<'_>,
    keep: usize,
) -> Result<PathBuf> {
    if !folder.exists() {
        files::make_private(folder).map_err(Error::io("create", folder))?;
        let whole = folder.canonicalize().map_err(Error::io("read", folder))?;
        whole.parent().map_or(Ok(()), |parent| Real.sync(parent))?;
    }
    let lock = lock(folder)?;
    let arranged = Arranged::new(folder, tensors)?;
    save_on(&mut Real, folder, manifest, (&arranged, make), keep, lock.is_some())
}

/// Tensors that are in memory.
pub(super) fn here<'a>(tensors: &[Tensor<'a>]) -> Vec<(Description, Content<'a>)> {
    let describe = |&Tensor { name, dtype, shape, bytes }: &Tensor<'a>| {
        (Description { name: name.into(), dtype, shape: shape.to_vec() }, Content::Here(bytes))
    };
    tensors.iter().map(describe).collect()
}

/// Keeps other writers away until the result is dropped or the process crashes. `None` on file systems without locks.
fn lock(folder: &Path) -> Result<Option<File>> {
    let file = File::open(folder).map_err(Error::io("open", folder))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            let hint = "let only one process of one job save here; give each job a folder of its own";
            Err(Error::file(folder, "another process is saving a checkpoint here", hint))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// `alone` says that no other process writes here, so that unfinished folders can be removed.
pub(super) fn save_on(
    disk: &mut dyn Disk,
    folder: &Path,
    manifest: &Manifest,
    tensors: (&Arranged<'_>, Make<'_>),
    keep: usize,
    alone: bool,
) -> Result<PathBuf> {
    let text = manifest.encode(folder)?;
    if alone {
        unfinished(folder)?.into_iter().try_for_each(|(_, path)| disk.remove_folder(&path))?;
    }
    let last = numbers(folder)?.into_iter().chain(unfinished(folder)?).map(|(number, _)| number).max();
    let name = format!("checkpoint-{:06}", last.unwrap_or(0) + 1);
    let (hidden, visible) = (folder.join(format!("{HIDDEN}{name}")), folder.join(name));
    let written = write(disk, &hidden, tensors, &text).and_then(|()| disk.rename(&hidden, &visible));
    if written.is_err() {
        // The first error is the one to report; what remains is removed by the next call.
        let _ = disk.remove_folder(&hidden);
    }
    written?;
    disk.sync(folder)?;
    prune(disk, folder, &manifest.model, keep)?;
    Ok(visible)
}

/// Writes a whole checkpoint and forces it to the disk.
fn write(disk: &mut dyn Disk, folder: &Path, tensors: (&Arranged<'_>, Make<'_>), manifest: &[u8]) -> Result<()> {
    disk.create_folder(folder)?;
    let mut sums = String::new();
    let mut add = |name: &str, content: WriteContent<'_>| {
        let path = folder.join(name);
        let mut sum = Sha256::new();
        disk.write(&path, &mut |file| content(&mut Summing { file, sum: &mut sum }))?;
        disk.sync(&path)?;
        sums += &format!("{}  {name}\n", hex(&sum.finalize()));
        Ok::<_, Error>(())
    };
    let (tensors, make) = tensors;
    let mut failed = None;
    let written = add(TENSORS, &mut |file| tensors.write(file, make, &mut failed));
    failed.map_or(written, Err)?;
    add(MANIFEST, &mut |file| file.write_all(manifest))?;
    let path = folder.join(SUMS);
    disk.write(&path, &mut |file| file.write_all(sums.as_bytes()))?;
    disk.sync(&path)?;
    disk.sync(folder)
}

/// Removes all but the newest checkpoints of a model. Damaged and foreign ones are neither counted nor removed.
fn prune(disk: &mut dyn Disk, folder: &Path, model: &str, keep: usize) -> Result<()> {
    if keep == 0 {
        return Ok(());
    }
    let mut kept = 0;
    for (_, path) in numbers(folder)?.into_iter().rev() {
        if kept < keep {
            kept += usize::from(read_manifest(&path).is_ok_and(|(manifest, _)| manifest.model == model));
        } else if intact(&path).is_ok_and(|manifest| manifest.model == model) {
            // A half-removed checkpoint would look like a damaged one and stay for ever, so it is renamed first.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let hidden = folder.join(format!("{HIDDEN}{name}"));
            disk.rename(&path, &hidden)?;
            disk.sync(folder)?;
            disk.remove_folder(&hidden)?;
        }
    }
    Ok(())
}

/// Numbers and paths of everything that has the name of a checkpoint, oldest first.
pub(super) fn numbers(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    named(folder, "")
}

/// The same for what is being written or removed, or was when a process ended.
fn unfinished(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    named(folder, HIDDEN)
}

fn named(folder: &Path, prefix: &str) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| number(name.strip_prefix(prefix)?));
        found.extend(number.map(|number| (number, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// The number in the name of a checkpoint.
fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("checkpoint-")?;
    let plain = (6..=18).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
    plain.then(|| digits.parse().ok())?
}

/// Computes the checksum of what passes through.
struct Summing<'a> {
    file: &'a mut dyn Write,
    sum: &'a mut Sha256,
}

impl Write for Summing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
