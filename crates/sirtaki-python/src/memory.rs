//! A framework's memory for the engine: used where it is, and kept alive until the engine has finished with it. The
//! only file that trusts addresses.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    exceptions::PyValueError,
    pyfunction,
    types::{PyDict, PyDictMethods},
};
use sirtaki_comm::{
    CommError, DType,
    device::{Driver, Event, Gpu, Nccl, Stream, View},
};
use sirtaki_engine::{Tensor, job::variables};

/// A tensor as Python describes it: address, code of the element type, shape, what keeps the memory alive and, for
/// memory of a GPU, the stream after whose present work the elements are there.
pub(crate) type Described = (usize, u8, Vec<usize>, Py<PyAny>, Option<RawStream>);

/// A framework's stream: the number of its GPU, and the driver's handle.
pub(crate) type RawStream = (u32, usize);

/// A framework's stream.
pub(crate) fn stream((number, handle): RawStream) -> Result<Stream, CommError> {
    // SAFETY: Python passes what the framework has just given it, and uses the result at once.
    Ok(unsafe { gpu(number)?.foreign_stream(handle) })
}

fn gpu(number: u32) -> Result<Arc<Gpu>, CommError> {
    static GPUS: OnceLock<Mutex<HashMap<u32, Arc<Gpu>>>> = OnceLock::new();
    let mut gpus = GPUS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gpu) = gpus.get(&number) {
        return Ok(gpu.clone());
    }
    let path = std::env::var_os(variables::CUDA).filter(|path| !path.is_empty()).map(PathBuf::from);
    let gpu = Gpu::open(Driver::load(path.as_deref())?, number)?;
    gpus.insert(number, gpu.clone());
    Ok(gpu)
}

/// The events of tensors that are handed in together: one for each stream.
#[derive(Default)]
pub(crate) struct Events(Vec<(RawStream, Arc<Event>)>);

impl Events {
    /// The event after which what a stream has to do at present is done.
    fn of(&mut self, queue: RawStream) -> Result<Arc<Event>, CommError> {
        if let Some((_, event)) = self.0.iter().find(|(known, _)| *known == queue) {
            return Ok(event.clone());
        }
        let stream = stream(queue)?;
        stream.refuse_capture()?;
        let event = Arc::new(stream.record()?);
        self.0.push((queue, event.clone()));
        Ok(event)
    }
}

/// The tensor, its type and its shape.
///
/// The caller promises that the address is that of this many contiguous elements in this process's memory or that of
/// the GPU, valid while the owner lives, and that the program leaves them alone until it has waited for the ticket. A
/// program that breaks the latter promise computes nonsense, as it would with every library of this kind.
pub(crate) fn tensor(
    (address, code, shape, owner, queue): Described,
    events: &mut Events,
) -> PyResult<(Tensor, DType, Vec<usize>)> {
    let wrong = |problem: String| PyValueError::new_err(problem);
    let dtype = DType::from_code(code).ok_or_else(|| wrong(format!("there is no element type {code}")))?;
    let elements = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    let bytes = elements.and_then(|elements| elements.checked_mul(dtype.size()));
    let (Some(elements), Some(bytes)) = (elements, bytes) else {
        return Err(wrong(format!("a tensor of shape {shape:?} is larger than memory can be")));
    };
    if bytes == 0 && queue.is_none() {
        return Ok((Tensor::zeros(dtype, 0), dtype, shape));
    }
    if bytes > 0 && (address == 0 || !address.is_multiple_of(dtype.size())) {
        return Err(wrong(format!("{address:#x} cannot be the address of {}", dtype.name())));
    }
    if let Some(queue) = queue {
        let device = || {
            let ready = events.of(queue)?;
            // SAFETY: the caller's promise above, and the framework's for tensors on its streams.
            Ok(unsafe { Tensor::on_device(View::new(address as u64, dtype, elements)?, ready, Box::new(owner)) })
        };
        let tensor = device().map_err(|error: CommError| wrong(error.to_string()))?;
        return Ok((tensor, dtype, shape));
    }
    // SAFETY: the caller's promise above. The owner may be dropped on any thread: without the interpreter's lock, pyo3
    // keeps the reference until a thread holds the lock.
    let tensor = unsafe { Tensor::foreign(address as *mut u8, dtype, elements, Box::new(owner)) };
    Ok((tensor, dtype, shape))
}

/// Numbers of type `f32` as Python describes them: their address and how many there are. The caller promises that they lie
/// there, contiguous and in this process's memory, until the call that is given them returns.
pub(crate) type Floats = (usize, usize);

fn check_floats((address, count): Floats) -> PyResult<()> {
    let fits = count == 0 || address != 0 && address.is_multiple_of(size_of::<f32>());
    if fits {
        Ok(())
    } else {
        Err(PyValueError::new_err(format!("{address:#x} cannot be the address of {count} floats")))
    }
}

/// A copy of these numbers.
pub(crate) fn read_floats(floats: Floats) -> PyResult<Vec<f32>> {
    check_floats(floats)?;
    let (address, count) = floats;
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise, see `Floats`.
    Ok(unsafe { std::slice::from_raw_parts(address as *const f32, count) }.to_vec())
}

/// Overwrites these numbers, of which there have to be as many.
pub(crate) fn write_floats(into: Floats, values: &[f32]) -> PyResult<()> {
    check_floats(into)?;
    let (address, count) = into;
    if count != values.len() {
        return Err(PyValueError::new_err(format!("{} numbers came for {count}", values.len())));
    }
    if count > 0 {
        // SAFETY: the caller's promise, see `Floats`; `values` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), address as *mut f32, count) };
    }
    Ok(())
}

/// The element types that travel, by name, with their codes and sizes.
#[pyfunction]
pub(crate) fn dtypes(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let all = PyDict::new(py);
    for dtype in DType::ALL {
        all.set_item(dtype.name(), dtype as u8)?;
    }
    Ok(all)
}

/// The version of NCCL as one number, such as 22809; 0 if no usable one is found.
#[pyfunction]
pub(crate) fn nccl_version() -> i32 {
    let path = std::env::var_os(variables::NCCL).filter(|path| !path.is_empty()).map(PathBuf::from);
    Nccl::load(path.as_deref()).map_or(0, |nccl| nccl.version_code())
}
