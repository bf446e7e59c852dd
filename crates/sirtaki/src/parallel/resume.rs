//! Checkpoints of a module and its optimizer: written by rank 0, and read by it for all ranks.
//!
//! Other ranks may have no access to the disk, so everything they need comes from rank 0, and so does every error. What
//! is read is compared with the module and the optimizer before any of it is used. Random numbers are not saved: they
//! follow from the position in the data; see [`super::seed`].

use std::path::{Path, PathBuf};

use burn::module::Module;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    OptimizerState, Update,
    checkpoint_tensors::{Stored, restore},
    module_tensors::{Which, read, replace},
    optimizer_record::is_state,
};
use crate::{
    Error, Result, World,
    checkpoint::{self, Content, Description, Found, Manifest},
};

pub(super) const MODULE: &str = "module";

/// The checkpoint that training goes on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resumed {
    /// What it says about itself.
    pub manifest: Manifest,
    /// Its folder, as rank 0 sees it.
    pub path: PathBuf,
    /// Why newer ones could not be used, newest first.
    pub refused: Vec<String>,
}

impl Resumed {
    /// Refuses the checkpoint if the run that wrote it had a different value of this setting; see
    /// [`Manifest::settings`].
    pub fn require(&self, setting: &str, value: &str) -> Result<()> {
        match self.manifest.settings.get(setting) {
            Some(there) if there == value => Ok(()),
            there => {
                let there = there.map_or("nothing".into(), |there| format!("\"{there}\""));
                let problem = format!("{setting}: {there} in the checkpoint, \"{value}\" here");
                Err(Error::file(&self.path, problem, "continue with the settings that training began with"))
            }
        }
    }
}

/// What a checkpoint is written with.
pub(super) fn versions() -> [(String, String); 2] {
    let versions = [("sirtaki", env!("CARGO_PKG_VERSION")), ("burn", super::BURN)];
    versions.map(|(name, version)| (name.into(), version.into()))
}

/// The optimizer's state in a checkpoint.
fn state_of(found: Found) -> OptimizerState<'static> {
    let names = found.checkpoint.names().into_iter().filter(|name| is_state(name));
    let tensors = names.filter_map(|name| found.checkpoint.describe(&name)).collect();
    let origin = Some(found.path.clone());
    OptimizerState::new(tensors, move |tensor| found.checkpoint.read(&tensor.name), origin)
}

/// An error of rank 0, as the other ranks get it.
#[derive(Serialize, Deserialize)]
struct Refusal {
    problem: String,
    /// May be empty.
    hint: String,
}

impl World {
    /// Saves all tensors of the module, running statistics too, the identities of its parameters and the optimizer's
    /// state in a folder, and removes all but the `keep` newest checkpoints of this model; 0 keeps all. Versions and
    /// number of workers are added to the manifest. Returns the folder of the checkpoint.
    ///
    /// All ranks call it. Rank 0 writes what it has; if it cannot, all ranks get the error. Statistics that each rank
    /// has gathered by itself have to be [averaged](World::average_statistics) first.
    pub fn save<M: Module>(
        &self,
        folder: &Path,
        keep: usize,
        manifest: Manifest,
        module: &M,
        optimizer: &dyn Update<M>,
    ) -> Result<PathBuf> {
        let mut state = optimizer.save(module)?;
        let later: Vec<Description> = state.tensors().to_vec();
        let mut read_so_far = 0;
        let saved = (self.rank() == 0).then(|| {
            let mut manifest = Manifest { world: self.size(), ..manifest };
            manifest.versions.extend(versions());
            let stored = Stored::new(read(module, MODULE, Which::All, true)?)?;
            let mut tensors = stored.tensors();
            tensors.extend(later.iter().map(|tensor| (tensor.clone(), Content::Later)));
            let mut make = |tensor: &Description| {
                read_so_far += 1;
                state.read(tensor)
            };
            checkpoint::save_made(folder, &manifest, tensors, &mut make, keep)
        });
        // Reading may need all ranks, so rank 0 goes on with it even if it cannot write.
        let rest = later[read_so_far..].iter().try_for_each(|tensor| state.read(tensor).map(drop));
        self.on_rank_0("checkpoint saved", || {
            saved.unwrap_or_else(|| Ok(PathBuf::new())).and_then(|path| rest.map(|()| path))
        })
    }

    /// The module and the optimizer's state of the newest checkpoint of this model in the folder, on all ranks. If there
    /// is no checkpoint, rank 0's module and optimizer, so that this is also how training begins.
    ///
    /// All ranks call it, with modules of the same structure; only rank 0 reads. A checkpoint that is damaged, or of
    /// another model, structure or optimizer, is refused on all ranks and left as it is. Optimizers that keep the same
    /// kind of state, such as Adam and AdamW, look alike here: see [`Resumed::require`]. Groups of parameters for an
    /// optimizer have to be given by their paths, because identities become those of the checkpoint.
    pub fn resume<M: Module>(
        &self,
        folder: &Path,
        model: &str,
        module: M,
        optimizer: &mut dyn Update<M>,
    ) -> Result<(M, Option<Resumed>)> {
        let mut restored = None;
        let resumed = self.on_rank_0("checkpoint read", || {
            let Some(found) = checkpoint::newest(folder, model)? else { return Ok(None) };
            let values = restore(&found, read(&module, MODULE, Which::All, false)?)?;
            let refused = found.refused.iter().map(ToString::to_string).collect();
            let resumed = Resumed { manifest: found.checkpoint.manifest.clone(), path: found.path.clone(), refused };
            restored = Some((values, found));
            Ok(Some(resumed))
        })?;
        let (module, state) = match restored {
            Some((values, found)) => (replace(module, MODULE, values), state_of(found)),
            None => (module, OptimizerState::none()),
        };
        let module = self.broadcast(module, 0)?;
        optimizer.restore(&module, state)?;
        Ok((module, resumed))
    }

    /// The result of `work` on rank 0, on all ranks.
    pub(super) fn on_rank_0<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let outcome = (self.rank() == 0).then(work);
        let message = outcome.as_ref().map(|outcome| match outcome {
            Ok(value) => Ok(value),
            Err(error) => {
                let (text, hint) = (error.to_string(), error.hint().unwrap_or_default().to_owned());
                // It may come from rank 0 of another world, and say so.
                let problem = if text.starts_with("rank 0: ") { text } else { format!("rank 0: {text}") };
                Err(Refusal { problem, hint })
            }
        });
        let broken = |error: postcard::Error| Error::setting(format!("{name}: {error}"), "report this");
        let message = message.map_or(Ok(Vec::new()), |message| postcard::to_stdvec(&message)).map_err(broken)?;
        let received = self.broadcast_bytes(name, 0, message)?;
        match outcome {
            Some(outcome) => outcome,
            None => match postcard::from_bytes::<std::result::Result<T, Refusal>>(&received).map_err(broken)? {
                Ok(value) => Ok(value),
                Err(Refusal { problem, hint }) => Err(Error::setting(problem, hint)),
            },
        }
    }
}
