//! Checkpoints of a network in stages: the files that one process with the whole network writes and reads.
//!
//! Worker 0 of the pipeline writes and reads. Tensors that belong to other stages come from their workers, or go to them,
//! one at a time and in the order of the file, so no worker needs more memory than for its own stages. Where layers are
//! split over workers, the first of these has whole tensors for as long as it takes to pass them on. Of several copies of
//! the network, the first does this, and the others hear from it.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use burn::{module::ParamId, tensor::TensorData};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sirtaki_engine::{Expected, Source, Tensor};

use super::{
    Pipeline,
    chain::{Chain, Layer},
    splits::Splits,
};
use crate::{
    Error, OptimizerState, Result, Resumed, Update, World,
    checkpoint::{self, Content, Description, Found, Manifest},
    parallel::{
        checkpoint_tensors::{IDENTITIES, stored_type},
        convert::copied,
        module_tensors::{Part, Which, read, replace},
        optimizer_record::is_state,
        resume::{MODULE, versions},
    },
    world::{elements, wrong_type},
};

/// What a worker has, without its elements.
#[derive(Clone, Serialize, Deserialize)]
struct Inventory {
    /// Tensors of the module in the order of the network, with the numbers of their layers and their identities.
    parts: Vec<(usize, u64, Description)>,
    state: Vec<Description>,
}

/// What all workers have, from the point of view of one.
struct Stock {
    /// In the order of the file, with the worker that has each.
    tensors: Vec<(Description, usize)>,
    /// The identities of all tensors of the network, in its order.
    identities: Vec<u8>,
}

impl Pipeline {
    /// Saves the network and the optimizer's state like [`World::save`]: in the same files, whoever has which layer, so
    /// that training can go on with other stages, another number of workers, or in one process.
    ///
    /// All workers call it, those of all copies of the network too. Worker 0 of the first copy writes.
    pub fn save<L: Layer>(
        &self,
        folder: &Path,
        keep: usize,
        manifest: Manifest,
        chain: &Chain<L>,
        update: &dyn Update<Chain<L>>,
    ) -> Result<PathBuf> {
        let mut state = update.save(chain)?;
        let data = update.world();
        let saved = match data.rank() {
            0 => {
                let workers = self.world.size() * data.size();
                self.save_stages((folder, keep, Manifest { world: workers, ..manifest }), chain, &mut state)
            }
            _ => state.tensors().to_vec().iter().try_for_each(|tensor| state.read(tensor).map(drop)).map(|()| None),
        };
        data.on_rank_0("checkpoint of stages saved", || saved.map(Option::unwrap_or_default))
    }

    fn save_stages<L: Layer>(
        &self,
        (folder, keep, mut manifest): (&Path, usize, Manifest),
        chain: &Chain<L>,
        state: &mut OptimizerState<'_>,
    ) -> Result<Option<PathBuf>> {
        let splits = chain.splits();
        let parts = read(chain, MODULE, Which::All, true)?;
        let stock = self.stock(inventory(&parts, state.tensors(), splits)?)?;
        let mut own: HashMap<String, TensorData> =
            parts.into_iter().filter_map(|part| Some((part.name, part.data?))).collect();
        let mut bytes = |tensor: &Description| {
            let part = splits.map_or_else(|| tensor.clone(), |splits| splits.part(tensor));
            let part = match own.remove(&tensor.name) {
                Some(data) => data.as_bytes().to_vec(),
                None => state.read(&part)?,
            };
            match splits {
                Some(splits) => splits.gather(tensor, part),
                None => Ok(part),
            }
        };
        let first = is_first(splits);
        if self.world.rank() != 0 || !first {
            for (tensor, _) in stock.tensors.iter().filter(|(_, owner)| *owner == self.world.rank()) {
                let whole = bytes(tensor)?;
                if first {
                    self.send_tensor(0, tensor, whole)?;
                }
            }
            return by_first(splits, || self.world.on_rank_0("checkpoint saved", || Ok(PathBuf::new()))).map(Some);
        }
        manifest.versions.extend(versions());
        let owners: HashMap<&str, usize> =
            stock.tensors.iter().map(|(tensor, owner)| (tensor.name.as_str(), *owner)).collect();
        let made = Cell::new(0);
        let mut make = |tensor: &Description| {
            made.set(made.get() + 1);
            match owners.get(tensor.name.as_str()) {
                Some(&owner) if owner > 0 => self.receive_tensor(owner, tensor),
                _ => bytes(tensor),
            }
        };
        let identities = Description {
            name: IDENTITIES.into(),
            dtype: checkpoint::Dtype::U64,
            shape: vec![stock.identities.len() / 8],
        };
        let mut tensors: Vec<(Description, Content<'_>)> =
            stock.tensors.iter().map(|(tensor, _)| (tensor.clone(), Content::Later)).collect();
        tensors.push((identities, Content::Here(&stock.identities)));
        let saved = checkpoint::save_made(folder, &manifest, tensors, &mut make, keep);
        // The others wait until their tensors are taken, even if they cannot be written.
        let rest = stock.tensors[made.get()..].iter().try_for_each(|(tensor, _)| make(tensor).map(drop));
        let saved = || self.world.on_rank_0("checkpoint saved", || saved.and_then(|path| rest.map(|()| path)));
        by_first(splits, saved).map(Some)
    }

    /// The network and the optimizer's state of the newest checkpoint of this model in the folder, like [`World::resume`],
    /// whoever wrote it. If there is no checkpoint, they are as they were, and those of the first copy.
    ///
    /// All workers call it, those of all copies of the network too. Worker 0 of the first copy reads.
    pub fn resume<L: Layer>(
        &self,
        folder: &Path,
        model: &str,
        chain: Chain<L>,
        update: &mut dyn Update<Chain<L>>,
    ) -> Result<(Chain<L>, Option<Resumed>)> {
        let data = update.world().clone();
        let first = (data.rank() == 0).then(|| self.resume_stages(folder, model, &chain));
        let (values, state, resumed) = match first.transpose() {
            Ok(Some((values, state, resumed))) => (values, state, Ok(resumed)),
            Ok(None) => (Vec::new(), OptimizerState::none(), Ok(None)),
            Err(error) => (Vec::new(), OptimizerState::none(), Err(error)),
        };
        let resumed = data.on_rank_0("checkpoint of stages read", || resumed)?;
        let chain = data.broadcast(replace(chain, MODULE, values), 0)?;
        update.restore(&chain, state)?;
        Ok((chain, resumed))
    }

    /// What the checkpoint has for this worker's stages.
    #[allow(clippy::type_complexity, reason = "values, state and checkpoint are used right away")]
    fn resume_stages<L: Layer>(
        &self,
        folder: &Path,
        model: &str,
        chain: &Chain<L>,
    ) -> Result<(Vec<(String, ParamId, TensorData)>, OptimizerState<'static>, Option<Resumed>)> {
        let splits = chain.splits();
        let parts = read(chain, MODULE, Which::All, false)?;
        let stock = self.stock(inventory(&parts, &[], splits)?)?;
        let mut found = None;
        let newest = || {
            let Some(newest) = checkpoint::newest(folder, model)? else { return Ok(None) };
            check(&newest, &stock)?;
            let refused = newest.refused.iter().map(ToString::to_string).collect();
            let resumed = Resumed { manifest: newest.checkpoint.manifest.clone(), path: newest.path.clone(), refused };
            let state = state_by_layer(&newest);
            found = Some(newest);
            Ok(Some((resumed, state)))
        };
        let resumed = by_first(splits, || self.world.on_rank_0("checkpoint read", newest))?;
        let Some((resumed, state)) = resumed else { return Ok((Vec::new(), OptimizerState::none(), None)) };
        let owner = |layer: usize| {
            let stage = self.stages.iter().position(|stage| stage.contains(&layer));
            self.plan.owner(stage.unwrap_or(0))
        };
        let mut wanted = stock.tensors;
        wanted.extend(state.into_iter().map(|(layer, tensor)| (tensor, owner(layer))));
        let mut contents = self.deal(&wanted, found.as_ref(), splits)?;
        let mut values = Vec::new();
        for part in parts {
            let bytes = contents.remove(&part.name).ok_or_else(|| wrong_type(&part.name))?;
            values.push((part.name, part.id, copied(&bytes.1, part.shape, part.dtype)));
        }
        let tensors = contents.values().map(|(tensor, _)| tensor.clone()).collect();
        let read =
            move |tensor: &Description| Ok(contents.remove(&tensor.name).map_or_else(Vec::new, |(_, bytes)| bytes));
        let state = OptimizerState::new(tensors, read, Some(resumed.path.clone()));
        Ok((values, state, Some(resumed)))
    }

    /// Gives every worker its tensors from the checkpoint that worker 0 has found.
    fn deal(
        &self,
        wanted: &[(Description, usize)],
        found: Option<&Found>,
        splits: Option<&Splits>,
    ) -> Result<BTreeMap<String, (Description, Vec<u8>)>> {
        let mut mine = BTreeMap::new();
        for (tensor, owner) in wanted {
            let here = *owner == self.world.rank();
            let whole = match found {
                Some(found) => {
                    let bytes = found.checkpoint.read(&tensor.name)?;
                    if !here {
                        self.send_tensor(*owner, tensor, bytes)?;
                        continue;
                    }
                    Some(bytes)
                }
                None if !here => continue,
                None => is_first(splits).then(|| self.receive_tensor(0, tensor)).transpose()?,
            };
            let own = match splits {
                Some(splits) => (splits.part(tensor), splits.deal(tensor, whole)?),
                None => (tensor.clone(), whole.unwrap_or_default()),
            };
            mine.insert(tensor.name.clone(), own);
        }
        Ok(mine)
    }

    fn send_tensor(&self, to: usize, tensor: &Description, bytes: Vec<u8>) -> Result<()> {
        let shape = [bytes.len()];
        let ticket =
            self.world.engine().send(to, self.links.tag_of_tensors(), &tensor.name, &shape, Tensor::from_vec(bytes));
        Ok(ticket.wait_one().map(drop)?)
    }

    fn receive_tensor(&self, from: usize, tensor: &Description) -> Result<Vec<u8>> {
        let tag = self.links.tag_of_tensors();
        let ticket = self.world.receive(Source::Rank(from), tag, &tensor.name, Expected::Anything);
        let bytes = elements::<u8>(&tensor.name, ticket.wait_one()?)?;
        if tensor.bytes() == Some(bytes.len()) { Ok(bytes) } else { Err(wrong_type(&tensor.name)) }
    }

    /// What all workers have.
    fn stock(&self, own: Inventory) -> Result<Stock> {
        let broken = |error: postcard::Error| Error::setting(format!("tensors of stages: {error}"), "report this");
        let bytes = postcard::to_stdvec(&own).map_err(broken)?;
        let lengths = self.world.gather("lengths of lists of tensors", bytes.len() as u64)?;
        let all = gather_bytes(&self.world, "lists of tensors", bytes)?;
        let (mut rest, mut parts, mut tensors) = (all.as_slice(), Vec::new(), Vec::new());
        for (worker, length) in lengths.into_iter().enumerate() {
            let (list, after) = rest.split_at_checked(length as usize).ok_or_else(|| wrong_type("lists of tensors"))?;
            let list: Inventory = postcard::from_bytes(list).map_err(broken)?;
            tensors.extend(list.parts.iter().map(|(_, _, tensor)| (tensor.clone(), worker)));
            tensors.extend(list.state.into_iter().map(|tensor| (tensor, worker)));
            parts.extend(list.parts);
            rest = after;
        }
        parts.sort_by_key(|(layer, ..)| *layer);
        tensors.sort_by(|(one, _), (other, _)| one.order(other));
        let identities = parts.iter().flat_map(|(_, id, _)| id.to_le_bytes()).collect();
        Ok(Stock { tensors, identities })
    }
}

/// Whether this is the worker that has whole tensors.
fn is_first(splits: Option<&Splits>) -> bool {
    splits.is_none_or(|splits| splits.world.rank() == 0)
}

/// What the first of the workers that share layers finds out, on all of them.
fn by_first<T: Serialize + DeserializeOwned>(splits: Option<&Splits>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match splits {
        Some(splits) => splits.world.on_rank_0("checkpoint of parts", work),
        None => work(),
    }
}

fn gather_bytes(world: &World, name: &str, bytes: Vec<u8>) -> Result<Vec<u8>> {
    use sirtaki_engine::{Operation, Request};

    let request = Request::new(name, Operation::AllGather, sirtaki_comm::DType::U8, &[bytes.len()]);
    elements(name, world.engine().submit(request, Tensor::from_vec(bytes)).wait_one()?)
}

fn inventory(parts: &[Part], state: &[Description], splits: Option<&Splits>) -> Result<Inventory> {
    let whole = |tensor: &Description| splits.map_or_else(|| tensor.clone(), |splits| splits.whole(tensor));
    let describe = |part: &Part| {
        let (dtype, shape) = (stored_type(&part.name, part.dtype)?, part.shape.to_vec());
        let layer = layer_of(part.name.split_once('/').map_or("", |(_, path)| path)).unwrap_or(0);
        Ok((layer, part.id.val(), whole(&Description { name: part.name.clone(), dtype, shape })))
    };
    let state = state.iter().map(whole).collect();
    Ok(Inventory { parts: parts.iter().map(describe).collect::<Result<_>>()?, state })
}

/// The number of the layer that a path begins with.
fn layer_of(path: &str) -> Option<usize> {
    path.split('.').next()?.parse().ok()
}

/// The tensors of the optimizer's state in a checkpoint, with the layers they belong to, in the order of the file.
fn state_by_layer(found: &Found) -> Vec<(usize, Description)> {
    let names = found.checkpoint.names().into_iter().filter(|name| is_state(name));
    let mut state: Vec<(usize, Description)> = names
        .filter_map(|name| {
            let layer = name.split_once('/').and_then(|(_, path)| layer_of(path)).unwrap_or(0);
            Some((layer, found.checkpoint.describe(&name)?))
        })
        .collect();
    state.sort_by(|(_, one), (_, other)| one.order(other));
    state
}

/// Refuses a checkpoint of another network.
fn check(found: &Found, stock: &Stock) -> Result<()> {
    let foreign = |problem: String| {
        let hint = "continue with the model and optimizer that wrote it, or in another folder; it is left as it is";
        Err(Error::file(&found.path, problem, hint))
    };
    for (tensor, _) in &stock.tensors {
        match found.checkpoint.describe(&tensor.name) {
            None => return foreign(format!("tensor `{}`: it is missing", tensor.name)),
            Some(there) if there != *tensor => {
                let (there, here) = ((there.dtype, there.shape), (tensor.dtype, &tensor.shape));
                return foreign(format!("tensor `{}`: {there:?}, and the model's is {here:?}", tensor.name));
            }
            Some(_) => {}
        }
    }
    let known = |name: &String| {
        name == IDENTITIES || is_state(name) || stock.tensors.iter().any(|(other, _)| other.name == *name)
    };
    match found.checkpoint.names().iter().find(|name| !known(name)) {
        Some(name) => foreign(format!("tensor `{name}`: the model has none of this name")),
        None => Ok(()),
    }
}
