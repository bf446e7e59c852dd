//! Send and receive between two ranks, with a header that says what is sent.
//!
//! A short message travels with its header, copied, so a short send does not wait for its receiver. A long one sends
//! its header alone and waits for the receiver's answer: then both know the other's call, both can give up while they
//! wait, and the elements go from buffer to buffer without a copy.

use super::{
    core::Core,
    lent::Lent,
    moves,
    raw::{Route, Type},
};
use crate::{CommError, Rank, Slice, SliceMut, signature::Signature};

/// Most bytes of a short message.
const SHORT: usize = 4096;
/// Whether an answer is wanted, then the signature.
const HEADER: usize = 1 + Signature::SIZE;
const HEADER_TAG: i32 = 2;
const DATA_TAG: i32 = 4;
const ANSWER_TAG: i32 = 5;

/// Sends `data` to `to`.
pub(super) fn send(core: &mut Core, data: Slice<'_>, to: Rank, call: &Signature) -> Result<(), CommError> {
    let long = data.bytes().len() > SHORT;
    let mut header = vec![u8::from(long)];
    header.extend_from_slice(&call.encode());
    if !long {
        header.extend_from_slice(data.bytes());
        return post(core, header, to, HEADER_TAG, call);
    }
    post(core, header, to, HEADER_TAG, call)?;
    let answer = await_bytes(core, Signature::SIZE, to, ANSWER_TAG, call)?;
    compare(core, to, call, &answer)?;
    moves::send(core, data, to, DATA_TAG)
}

/// Receives from `from` into `data`.
pub(super) fn receive(core: &mut Core, mut data: SliceMut<'_>, from: Rank, call: &Signature) -> Result<(), CommError> {
    let message = await_bytes(core, HEADER + SHORT, from, HEADER_TAG, call)?;
    let long = message[0] != 0;
    if long {
        post(core, call.encode().to_vec(), from, ANSWER_TAG, call)?;
    }
    compare(core, from, call, &message[1..HEADER])?;
    if long {
        return moves::receive(core, data, from, DATA_TAG);
    }
    let bytes = data.bytes_mut();
    let Some(body) = message[HEADER..].get(..bytes.len()) else {
        let problem = format!("{} sent a long message in the form of a short one", core.group.describe(from));
        return Err(CommError::Invalid { problem });
    };
    bytes.copy_from_slice(body);
    Ok(())
}

fn compare(core: &Core, partner: Rank, call: &Signature, theirs: &[u8]) -> Result<(), CommError> {
    let mut bytes = [0; Signature::SIZE];
    bytes.copy_from_slice(theirs);
    Signature::compare(&core.group, (core.group.rank(), *call), (partner, Signature::decode(&bytes)))
}

/// Sends bytes that outlive a failed wait.
fn post(core: &mut Core, bytes: Vec<u8>, to: Rank, tag: i32, call: &Signature) -> Result<(), CommError> {
    let lent = Lent::new(bytes);
    let (start, count) = (lent.start(), lent.len() as i32);
    // SAFETY: the bytes are lent until the request is done, for ever if the wait fails.
    let mut request =
        core.ask("send", |mpi, comm| unsafe { mpi.start_send(start, count, Type::U8, to, Route { tag, comm }) })?;
    core.wait(&mut request, call, Some(to))?;
    // SAFETY: the request is done.
    drop(unsafe { lent.back() });
    Ok(())
}

/// Receives at most `limit` bytes into memory that outlives a failed wait.
fn await_bytes(core: &mut Core, limit: usize, from: Rank, tag: i32, call: &Signature) -> Result<Vec<u8>, CommError> {
    let lent = Lent::new(vec![0; limit]);
    let start = lent.start();
    // SAFETY: as in `post`.
    let mut request = core.ask("receive", |mpi, comm| unsafe {
        mpi.start_receive(start, limit as i32, Type::U8, from, Route { tag, comm })
    })?;
    core.wait(&mut request, call, Some(from))?;
    // SAFETY: the request is done.
    Ok(unsafe { lent.back() }.into_vec())
}
