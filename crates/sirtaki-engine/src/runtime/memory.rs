//! A tensor's memory while the engine has it: where it is, and what keeps it alive. The only file with raw pointers to
//! tensors.
//!
//! Memory is handed in and handed back, so safe code cannot touch it while a collective does.

use std::{any::Any, fmt, sync::Arc};

use sirtaki_comm::{
    CommError, DType, Element, Slice, SliceMut,
    device::{DeviceMemory, Event, Stream, View},
};

use crate::{decide::request::TensorPlace, runtime::device::Timed};

/// Elements in memory that the engine may read and write: the host's, or a GPU's.
pub struct Tensor {
    start: *mut u8,
    bytes: usize,
    dtype: DType,
    /// For memory of a GPU.
    device: Option<OnDevice>,
    /// Frees the memory when dropped.
    owner: Box<dyn Any + Send>,
}

/// What is special about memory of a GPU: it is used later than calls return.
struct OnDevice {
    /// The event after which the elements are there.
    ready: Arc<Event>,
    /// Whether the next user of the memory waits for that event.
    awaited: bool,
    /// When the device had the batch that made the elements, if that is of interest.
    timed: Option<Arc<Timed>>,
    owner: Option<Box<dyn Any + Send>>,
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        if let (Some(owner), false) = (self.owner.take(), self.awaited) {
            self.ready.keep_until_past(owner);
        }
    }
}

/// What keeps the memory of a tensor that the engine made on a device.
struct Made {
    memory: DeviceMemory,
    input: Tensor,
}

// SAFETY: a tensor is the only handle to its memory (`foreign` makes its caller promise that), and the owner is `Send`.
unsafe impl Send for Tensor {}

impl Tensor {
    /// The elements of a vector; [`Tensor::into_vec`] gives it back.
    pub fn from_vec<T: Element + Send>(mut elements: Vec<T>) -> Self {
        let (start, bytes) = (elements.as_mut_ptr().cast(), size_of_val(elements.as_slice()));
        Self { start, bytes, dtype: T::DTYPE, device: None, owner: Box::new(elements) }
    }

    /// Zeros.
    pub fn zeros(dtype: DType, elements: usize) -> Self {
        let bytes = elements * dtype.size();
        let mut words = vec![0_u64; bytes.div_ceil(8)];
        Self { start: words.as_mut_ptr().cast(), bytes, dtype, device: None, owner: Box::new(words) }
    }

    /// Zeros, unless there is not that much memory.
    pub(crate) fn try_zeros(dtype: DType, elements: usize) -> Option<Self> {
        let bytes = elements.checked_mul(dtype.size())?;
        let mut words: Vec<u64> = Vec::new();
        words.try_reserve_exact(bytes.div_ceil(8)).ok()?;
        words.resize(bytes.div_ceil(8), 0);
        Some(Self { start: words.as_mut_ptr().cast(), bytes, dtype, device: None, owner: Box::new(words) })
    }

    /// No elements.
    pub fn empty() -> Self {
        Self::zeros(DType::U8, 0)
    }

    /// Memory that belongs to somebody else, such as a Python framework.
    ///
    /// # Safety
    /// Until `owner` is dropped, the `elements` elements at `start`, aligned for their type, must stay valid and be read
    /// and written by nobody else. `owner` may be dropped on another thread.
    pub unsafe fn foreign(start: *mut u8, dtype: DType, elements: usize, owner: Box<dyn Any + Send>) -> Self {
        Self { start, bytes: elements * dtype.size(), dtype, device: None, owner }
    }

    /// Elements in the memory of the GPU to which the event belongs, complete once that event is past.
    ///
    /// # Safety
    /// As for [`Tensor::foreign`], in the order of the device's streams: until `owner` is dropped, all others leave the
    /// memory alone unless their streams wait for [`Tensor::ready`] of the tensor that comes back.
    pub unsafe fn on_device(view: View, ready: Arc<Event>, owner: Box<dyn Any + Send>) -> Self {
        let (start, bytes) = (view.address() as *mut u8, view.bytes());
        let device = OnDevice { ready, awaited: false, timed: None, owner: Some(owner) };
        Self { start, bytes, dtype: view.dtype(), device: Some(device), owner: Box::new(()) }
    }

    /// Which memory it lies in.
    pub fn place(&self) -> TensorPlace {
        if self.device.is_some() { TensorPlace::Device } else { TensorPlace::Host }
    }

    /// For memory of a GPU, the event after which the elements are there.
    pub fn ready(&self) -> Option<&Arc<Event>> {
        self.device.as_ref().map(|device| &device.ready)
    }

    /// The elements, if they are in the memory of a GPU.
    pub fn view(&self) -> Option<View> {
        self.device.as_ref()?;
        // SAFETY: promised when the tensor was made.
        unsafe { View::new(self.start as u64, self.dtype, self.len()) }.ok()
    }

    /// The same tensor, complete once this event is past.
    pub(crate) fn after(mut self, ready: Arc<Event>) -> Self {
        if let Some(device) = &mut self.device {
            device.ready = ready;
        }
        self
    }

    /// Notes when the first user of the elements waits for them.
    pub(crate) fn time_by(&mut self, timed: &Arc<Timed>) {
        if let Some(device) = &mut self.device {
            device.timed = Some(timed.clone());
        }
    }

    /// A new tensor in memory of the engine's own, made from `input`, which the device reads until `ready` is past.
    pub(crate) fn made(view: View, ready: Arc<Event>, memory: DeviceMemory, input: Tensor) -> Self {
        let input = input.after(ready.clone());
        // SAFETY: the view is of this memory, which nobody else has.
        unsafe { Self::on_device(view, ready, Box::new(Made { memory, input })) }
    }

    /// Has a stream of the tensor's GPU wait for the elements. The next use of the memory is in the order of that
    /// stream, so the memory may be freed from now on.
    pub fn await_on(&mut self, stream: &Stream) -> Result<(), CommError> {
        if let Some(device) = &mut self.device {
            if let Some(timed) = device.timed.take() {
                timed.await_on(stream);
            }
            stream.wait(&device.ready)?;
            self.is_awaited_on(stream);
        }
        Ok(())
    }

    /// The same for a stream that already waits for the tensor's event.
    pub fn is_awaited_on(&mut self, stream: &Stream) {
        let Some(device) = &mut self.device else { return };
        device.awaited = true;
        if let Some(made) = device.owner.as_mut().and_then(|owner| owner.downcast_mut::<Made>()) {
            made.memory.free_on(stream);
            if let Some(input) = &mut made.input.device {
                input.awaited = true;
            }
        }
    }

    /// How many bytes the elements take.
    pub fn byte_len(&self) -> usize {
        self.bytes
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.bytes / self.dtype.size()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The elements as bytes, aligned for their type even if there are none. They must be in the host's memory.
    pub fn bytes(&self) -> &[u8] {
        assert!(self.device.is_none(), "a GPU's memory was taken for the host's");
        if self.bytes == 0 {
            return bytemuck::cast_slice::<u64, u8>(&[]);
        }
        // SAFETY: the memory is valid while the owner lives, and this borrow keeps others from writing it.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// The elements as bytes, to change. They must be in the host's memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        assert!(self.device.is_none(), "a GPU's memory was taken for the host's");
        if self.bytes == 0 {
            return bytemuck::cast_slice_mut::<u64, u8>(&mut []);
        }
        // SAFETY: as above; this handle is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// The elements for a collective.
    pub fn slice(&self) -> Result<Slice<'_>, CommError> {
        Slice::new(self.dtype, self.bytes())
    }

    /// The elements for a collective that changes them.
    pub fn slice_mut(&mut self) -> Result<SliceMut<'_>, CommError> {
        SliceMut::new(self.dtype, self.bytes_mut())
    }

    /// The elements as a vector: the very one given to [`Tensor::from_vec`], or else a copy. If the elements are of
    /// another type or in a GPU's memory, the tensor comes back as the error.
    pub fn into_vec<T: Element + Send>(self) -> Result<Vec<T>, Tensor> {
        if self.dtype != T::DTYPE || self.device.is_some() {
            return Err(self);
        }
        let copy: fn(&[u8]) -> Vec<T> =
            |bytes| bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        if !self.owner.is::<Vec<T>>() || self.is_zeroed_words() {
            return Ok(copy(self.bytes()));
        }
        let Tensor { owner, start, bytes, dtype, device } = self;
        match owner.downcast::<Vec<T>>() {
            Ok(elements) => Ok(*elements),
            Err(owner) => Err(Tensor { start, bytes, dtype, device, owner }),
        }
    }

    /// Whether the owner is the words of [`Tensor::zeros`], whose length is not that of the elements.
    fn is_zeroed_words(&self) -> bool {
        self.owner.is::<Vec<u64>>()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} at {:p}", self.len(), self.dtype.name(), self.place().describe(), self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_as_it_went() {
        let elements = vec![1.0_f32, 2.0];
        let place = elements.as_ptr();
        let mut tensor = Tensor::from_vec(elements);
        tensor.bytes_mut()[..4].copy_from_slice(&5.0_f32.to_ne_bytes());
        assert_eq!((tensor.len(), tensor.dtype()), (2, DType::F32));
        let tensor = tensor.into_vec::<i32>().unwrap_err();
        let back = tensor.into_vec::<f32>().unwrap();
        assert_eq!(back, [5.0, 2.0]);
        assert_eq!(back.as_ptr(), place);
        assert_eq!(Tensor::zeros(DType::I64, 3).into_vec::<i64>().unwrap(), [0; 3]);
        assert!(Tensor::empty().bytes().is_empty());
    }

    #[test]
    fn foreign_memory_lives_as_long_as_its_owner() {
        let mut memory = vec![7_u8; 5].into_boxed_slice();
        let start = memory.as_mut_ptr();
        // SAFETY: the box is the owner, and nobody else has it.
        let tensor = unsafe { Tensor::foreign(start, DType::U8, 5, Box::new(memory)) };
        assert_eq!(std::thread::spawn(move || tensor.bytes().to_vec()).join().unwrap(), [7; 5]);
    }
}
