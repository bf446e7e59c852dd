//! Steps with what a window has changed: the outer optimizer of DiLoCo.

use std::collections::BTreeMap;

use burn::{
    module::Module,
    tensor::{DType, Device, Shape, Tensor, TensorData},
};

use super::{
    super::{
        checkpoint_tensors::stored_type,
        convert::copied,
        module_tensors::{Part, Which, read, replace},
        optimizer_record::{Field, tensor_name, tensor_type},
        synchronize::mean,
        update::SavedTensor,
    },
    weights::WEIGHT,
};
use crate::{Result, World, checkpoint::Description};

/// The name of the outer momentum among the state of a parameter.
const MOMENTUM: &str = "outer momentum";

/// Descent with Nesterov's momentum, one step per window.
#[derive(Debug)]
pub(super) struct Outer {
    rate: f64,
    momentum: f64,
    /// The weights with which the window began.
    anchors: Vec<Tensor<1>>,
    /// By the paths of the parameters.
    speed: BTreeMap<String, Tensor<1>>,
}

/// Whether it is one of these.
pub(super) fn is_momentum(tensor: &Description) -> bool {
    matches!(Field::of(&tensor.name), Some(Field::Tensor(_, MOMENTUM)))
}

impl Outer {
    pub(super) fn new(rate: f64, momentum: f64) -> Self {
        Self { rate, momentum, anchors: Vec::new(), speed: BTreeMap::new() }
    }

    /// Remembers where a window begins.
    pub(super) fn begin<M: Module>(&mut self, module: &M) -> Result<()> {
        self.anchors = trained(module)?.into_iter().map(|(_, weights)| weights).collect();
        Ok(())
    }

    /// The module after a step from where the window began.
    pub(super) fn step<M: Module>(&mut self, world: &World, module: M) -> Result<M> {
        let anchors = std::mem::take(&mut self.anchors);
        let mut parts = Vec::new();
        for ((part, now), anchor) in trained(&module)?.into_iter().zip(&anchors) {
            let change = anchor.clone().sub(now).into_data();
            parts.push(Part { data: Some(shaped(change, part.shape.clone())), ..part });
        }
        let mut moved = Vec::new();
        for ((name, id, change), anchor) in mean(world, "weight change", parts)?.into_iter().zip(anchors) {
            let (shape, change) = (change.shape().clone(), flat(change));
            let speed = match self.speed.remove(path(&name)) {
                Some(speed) => speed.mul_scalar(self.momentum).add(change.clone()),
                None => change.clone(),
            };
            let step = change.add(speed.clone().mul_scalar(self.momentum)).mul_scalar(self.rate);
            self.speed.insert(path(&name).to_owned(), speed);
            moved.push((name, id, shaped(anchor.sub(step).into_data(), shape)));
        }
        Ok(replace(module, WEIGHT, moved))
    }

    /// What a checkpoint needs of it.
    pub(super) fn save(&self) -> Result<Vec<SavedTensor>> {
        let save = |(path, speed): (&String, &Tensor<1>)| {
            let name = tensor_name(path, MOMENTUM);
            let data = speed.to_data();
            let description =
                Description { dtype: stored_type(&name, data.dtype())?, shape: data.shape().to_vec(), name };
            Ok((description, data.as_bytes().to_vec()))
        };
        self.speed.iter().map(save).collect()
    }

    /// The opposite.
    pub(super) fn restore(&mut self, saved: Vec<SavedTensor>) {
        let tensor = |(description, bytes): SavedTensor| {
            let path = Field::of(&description.name)?.path().to_owned();
            let data = copied(&bytes, description.shape.into(), tensor_type(description.dtype)?);
            Some((path, flat(data)))
        };
        self.speed = saved.into_iter().filter_map(tensor).collect();
    }
}

/// The parameters that are trained, and what is in them.
fn trained<M: Module>(module: &M) -> Result<Vec<(Part, Tensor<1>)>> {
    let weights = |part: Part| {
        let Part { name, id, shape, dtype, data } = part;
        let weights = data.map(flat)?;
        Some((Part { name, id, shape, dtype, data: None }, weights))
    };
    Ok(read(module, WEIGHT, Which::Trained, true)?.into_iter().filter_map(weights).collect())
}

fn path(name: &str) -> &str {
    name.strip_prefix(WEIGHT).unwrap_or(name).trim_start_matches('/')
}

fn flat(data: TensorData) -> Tensor<1> {
    let (count, dtype): (usize, DType) = (data.shape().num_elements(), data.dtype());
    Tensor::from_data(shaped(data, [count].into()), (&Device::flex(), dtype))
}

fn shaped(data: TensorData, shape: Shape) -> TensorData {
    let (bytes, _, dtype) = data.into_parts();
    TensorData::from_bytes(bytes, shape, dtype)
}
