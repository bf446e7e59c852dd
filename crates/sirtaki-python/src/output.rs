//! The engine's memory for a framework, where sizes were not known in advance: handed over by DLPack, without a copy.
//!
//! Always as bytes in one dimension, which every version of every framework understands; Python restores type and
//! shape. Rejected: the buffer protocol, which the stable interface has only since CPython 3.11. Python itself and NumPy,
//! whose arrays from DLPack are read-only, use the memory where it is and keep its owner.

use std::{
    ffi::{CStr, c_void},
    sync::{Mutex, PoisonError},
};

use pyo3::{Bound, PyAny, PyResult, Python, exceptions::PyRuntimeError, ffi, pyclass, pymethods};
use sirtaki_comm::{CommError, DType, device::View};
use sirtaki_engine::Tensor;

use crate::{
    error,
    memory::{self, RawStream},
};

const NAME: &CStr = c"dltensor";
/// Processors' memory, in DLPack's numbering.
const CPU: i32 = 1;
/// Unsigned integers, in DLPack's numbering.
const UNSIGNED: u8 = 1;

/// A new tensor that resulted from a request.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct Output {
    tensor: Mutex<Option<Tensor>>,
    #[pyo3(get)]
    shape: Vec<usize>,
    /// Rows received from each rank, where that differs.
    #[pyo3(get)]
    rows: Option<Vec<usize>>,
    #[pyo3(get)]
    bytes: usize,
}

impl Output {
    pub(crate) fn new(tensor: Tensor, shape: Vec<usize>, rows: Option<Vec<usize>>) -> Self {
        Self { bytes: tensor.byte_len(), tensor: Mutex::new(Some(tensor)), shape, rows }
    }

    /// The tensor, unless it was taken.
    fn tensor(&self) -> PyResult<Tensor> {
        let tensor = self.tensor.lock().unwrap_or_else(PoisonError::into_inner).take();
        tensor.ok_or_else(|| PyRuntimeError::new_err("the elements were taken already"))
    }
}

#[pymethods]
impl Output {
    /// Where the elements are in the host's memory, for as long as this object lives and they are not taken; 0 if they
    /// are somewhere else.
    #[getter]
    fn address(&self) -> usize {
        let mut tensor = self.tensor.lock().unwrap_or_else(PoisonError::into_inner);
        let on_host = tensor.as_mut().filter(|tensor| tensor.view().is_none());
        on_host.map_or(0, |tensor| tensor.bytes_mut().as_mut_ptr() as usize)
    }

    /// Copies elements of a GPU to an address in its memory, in the order of a stream. Can be called once.
    fn copy_to(&self, py: Python<'_>, address: usize, stream: RawStream) -> PyResult<()> {
        let mut tensor = self.tensor()?;
        let mut copy = || {
            let stream = memory::stream(stream)?;
            tensor.await_on(&stream)?;
            let Some(from) = tensor.view() else { return Ok(()) };
            // SAFETY: Python passes the address of a new tensor of this size on this stream.
            let to = unsafe { View::new(address as u64, DType::U8, from.bytes()) }?;
            stream.copy(to, from.as_bytes())
        };
        copy().map_err(|reason: CommError| error::of_engine(py, &reason.into()))
    }

    /// The elements as bytes, in a DLPack capsule. Can be called once.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let managed = Managed::new(self.tensor()?);
        // SAFETY: the name lives for ever, the pointer is ours until it is taken out of the capsule, and `abandon` is a
        // destructor of capsules.
        let capsule = unsafe { ffi::PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(abandon)) };
        if capsule.is_null() {
            // SAFETY: nobody else has seen it.
            unsafe { delete(managed) };
        }
        // SAFETY: a new reference or an error that is set.
        unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
    }
}

/// DLPack's `DLManagedTensor` with `DLTensor` in it, and behind it what it points to.
#[repr(C)]
struct Managed {
    data: *mut c_void,
    device: i32,
    device_number: i32,
    dimensions: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
    length: i64,
    step: i64,
    tensor: Tensor,
}

impl Managed {
    /// To be freed by [`delete`]. The pointers are taken once everything is in place: moving a box or a tensor would
    /// invalidate those to its inside.
    fn new(tensor: Tensor) -> *mut Self {
        let managed = Box::into_raw(Box::new(Self {
            data: std::ptr::null_mut(),
            device: CPU,
            device_number: 0,
            dimensions: 1,
            type_code: UNSIGNED,
            type_bits: 8,
            type_lanes: 1,
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            offset: 0,
            context: std::ptr::null_mut(),
            deleter: Some(delete),
            length: 0,
            step: 1,
            tensor,
        }));
        // SAFETY: it was just made, and nobody else has it.
        unsafe {
            let bytes = (*managed).tensor.bytes_mut();
            let (data, length) = (bytes.as_mut_ptr().cast(), bytes.len() as i64);
            ((*managed).data, (*managed).length) = (data, length);
            (*managed).shape = &raw mut (*managed).length;
            (*managed).strides = &raw mut (*managed).step;
        }
        managed
    }
}

/// The consumer of the tensor has finished with it.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `Box::into_raw`, and DLPack calls this once.
    let managed = unsafe { Box::from_raw(managed) };
    drop(managed.tensor);
}

/// The capsule is freed, and the tensor too unless it was taken, which changes the capsule's name.
unsafe extern "C" fn abandon(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls this with a capsule of ours; both functions accept every capsule.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) != 0 {
            let managed = ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr());
            delete(managed.cast());
        }
    }
}
