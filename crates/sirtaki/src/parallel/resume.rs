//! Checkpoints of a module and its optimizer: written by rank 0, and read by it for all.
//!
//! Other ranks may have no access to the disk, so everything they need comes from rank 0, and so does every error. What
//! is read is compared with the module and the optimizer before anything of it is used. Random numbers are not saved:
//! they follow from the position in the data; see [`super::seed`].

use std::path::{Path, PathBuf};

use burn::module::Module;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sirtaki_engine::{Operation, Request, Tensor};

use super::{
    DistributedOptimizer,
    parts::{Which, read, replace},
    stored::{Stored, restore},
};
use crate::{
    Error, Result, World,
    checkpoint::{self, Manifest},
    world::elements,
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
    /// Refuses the checkpoint if the run that wrote it had another value of this setting; see [`Manifest::settings`].
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

/// What other ranks hear of an error of rank 0.
#[derive(Serialize, Deserialize)]
struct Refusal {
    problem: String,
    hint: String,
}

impl World {
    /// Saves all tensors of the module, running statistics too, the identities of its parameters and the optimizer's
    /// state in a folder, and removes all but the `keep` newest checkpoints of this model; 0 keeps all. Versions and
    /// number of workers are added to the manifest. Returns the folder of the checkpoint.
    ///
    /// All ranks call it. Rank 0 writes what it has; if it cannot, all ranks get the error. Statistics that ranks have
    /// gathered for themselves are to be [averaged](World::average_statistics) before.
    pub fn save<M: Module>(
        &self,
        folder: &Path,
        keep: usize,
        manifest: Manifest,
        module: &M,
        optimizer: &DistributedOptimizer,
    ) -> Result<PathBuf> {
        self.of_first("checkpoint saved", || {
            let mut manifest = Manifest { world: self.size(), ..manifest };
            let versions = [("sirtaki", env!("CARGO_PKG_VERSION")), ("burn", super::BURN)];
            manifest.versions.extend(versions.map(|(name, version)| (name.into(), version.into())));
            let stored = Stored::new(read(module, MODULE, Which::All, true)?, optimizer)?;
            checkpoint::save(folder, &manifest, &stored.tensors(), keep)
        })
    }

    /// The module and the optimizer's state of the newest checkpoint of this model in the folder, on all ranks. If there
    /// is no checkpoint, rank 0's module and optimizer, so that this is also how training begins.
    ///
    /// All ranks call it, with modules of the same structure; only rank 0 reads. A checkpoint that is damaged, or of
    /// another model, structure or optimizer, is refused on all ranks and left as it is.
    pub fn resume<M: Module>(
        &self,
        folder: &Path,
        model: &str,
        module: M,
        optimizer: &mut DistributedOptimizer,
    ) -> Result<(M, Option<Resumed>)> {
        let mut restored = None;
        let resumed = self.of_first("checkpoint read", || {
            let Some(found) = checkpoint::newest(folder, model)? else { return Ok(None) };
            let parts = read(&module, MODULE, Which::All, false)?;
            restored = Some(restore(&found, parts, optimizer)?);
            let refused = found.refused.iter().map(ToString::to_string).collect();
            Ok(Some(Resumed { manifest: found.checkpoint.manifest, path: found.path, refused }))
        })?;
        let module = match restored {
            Some((values, state)) => {
                *optimizer.inner_mut() = state;
                replace(module, MODULE, values)
            }
            None => module,
        };
        let module = self.broadcast(module, 0)?;
        optimizer.broadcast(&module, 0)?;
        Ok((module, resumed))
    }

    /// What rank 0 makes of `work`, on all ranks.
    fn of_first<T: Serialize + DeserializeOwned>(&self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let outcome = (self.rank() == 0).then(work);
        let told = outcome.as_ref().map(|outcome| match outcome {
            Ok(value) => Ok(value),
            Err(error) => {
                let hint = error.hint().unwrap_or_default().to_owned();
                Err(Refusal { problem: format!("rank 0: {error}"), hint })
            }
        });
        let strange = |error: postcard::Error| Error::setting(format!("{name}: {error}"), "report this");
        let told = told.map_or(Ok(Vec::new()), |told| postcard::to_stdvec(&told)).map_err(strange)?;
        let length = self.first(&format!("{name}: length"), vec![told.len() as i64], 1)?;
        let length = length.first().and_then(|&length| usize::try_from(length).ok()).unwrap_or(0);
        let heard = self.first(name, told, length)?;
        match outcome {
            Some(outcome) => outcome,
            None => match postcard::from_bytes::<std::result::Result<T, Refusal>>(&heard).map_err(strange)? {
                Ok(value) => Ok(value),
                Err(Refusal { problem, hint }) => Err(Error::setting(problem, hint)),
            },
        }
    }

    /// The elements of rank 0, of which there are `length`.
    fn first<T: sirtaki_comm::Element + Send + Default>(
        &self,
        name: &str,
        mut mine: Vec<T>,
        length: usize,
    ) -> Result<Vec<T>> {
        mine.resize(length, T::default());
        let request = Request::new(name, Operation::Broadcast { root: 0 }, T::DTYPE, &[length]);
        elements(name, self.engine().submit(request, Tensor::from_vec(mine)).wait_one()?)
    }
}
