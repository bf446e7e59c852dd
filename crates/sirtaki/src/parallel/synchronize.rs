//! Modules made equal on all ranks, and running statistics averaged.

use burn::{
    module::{Module, ParamId},
    tensor::{DType, TensorData},
};
use sirtaki_comm::{Rank, Reduction};
use sirtaki_engine::{Operation, Request, Tensor};

use super::{
    convert::{inbound, outbound, zeros},
    module_tensors::{Part, Which, read, replace},
    tensor_names::group,
};
use crate::{Error, Result, World, world::elements};

const BROADCAST: &str = "broadcast";
const STATISTICS: &str = "statistics";

impl World {
    /// The module as rank `root` has it: all tensors, including those that are not trained, and the identities of the
    /// parameters, by which an optimizer knows them. All ranks call it with modules of the same structure.
    ///
    /// Groups of parameters for an optimizer that refer to identities have to be made afterwards.
    pub fn broadcast<M: Module>(&self, module: M, root: Rank) -> Result<M> {
        let is_root = self.rank() == root;
        let parts = read(&module, BROADCAST, Which::All, is_root)?;
        let operation = Operation::Broadcast { root };
        let identities: Vec<i64> = parts.iter().map(|part| part.id.val().cast_signed()).collect();
        let names = format!("{BROADCAST} identities");
        let first = Request::new(&names, operation.clone(), sirtaki_comm::DType::I64, &[identities.len()]);
        let mut requests = vec![(first, Tensor::from_vec(identities))];
        let mut expected = Vec::new();
        for Part { name, shape, dtype, data, .. } in parts {
            let data = data.unwrap_or_else(|| zeros(&shape, dtype));
            requests.push(outbound(&name, operation.clone(), data));
            expected.push((name, shape, dtype));
        }
        let group = group(BROADCAST, expected.iter().map(|(name, ..)| name.as_str()));
        let mut outputs = self.engine().submit_group(&group, requests).wait()?.into_iter();
        if is_root {
            return Ok(module);
        }
        let identities = outputs.next().map_or(Ok(Vec::new()), |output| elements::<i64>(&names, output))?;
        let mut values = Vec::new();
        for (((name, shape, dtype), id), output) in expected.into_iter().zip(identities).zip(outputs) {
            let data = inbound(&name, output, shape, dtype)?;
            values.push((name, ParamId::from(id.cast_unsigned()), data));
        }
        Ok(replace(module, BROADCAST, values))
    }

    /// The module with the mean of all ranks' running statistics, such as those of batch norm, which every rank gathers
    /// from its own data. For a module in training, before it is validated or saved. All ranks call it.
    ///
    /// It averages everything that is not trained. Frozen parameters, which are the same on all ranks, stay as they
    /// are.
    pub fn average_statistics<M: Module>(&self, module: M) -> Result<M> {
        let parts = read(&module, STATISTICS, Which::NotTrained, true)?;
        if parts.is_empty() {
            return Ok(module);
        }
        // In f64 the mean of equal numbers of a narrower type is that number.
        let cast = |data: TensorData, to: DType| {
            data.try_cast(to).map_err(|error| Error::setting(error.to_string(), "use floating-point statistics"))
        };
        let mut types = Vec::new();
        let mut wide = Vec::new();
        for part in parts {
            types.push(part.dtype);
            let data = part.data.unwrap_or_else(|| zeros(&part.shape, part.dtype));
            wide.push(Part { data: Some(cast(data, DType::F64)?), dtype: DType::F64, ..part });
        }
        let mut values = mean(self, STATISTICS, wide)?;
        for ((.., data), dtype) in values.iter_mut().zip(types) {
            *data = cast(std::mem::replace(data, TensorData::new(Vec::<f64>::new(), [0])), dtype)?;
        }
        Ok(replace(module, STATISTICS, values))
    }
}

/// The mean of all ranks' tensors, submitted together.
pub(super) fn mean(world: &World, purpose: &str, parts: Vec<Part>) -> Result<Vec<(String, ParamId, TensorData)>> {
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for Part { name, id, shape, dtype, data } in parts {
        let data = data.unwrap_or_else(|| zeros(&shape, dtype));
        requests.push(outbound(&name, Operation::AllReduce(Reduction::AVERAGE), data));
        expected.push((name, id, shape, dtype));
    }
    let group = group(purpose, expected.iter().map(|(name, ..)| name.as_str()));
    let outputs = world.engine().submit_group(&group, requests).wait()?;
    let values = expected.into_iter().zip(outputs);
    values
        .map(|((name, id, shape, dtype), output)| Ok((name.clone(), id, inbound(&name, output, shape, dtype)?)))
        .collect()
}
