//! New weights from the ranks that have changed them, for all ranks.

use std::collections::HashMap;

use burn::{module::Module, tensor::TensorData};
use sirtaki_engine::{Operation, Request, Tensor};

use super::{Layout, slices::fill};
use crate::{
    Result, World,
    parallel::{
        convert::{copied, engine_type},
        tensor_names::group,
    },
    world::wrong_type,
};

/// The module with the elements of all ranks' slices. `changed` has this rank's, without parameters of which it has none.
pub(super) fn weights<M: Module>(
    world: &World,
    purpose: &str,
    layout: &Layout,
    module: M,
    changed: Vec<TensorData>,
) -> Result<M> {
    let parameters = &layout.blocks.parameters;
    // How far each parameter's slice has been sent.
    let mut changed = changed.into_iter();
    let mut slices: Vec<Option<(TensorData, usize)>> = layout
        .own
        .iter()
        .map(|own| (!own.is_empty()).then(|| changed.next().map(|data| (data, 0))).flatten())
        .collect();
    let mut requests = Vec::new();
    for block in &layout.blocks.blocks {
        let share = block.share(world.rank(), world.size());
        let count = share.iter().map(|span| span.elements.len()).sum();
        let mut flat = Tensor::zeros(engine_type(block.dtype), count);
        let mut rest = flat.bytes_mut();
        for span in share {
            let (part, after) = rest.split_at_mut(span.elements.len() * block.dtype.size());
            if let Some((data, sent)) = &mut slices[span.parameter] {
                part.copy_from_slice(&data.as_bytes()[*sent..*sent + part.len()]);
                *sent += part.len();
            }
            rest = after;
        }
        let name = format!("{purpose}, new weights: {}", block.name);
        requests.push((Request::new(name, Operation::AllGather, flat.dtype(), &[count]).of_all(), flat));
    }
    drop(slices);
    let group = group(&format!("{purpose}, new weights"), parameters.iter().map(|parameter| parameter.path.as_str()));
    let outputs = world.engine().submit_group(&group, requests).wait()?;
    let mut values: Vec<Vec<u8>> = parameters.iter().map(|_| Vec::new()).collect();
    for (block, output) in layout.blocks.blocks.iter().zip(outputs) {
        let whole = output.into_tensor().ok_or_else(|| wrong_type(&block.name))?;
        let mut rest = whole.bytes();
        for span in &block.spans {
            let (part, after) = rest.split_at(span.elements.len() * block.dtype.size());
            values[span.parameter].extend_from_slice(part);
            rest = after;
        }
    }
    let value = |(parameter, bytes): (&super::Parameter, Vec<u8>)| {
        (parameter.id, copied(&bytes, parameter.shape.clone(), parameter.dtype))
    };
    let values: HashMap<_, _> = parameters.iter().zip(values).map(value).collect();
    Ok(fill(module, values))
}
