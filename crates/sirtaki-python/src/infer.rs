//! Functions of Python on volumes: tiles are read and written here, and the function computes them.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{Py, PyAny, PyErr, PyResult, Python, exceptions::PyValueError, pyfunction, types::PyAnyMethods};
use sirtaki_cli::commands::infer::look_for_hdf5;
use sirtaki_infer::{
    Facts, InferError, Model,
    function::{Asked, apply},
    model::Heard,
};

use crate::error;

/// A function of Python: the address and the sizes of a tile in, those of the result out, with an object that keeps it.
#[derive(Clone)]
struct Callable {
    call: Arc<Py<PyAny>>,
    facts: Facts,
    /// What the function raised.
    raised: Arc<Mutex<Option<PyErr>>>,
}

impl Model for Callable {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn run(&mut self, sizes: &[u64], values: &mut [f32], out: &mut Heard<'_>) -> Result<(), InferError> {
        let result = Python::attach(|py| {
            let address = values.as_mut_ptr() as usize;
            let result = self.call.call1(py, (address, sizes.to_vec()))?;
            let (address, sizes, _keep): (usize, Vec<u64>, Py<PyAny>) = result.extract(py)?;
            let count = sizes.iter().product::<u64>() as usize;
            let values = match count {
                0 => &[],
                // SAFETY: Python passes the address of so many numbers of single precision, which `_keep` keeps alive.
                _ => unsafe { std::slice::from_raw_parts(address as *const f32, count) },
            };
            Ok::<_, PyErr>(out(&sizes, values))
        });
        result.unwrap_or_else(|error| {
            let problem = error.to_string();
            *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            Err(InferError::Model { path: PathBuf::from("the network"), problem })
        })
    }
}

/// The Python that runs this.
fn program(py: Python<'_>) -> PyResult<PathBuf> {
    let program: PathBuf = py.import("sys")?.getattr("executable")?.extract()?;
    Ok(program)
}

/// Applies a function to a volume; returns what this process has done, as JSON.
#[pyfunction]
pub(crate) fn infer(py: Python<'_>, call: Py<PyAny>, asked: &str) -> PyResult<String> {
    look_for_hdf5(None, program(py).ok());
    let asked: Asked = serde_json::from_str(asked).map_err(|error| PyValueError::new_err(error.to_string()))?;
    let raised_by_it = Arc::new(Mutex::new(None));
    let raised = Arc::clone(&raised_by_it);
    let model = |axes| Callable { call: Arc::new(call), facts: Facts { axes, channels: None, fixed: None }, raised };
    let done = py.detach(|| apply(&asked, model));
    let raised_by_it = raised_by_it.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (raised_by_it, done) {
        (Some(error), Err(_)) => Err(error),
        (_, Err(refused)) => {
            let hint = refused.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
            Err(error::raised(py, format!("{refused}{hint}"), None))
        }
        (_, Ok(done)) => serde_json::to_string(&done).map_err(|error| PyValueError::new_err(error.to_string())),
    }
}
