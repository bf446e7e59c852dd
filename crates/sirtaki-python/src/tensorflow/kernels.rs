//! What the ops do. Submitting never waits, so that threads of TensorFlow's are free to submit what other ranks need.

use std::ffi::c_int;

use sirtaki_engine::{Output, Request, Tensor};

use crate::{
    registry,
    tensorflow::{
        call::Call,
        context::{Context, Failure},
        pending,
        tensor::{Held, INT32, is_opaque},
    },
};

/// Submits tensors whose results replace them: they go on through the graph to [`finish`], which nothing else reads.
pub(super) fn start(call: &Call, context: &Context) -> Result<(), Failure> {
    let count = context.inputs();
    if pending::is_alone(call)? && call.keeps_values_of_one() {
        (0..count).try_for_each(|index| context.set_output(index, &context.input(index)?))?;
        return context.set_integers(count, &[pending::NOTHING], &[]);
    }
    let mut requests: Vec<(Request, Tensor)> = Vec::new();
    for index in 0..count {
        let (tensor, dtype, shape) = context.forward(index)?.into_engine(None);
        requests.push((call.request(requests.len(), count as usize, dtype, &shape), tensor));
    }
    let number = pending::submit(call, requests)?;
    context.set_integers(count, &[number], &[])
}

/// Waits for everything that was submitted by some [`start`]s, and passes their tensors on.
pub(super) fn finish(context: &Context) -> Result<(), Failure> {
    let count = context.outputs();
    let mut outcome = Ok(());
    // All of them, whatever came of the first: what is not done must not be left behind.
    for number in tickets(context, count)? {
        outcome = outcome.and(pending::wait(number).map(drop));
    }
    outcome?;
    (0..count).try_for_each(|index| context.set_output(index, &context.input(index)?))
}

/// The numbers of what a kernel waits for: in its inputs from `first` on.
pub(super) fn tickets(context: &Context, first: c_int) -> Result<Vec<i64>, Failure> {
    let mut numbers = Vec::new();
    for index in first..context.inputs() {
        numbers.extend(context.input(index)?.integers());
    }
    Ok(numbers)
}

/// Submits tensors from which new ones result. The last input has the rows that go to each rank, for an exchange.
pub(super) fn start_new(call: &Call, context: &Context) -> Result<(), Failure> {
    let count = context.inputs() - 1;
    let mut requests: Vec<(Request, Tensor)> = Vec::new();
    for index in 0..count {
        let input = context.input(index)?;
        let (call, rows) = match call.exchanges() {
            true => {
                let splits = splits(call, &input, &context.input(count)?)?;
                let rows = splits.iter().sum();
                (&call.with_splits(splits), Some(rows))
            }
            false => (call, None),
        };
        let (tensor, dtype, shape) = if call.overwrites() { input.to_engine() } else { input.into_engine(rows) };
        requests.push((call.request(requests.len(), count as usize, dtype, &shape), tensor));
    }
    if requests.is_empty() {
        let request = call.request(0, 1, sirtaki_comm::DType::U8, &[0]);
        requests.push((request, Tensor::empty()));
    }
    let number = pending::submit(call, requests)?;
    context.set_integers(0, &[number], &[])
}

/// How many rows go to each rank: those given, or the same number to each.
fn splits(call: &Call, tensor: &Held, given: &Held) -> Result<Vec<usize>, Failure> {
    let size = registry::find(call.set).map_err(Failure::precondition)?.engine().group().size();
    let Some(&rows) = tensor.shape().first() else {
        return Err(Failure::invalid("a number has no rows to exchange\nhint: reshape it to one row"));
    };
    let given = given.integers();
    if given.is_empty() {
        if !rows.is_multiple_of(size) {
            let text = format!("{rows} rows cannot be divided equally among {size} ranks\nhint: give splits");
            return Err(Failure::invalid(text));
        }
        return Ok(vec![rows / size; size]);
    }
    if given.len() != size {
        return Err(Failure::invalid(format!("{size} ranks need {size} splits, not {}", given.len())));
    }
    let splits: Result<Vec<usize>, _> = given.iter().map(|&split| usize::try_from(split)).collect();
    let splits = splits.map_err(|_| Failure::invalid(format!("splits must not be negative, as in {given:?}")))?;
    let total = splits.iter().try_fold(0_usize, |sum, &split| sum.checked_add(split));
    if total.is_none_or(|total| total > rows) {
        return Err(Failure::invalid(format!("the splits {given:?} are more than the tensor's {rows} rows")));
    }
    Ok(splits)
}

/// Waits for a [`start_new`] and passes on what resulted, and then the rows from each rank or the last rank to join.
pub(super) fn finish_new(context: &Context) -> Result<(), Failure> {
    let number = tickets(context, 0)?.first().copied().unwrap_or_default();
    let last = context.outputs() - 1;
    let mut counts: Vec<i64> = Vec::new();
    for (index, output) in (0..).zip(pending::wait(number)?) {
        match output {
            Output::Received { tensor, shape, rows } => {
                counts = rows.iter().map(|&rows| rows as i64).collect();
                copy_out(context, index, &tensor, &shape)?;
            }
            Output::Tensor(tensor, shape) if index < last => copy_out(context, index, &tensor, &shape)?,
            Output::Joined(rank) => counts = vec![rank as i64],
            _ => (),
        }
    }
    let shape = [counts.len()];
    context.set_integers(last, &counts, &shape)
}

fn copy_out(context: &Context, index: c_int, tensor: &Tensor, shape: &[usize]) -> Result<(), Failure> {
    let data_type = context.output_type(index);
    let shape = match (is_opaque(data_type), shape.split_last()) {
        (true, Some((_, shape))) => shape,
        _ => shape,
    };
    context.allocate(index, data_type, shape, tensor.byte_len())?.bytes_mut().copy_from_slice(tensor.bytes());
    Ok(())
}

/// This process's place when the graph runs, which may not be the one when it was built.
pub(super) fn place(what: &str, context: &Context) -> Result<(), Failure> {
    let wrong = || Failure::invalid(format!("there is no place {what:?}"));
    let (word, set) = what.split_once(' ').ok_or_else(wrong)?;
    let found = registry::find(set.parse().map_err(|_| wrong())?);
    let number = match (word, found) {
        ("included", found) => usize::from(found.is_ok()),
        (_, Err(text)) => return Err(Failure::precondition(text)),
        (word, Ok(live)) => {
            let group = live.engine().group();
            let (local, cross) = {
                use sirtaki_engine::job::Position;
                (Position::on_host(group), Position::of_host(group))
            };
            match word {
                "rank" => group.rank(),
                "size" => group.size(),
                "local_rank" => local.rank,
                "local_size" => local.size,
                "cross_rank" => cross.rank,
                "cross_size" => cross.size,
                _ => return Err(wrong()),
            }
        }
    };
    let number = i32::try_from(number).unwrap_or(i32::MAX);
    context.allocate(0, INT32, &[], 4)?.bytes_mut().copy_from_slice(&number.to_ne_bytes());
    Ok(())
}
