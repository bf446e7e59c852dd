//! Whether an optimizer can work on parts of a parameter.
//!
//! Burn's optimizers do not say how they compute, so they are tried out: a small tensor in the place of each parameter,
//! in whole and in parts, with small and with very large gradients, has to end with the same bits.

use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::{GradientsParams, ModuleOptimizer},
    tensor::{Device, Tensor, TensorData},
};

use super::slices::{Named, Slices};
use crate::{Error, Result, parallel::tensor_names::Path};

/// Refuses an optimizer that needs whole parameters of this module.
pub(in crate::parallel) fn check<M: Module>(module: &M, optimizer: &ModuleOptimizer) -> Result<()> {
    let mut trial = Trial { optimizer, path: Path::default(), failed: None };
    module.visit(&mut trial);
    let Some(path) = trial.failed else { return Ok(()) };
    let problem = format!("the optimizer needs \"{path}\" as a whole, so its state cannot be split over workers");
    let hint = "use one that changes each element by itself, such as SGD, Adam or AdamW, without clipping of its own, or \
                keep its state whole";
    Err(Error::setting(problem, hint))
}

struct Trial<'a> {
    optimizer: &'a ModuleOptimizer,
    path: Path,
    /// The first parameter that differs.
    failed: Option<String>,
}

impl ModuleVisitor for Trial<'_> {
    fn enter_module(&mut self, name: &str, _: &str) {
        self.path.enter(name);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.leave();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.failed.is_some() || !param.base().is_require_grad() {
            return;
        }
        let path = self.path.name("").trim_start_matches('/').to_owned();
        let device = Device::flex();
        let elements = 2_usize.pow(D as u32);
        let values: Vec<f32> = (0..elements).map(|place| 0.7 - 0.3 * place as f32).collect();
        let gradient = |scale: f32| (0..elements).map(|place| scale * (0.2 + 0.1 * place as f32)).collect();
        let gradients: [Vec<f32>; 2] = [gradient(1.0), gradient(1e9)];
        let whole = |values: &[f32]| Tensor::<D>::from_data(TensorData::new(values.to_vec(), [2; D]), &device);
        let part = |values: &[f32]| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [values.len()]), &device);

        let mut optimizer = self.optimizer.clone();
        let mut module = Named::new(&path, param.id, whole(&values));
        for gradient in &gradients {
            let mut all = GradientsParams::new();
            all.register(param.id, whole(gradient));
            module = optimizer.step(0.1, module, all);
        }
        let expected = bytes(module.data());

        let mut found = Vec::new();
        for range in [0..elements / 2 + 1, elements / 2 + 1..elements] {
            if range.is_empty() {
                continue;
            }
            let mut optimizer = self.optimizer.clone();
            let mut module = Slices(vec![Named::new(&path, param.id, part(&values[range.clone()]))]);
            for gradient in &gradients {
                let mut all = GradientsParams::new();
                all.register(param.id, part(&gradient[range.clone()]));
                module = optimizer.step(0.1, module, all);
            }
            found.extend(module.0.into_iter().flat_map(|slice| bytes(slice.data())));
        }
        if found != expected {
            self.failed = Some(path);
        }
    }
}

fn bytes(data: TensorData) -> Vec<u8> {
    data.as_bytes().to_vec()
}
