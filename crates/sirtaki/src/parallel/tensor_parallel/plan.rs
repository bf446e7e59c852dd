//! A plan that says by name how the layers of a module are split.
//!
//! The types of a module's fields are fixed, so a layer that a plan may split is a [`PlannedLinear`], whole at first. The
//! plan cuts its parameters, and what it computes follows from their sizes. Names are the paths of the module's fields, as
//! in checkpoints.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use burn::{
    module::{Module, ModuleMapper, ModuleVisitor, Param},
    nn::Linear,
    tensor::Tensor,
};

use super::{
    super::differentiable::Collective,
    part::{cut, name, part},
};
use crate::{Error, Result, World};

/// The type of a layer's fields as Burn calls it.
const PLANNED: &str = "Struct:PlannedLinear";

/// How a dense layer is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SplitBy {
    /// By outputs, as [`ColumnLinear`](super::ColumnLinear): its output stays split.
    Column,
    /// By inputs, as [`RowLinear`](super::RowLinear): its input is split, and its output is not.
    Row,
}

/// A dense layer that a [plan](split_by_plan) can split; until then it is whole.
#[derive(Module, Debug)]
pub struct PlannedLinear {
    /// `[inputs, outputs]`, or this worker's part.
    pub weight: Param<Tensor<2>>,
    /// The offsets of these outputs.
    pub bias: Option<Param<Tensor<1>>>,
    inputs: usize,
    outputs: usize,
    #[module(skip)]
    entering: Collective,
    #[module(skip)]
    leaving: Collective,
}

impl PlannedLinear {
    /// A whole layer, the same on all workers of this world.
    pub fn new(world: &World, whole: Linear) -> Self {
        let ([inputs, outputs], name) = (whole.weight.dims(), name(Some(world), "planned linear"));
        let (entering, leaving) = (Collective::entering(Some(world), &name), Collective::leaving(Some(world), &name));
        Self { weight: whole.weight, bias: whole.bias, inputs, outputs, entering, leaving }
    }

    /// The outputs: this worker's if it is split by outputs, all of them otherwise. The inputs are this worker's if it is
    /// split by inputs, and all of them otherwise.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [inputs, outputs] = self.weight.dims();
        let linear = |bias, input| Linear { weight: self.weight.clone(), bias }.forward(input);
        if outputs < self.outputs {
            return linear(self.bias.clone(), self.entering.of(input));
        }
        if inputs == self.inputs {
            return linear(self.bias.clone(), input);
        }
        let sum = self.leaving.of(linear(None, input));
        match &self.bias {
            Some(bias) => sum + bias.val().unsqueeze(),
            None => sum,
        }
    }
}

/// Splits the layers of a module that a plan names over the workers of a world, and returns it with the paths of all
/// parameters that the plan leaves whole. A name is a path in the module, in which `*` stands for any one field:
///
/// ```no_run
/// # use burn::module::Module;
/// # use sirtaki::{World, tensor_parallel::{SplitBy, split_by_plan}};
/// # fn example<M: Module>(world: &World, model: M) -> sirtaki::Result<M> {
/// let (model, whole) = split_by_plan(world, model, &[("layers.*.up", SplitBy::Column), ("layers.*.down", SplitBy::Row)])?;
/// println!("every worker has all of {}", whole.join(", "));
/// # Ok(model)
/// # }
/// ```
///
/// All workers call it with the same plan and equal modules. It fails on all of them if a name means no layer, or one that
/// is no [`PlannedLinear`], if two rules disagree, if a layer is too small, or if workers have different plans.
pub fn split_by_plan<M: Module>(world: &World, module: M, plan: &[(&str, SplitBy)]) -> Result<(M, Vec<String>)> {
    let mut survey = Survey::default();
    module.visit(&mut survey);
    let splits = rules(plan, &survey).and_then(|splits| fitting(world, splits, &survey));
    agreed(world, plan, &survey, splits.is_err())?;
    let splits = splits?;
    let is_whole = |parameter: &&String| splits.iter().all(|(layer, ..)| layer_of(parameter) != layer);
    let whole = survey.parameters.iter().filter(is_whole).cloned().collect();
    let mut cutter = Cutter { world, path: Vec::new(), splits };
    Ok((module.map(&mut cutter), whole))
}

/// The layers that the plan names, and how each is split.
fn rules(plan: &[(&str, SplitBy)], survey: &Survey) -> Result<Vec<(String, SplitBy)>> {
    let mut splits: Vec<(String, SplitBy)> = Vec::new();
    for &(pattern, split) in plan {
        let layers: Vec<&String> = survey.layers.iter().filter(|layer| matches(pattern, layer)).collect();
        if layers.is_empty() {
            let named = survey.parameters.iter().any(|parameter| matches(pattern, layer_of(parameter)));
            let problem = match named {
                true => format!("the plan names `{pattern}`, and that is no PlannedLinear"),
                false => format!("the plan names `{pattern}`, and the module has no such layer"),
            };
            let layers: Vec<&str> = survey.layers.iter().map(String::as_str).collect();
            return Err(Error::setting(problem, format!("the layers that can be split are: {}", layers.join(", "))));
        }
        for layer in layers {
            match splits.iter().find(|(other, _)| other == layer) {
                Some((_, other)) if *other != split => {
                    let problem = format!("the plan splits `{layer}` by {other:?} and by {split:?}");
                    return Err(Error::setting(problem, "let only one name of the plan mean a layer"));
                }
                Some(_) => {}
                None => splits.push((layer.clone(), split)),
            }
        }
    }
    Ok(splits)
}

/// Refuses layers with too few inputs or outputs.
fn fitting(world: &World, splits: Vec<(String, SplitBy)>, survey: &Survey) -> Result<Vec<(String, SplitBy)>> {
    for (layer, split) in &splits {
        let size = survey.sizes.iter().find(|(other, _)| other == layer).map_or([0, 0], |(_, size)| *size);
        let (size, what) = match split {
            SplitBy::Column => (size[1], "outputs"),
            SplitBy::Row => (size[0], "inputs"),
        };
        part(Some(world), size, what)?;
    }
    Ok(splits)
}

/// Fails on all workers if one has another plan or another module, or has found a mistake.
fn agreed(world: &World, plan: &[(&str, SplitBy)], survey: &Survey, is_wrong: bool) -> Result<()> {
    let mut hasher = DefaultHasher::new();
    (plan, &survey.sizes, &survey.parameters).hash(&mut hasher);
    let own = hasher.finish() << 1 | u64::from(is_wrong);
    let all = world.gather("plan of layers", own)?;
    match (1..all.len()).find(|&worker| all[worker] != all[0]) {
        None => Ok(()),
        Some(worker) => {
            let problem = format!("worker {worker} has another plan or another module than worker 0");
            Err(Error::setting(problem, "split equal modules by the same plan on all workers"))
        }
    }
}

/// Whether a path is one that a name of a plan means.
fn matches(pattern: &str, path: &str) -> bool {
    let (mut pattern, mut path) = (pattern.split('.'), path.split('.'));
    loop {
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == "*" || wanted == found => {}
            _ => return false,
        }
    }
}

/// The path of the layer that a parameter belongs to.
fn layer_of(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or("", |(layer, _)| layer)
}

/// What there is in a module.
#[derive(Default)]
struct Survey {
    /// Where the visitor is, with the types of the modules that fields belong to.
    path: Vec<(String, String)>,
    /// The layers that can be split, with the sizes of their weights.
    sizes: Vec<(String, [usize; 2])>,
    layers: BTreeSet<String>,
    parameters: Vec<String>,
}

impl ModuleVisitor for Survey {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push((name.into(), container.into()));
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path: Vec<&str> = self.path.iter().map(|(name, _)| name.as_str()).collect();
        let parameter = path.join(".");
        if self.path.last().is_some_and(|(_, container)| container == PLANNED) {
            let layer = layer_of(&parameter).to_owned();
            if let [inputs, outputs] = param.dims()[..] {
                self.sizes.push((layer.clone(), [inputs, outputs]));
            }
            self.layers.insert(layer);
        }
        self.parameters.push(parameter);
    }
}

/// Cuts the parameters of layers.
struct Cutter<'a> {
    world: &'a World,
    path: Vec<String>,
    splits: Vec<(String, SplitBy)>,
}

impl ModuleMapper for Cutter<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let parameter = self.path.join(".");
        let split = self.splits.iter().find(|(layer, _)| layer == layer_of(&parameter)).map(|(_, split)| *split);
        let dimension = match (split, D) {
            (Some(SplitBy::Column), _) => D - 1,
            (Some(SplitBy::Row), 2) => 0,
            _ => return param,
        };
        match part(Some(self.world), param.dims()[dimension], "values") {
            Ok(own) => cut(&param, dimension, &own),
            Err(_) => param,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn names_mean_paths() {
        for (pattern, path, expected) in [
            ("layers.*.up", "layers.0.up", true),
            ("layers.*.up", "layers.11.up", true),
            ("layers.*.up", "layers.0.down", false),
            ("layers.*", "layers.0.up", false),
            ("*.*.up", "layers.0.up", true),
            ("up", "up", true),
            ("up", "layers.0.up", false),
            ("", "up", false),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
