//! A framework's memory for the engine: used where it lies, and kept alive until the engine has done with it. The only
//! file that trusts addresses.

use pyo3::{
    Bound, Py, PyAny, PyResult, Python,
    exceptions::PyValueError,
    pyfunction,
    types::{PyDict, PyDictMethods},
};
use sirtaki_comm::DType;
use sirtaki_engine::Tensor;

/// A tensor as Python describes it: address, code of the element type, shape, and what keeps the memory alive.
pub(crate) type Described = (usize, u8, Vec<usize>, Py<PyAny>);

/// The tensor, its type and its shape.
///
/// Whoever describes a tensor promises that the address is that of so many contiguous elements in this process's memory,
/// valid while the owner lives, and that the program leaves them alone until it has waited for the ticket. A program
/// that does not keep to the latter computes nonsense, as it would with every library of this kind.
pub(crate) fn tensor((address, code, shape, owner): Described) -> PyResult<(Tensor, DType, Vec<usize>)> {
    let wrong = |problem: String| PyValueError::new_err(problem);
    let dtype = DType::from_code(code).ok_or_else(|| wrong(format!("there is no element type {code}")))?;
    let elements = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent));
    let bytes = elements.and_then(|elements| elements.checked_mul(dtype.size()));
    let (Some(elements), Some(bytes)) = (elements, bytes) else {
        return Err(wrong(format!("a tensor of shape {shape:?} is larger than memory can be")));
    };
    if bytes == 0 {
        return Ok((Tensor::zeros(dtype, 0), dtype, shape));
    }
    if address == 0 || !address.is_multiple_of(dtype.size()) {
        return Err(wrong(format!("{address:#x} cannot be the address of {}", dtype.name())));
    }
    // SAFETY: the caller's promise above. The owner may be dropped on any thread: without the interpreter's lock, pyo3
    // keeps the reference until somebody has it.
    let tensor = unsafe { Tensor::foreign(address as *mut u8, dtype, elements, Box::new(owner)) };
    Ok((tensor, dtype, shape))
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
