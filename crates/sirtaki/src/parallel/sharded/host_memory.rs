//! Memory that holds the weights of a host once, for all its ranks.
//!
//! Burn's tensors on CPUs can lie in memory that somebody else owns, and copy before they write to it. So a tensor here is
//! a view that costs nothing, and whoever computes with it reads what the ranks of the host have written.

use std::{ops::Range, sync::Arc};

use burn::tensor::{AllocationProperty, Bytes, TensorData};
use sirtaki_comm::{CommError, shm::Segment};

use super::blocks::Parameter;

/// Where tensors begin: at multiples of what vector instructions like.
const ALIGNMENT: usize = 64;

/// All parameters of a module, one after the other.
#[derive(Debug, Clone)]
pub(super) struct HostMemory {
    segment: Arc<Segment>,
    /// The bytes of each parameter.
    places: Vec<Range<usize>>,
}

impl HostMemory {
    /// New memory for these parameters.
    pub(super) fn create(parameters: &[Parameter]) -> Result<Self, CommError> {
        let (places, length) = places(parameters);
        Ok(Self { segment: Arc::new(Segment::create(length)?), places })
    }

    /// How other ranks of the host open it: see [`HostMemory::open`].
    pub(super) fn address(&self) -> (u32, i32) {
        self.segment.address()
    }

    /// That of another rank of the host, for the same parameters.
    pub(super) fn open(parameters: &[Parameter], (process, descriptor): (u32, i32)) -> Result<Self, CommError> {
        let (places, length) = places(parameters);
        Ok(Self { segment: Arc::new(Segment::open(process, descriptor, length)?), places })
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.segment.len()
    }

    /// A parameter as it is whenever it is read.
    pub(super) fn view(&self, number: usize, parameter: &Parameter) -> TensorData {
        let all = bytes::Bytes::from_owner(Mapped(self.segment.clone()));
        let bytes = Bytes::from_shared(all.slice(self.places[number].clone()), AllocationProperty::Other);
        TensorData::from_bytes(bytes, parameter.shape.clone(), parameter.dtype)
    }

    /// Writes bytes of a parameter, from `start` on. No rank of the host reads or writes them meanwhile.
    pub(super) fn write(&self, number: usize, start: usize, bytes: &[u8]) {
        let place = self.part(number, start, bytes.len());
        // SAFETY: the place is inside the segment, which is mapped for as long as `self` exists. Ranks are in step: those
        // that compute with the weights have handed in their gradients before any rank changes its own part, and go on
        // when all have.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.segment.start().add(place), bytes.len()) }
    }

    /// Copies bytes of a parameter, from `start` on. No rank writes to them meanwhile.
    pub(super) fn read(&self, number: usize, start: usize, bytes: &mut [u8]) {
        let place = self.part(number, start, bytes.len());
        // SAFETY: as for `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.segment.start().add(place), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Where a part of a parameter begins in the segment.
    fn part(&self, number: usize, start: usize, length: usize) -> usize {
        let place = &self.places[number];
        assert!(start + length <= place.len(), "a part of a parameter is inside it");
        place.start + start
    }
}

/// Where each parameter is, and how many bytes all of them take.
fn places(parameters: &[Parameter]) -> (Vec<Range<usize>>, usize) {
    let mut end = 0;
    let place = |parameter: &Parameter| {
        let start = usize::next_multiple_of(end, ALIGNMENT);
        end = start + parameter.shape.num_elements() * parameter.dtype.size();
        start..end
    };
    let places = parameters.iter().map(place).collect();
    // A segment has at least one byte.
    (places, end.max(1))
}

/// The whole segment, kept for as long as a tensor is in it.
struct Mapped(Arc<Segment>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the segment is mapped for as long as this exists. Its bytes change only while no rank reads them; see
        // `HostMemory::write`.
        unsafe { std::slice::from_raw_parts(self.0.start(), self.0.len()) }
    }
}
