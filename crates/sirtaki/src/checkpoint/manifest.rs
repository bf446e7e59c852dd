//! What a checkpoint says about itself.

use std::{collections::BTreeMap, path::Path};

use serde::{Deserialize, Serialize};

use super::DAMAGED;
use crate::{Error, Result, data::Position};

/// Distinguishes Sirtaki's manifests from other JSON files.
const FORMAT: &str = "sirtaki checkpoint";

/// The version of the format. Raised when an older program could not read it correctly.
const VERSION: u64 = 1;

/// What was trained and how far, with all that is needed to go on exactly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name of the model; checkpoints of other models are foreign.
    pub model: String,
    /// How many steps the optimizer has made.
    pub step: u64,
    /// Where training is in its data.
    pub position: Position,
    /// How many workers there were.
    pub world: usize,
    /// The state of random numbers that cannot be derived from the position, by name.
    pub random: BTreeMap<String, Vec<u64>>,
    /// The versions of the libraries that took part, by name.
    pub versions: BTreeMap<String, String>,
    /// Whatever else must be the same to go on, such as the batch size, by name.
    pub settings: BTreeMap<String, String>,
}

/// The beginning of every version of the manifest.
#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Whole {
    #[serde(flatten)]
    head: Head,
    #[serde(flatten)]
    manifest: Manifest,
}

impl Manifest {
    /// The manifest of a model after `step` steps, without anything else.
    pub fn new(model: &str, step: u64, position: Position) -> Self {
        let (random, versions, settings) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { model: model.into(), step, position, world: 1, random, versions, settings }
    }

    /// The text of the file.
    pub(super) fn encode(&self, folder: &Path) -> Result<Vec<u8>> {
        let head = Head { format: FORMAT.into(), version: VERSION };
        let mut text = serde_json::to_vec_pretty(&Whole { head, manifest: self.clone() })
            .map_err(|error| Error::file(folder, format!("manifest: {error}"), "give names that JSON can hold"))?;
        text.push(b'\n');
        Ok(text)
    }

    /// Whether the text is that of a checkpoint, of a version that is known here.
    pub(super) fn recognise(file: &Path, text: &[u8]) -> Result<()> {
        match serde_json::from_slice::<Head>(text) {
            Ok(Head { format, version }) if format == FORMAT => match version {
                VERSION => Ok(()),
                newer if newer > VERSION => {
                    let problem = format!("version: {version}, and this program knows those up to {VERSION}");
                    Err(Error::file(file, problem, "use the version of sirtaki that wrote it, or a newer one"))
                }
                _ => Err(Error::file(file, format!("version: there is no version {version}"), DAMAGED)),
            },
            Ok(Head { format, .. }) => {
                Err(Error::file(file, format!("format: {format:?} is not a checkpoint of sirtaki"), DAMAGED))
            }
            Err(error) => {
                Err(Error::file(file, format!("this is not the manifest of a checkpoint ({error})"), DAMAGED))
            }
        }
    }

    pub(super) fn decode(file: &Path, text: &[u8]) -> Result<Self> {
        Self::recognise(file, text)?;
        let whole: Whole =
            serde_json::from_slice(text).map_err(|error| Error::file(file, error.to_string(), DAMAGED))?;
        Ok(whole.manifest)
    }
}
