//! Finding and reading checkpoints.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use sirtaki_engine::files;

use super::{DAMAGED, Description, MANIFEST, Manifest, SUMS, TENSORS, save::numbers, tensors::TensorFile};
use crate::{Error, Result};

/// The longest manifest and list of checksums that is read.
const TEXT_LIMIT: u64 = 16 << 20;

/// A checkpoint that was checked. Its tensors are read when they are asked for.
#[derive(Debug)]
pub struct Checkpoint {
    /// What it says about itself.
    pub manifest: Manifest,
    content: TensorFile,
}

impl Checkpoint {
    /// The names of its tensors.
    pub fn names(&self) -> Vec<String> {
        self.content.names()
    }

    /// What the tensor of that name is.
    pub fn describe(&self, name: &str) -> Option<Description> {
        self.content.describe(name)
    }

    /// The elements of the tensor of that name, little endian, in row-major order.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        self.content.read(name)
    }
}

/// What [`newest`] found.
#[derive(Debug)]
pub struct Found {
    /// The folder of the checkpoint.
    pub path: PathBuf,
    /// The checkpoint.
    pub checkpoint: Checkpoint,
    /// Why newer ones could not be used, newest first.
    pub refused: Vec<Error>,
}

/// Opens the checkpoint in this folder, after checking all of it.
pub fn load(path: &Path) -> Result<Checkpoint> {
    let (manifest, tensors) = checked(path)?;
    Ok(Checkpoint { manifest, content: TensorFile::new(&path.join(TENSORS), tensors)? })
}

/// The newest checkpoint of this model in `folder` that is complete and intact; none if there is no checkpoint at all.
///
/// If there are some but none can be used, the error says why the newest could not.
pub fn newest(folder: &Path, model: &str) -> Result<Option<Found>> {
    if !folder.exists() {
        return Ok(None);
    }
    let mut refused = Vec::new();
    for (_, path) in numbers(folder)?.into_iter().rev() {
        match load(&path).and_then(|checkpoint| of_model(&path, model, checkpoint)) {
            Ok(checkpoint) => return Ok(Some(Found { path, checkpoint, refused })),
            Err(error) => refused.push(error),
        }
    }
    refused.into_iter().next().map_or(Ok(None), Err)
}

fn of_model(path: &Path, model: &str, checkpoint: Checkpoint) -> Result<Checkpoint> {
    let other = &checkpoint.manifest.model;
    if other == model {
        return Ok(checkpoint);
    }
    let problem = format!("model: this is a checkpoint of \"{other}\", not of \"{model}\"");
    Err(Error::file(path, problem, "name the folder with the checkpoints of this model, or train the other model"))
}

/// The manifest, if all of the checkpoint is intact.
pub(super) fn intact(path: &Path) -> Result<Manifest> {
    Ok(checked(path)?.0)
}

/// Manifest and tensors, after checking both without keeping the tensors in memory.
fn checked(path: &Path) -> Result<(Manifest, File)> {
    let (manifest, sums) = read_manifest(path)?;
    let file = path.join(TENSORS);
    let mut sum = Sha256::new();
    let mut piece = vec![0; 1 << 18];
    let mut tensors = files::open(&file).map_err(Error::io("open", &file))?;
    loop {
        match tensors.read(&mut piece).map_err(Error::io("read", &file))? {
            0 => break,
            count => sum.update(&piece[..count]),
        }
    }
    compare(&file, &sums, TENSORS, &hex(&sum.finalize()))?;
    Ok((manifest, tensors))
}

/// The manifest, if it is intact and one of Sirtaki's, and the checksums.
pub(super) fn read_manifest(path: &Path) -> Result<(Manifest, String)> {
    let file = path.join(MANIFEST);
    let text = read_text(&file)?;
    Manifest::recognise(&file, &text)?;
    let sums_file = path.join(SUMS);
    let sums = String::from_utf8(read_text(&sums_file)?)
        .map_err(|_| Error::file(&sums_file, "this is not a list of sums", DAMAGED))?;
    compare(&file, &sums, MANIFEST, &hex(&Sha256::digest(&text)))?;
    Ok((Manifest::decode(&file, &text)?, sums))
}

fn read_text(file: &Path) -> Result<Vec<u8>> {
    files::read(file, TEXT_LIMIT).map_err(Error::io("read", file))
}

fn compare(file: &Path, sums: &str, name: &str, sum: &str) -> Result<()> {
    let listed = sums.lines().find_map(|line| line.strip_suffix(name)?.strip_suffix("  "));
    match listed {
        Some(listed) if listed == sum => Ok(()),
        Some(_) => Err(Error::file(file, format!("its sum is not the one in {SUMS}: it was changed or cut"), DAMAGED)),
        None => Err(Error::file(file, format!("{SUMS} has no sum of it"), DAMAGED)),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
