//! Names of requests, as Python gives them.

use pyo3::{
    Borrowed, FromPyObject, PyAny, PyErr, PyResult,
    types::{PyAnyMethods, PyTuple},
};
use sirtaki_engine::Request;

/// A name, or one that was made from a call and its size, with that call.
pub(crate) enum Name {
    Given(String),
    Made(String, String),
}

impl FromPyObject<'_, '_> for Name {
    type Error = PyErr;

    /// Looks first: trying one form after the other would raise an exception for every name of the second.
    fn extract(given: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyTuple>() {
            let (name, call) = given.extract()?;
            return Ok(Name::Made(name, call));
        }
        given.extract().map(Name::Given)
    }
}

impl Name {
    pub(crate) fn text(&self) -> &str {
        match self {
            Name::Given(name) | Name::Made(name, _) => name,
        }
    }

    /// The request, with the call that it is for.
    pub(crate) fn complete(&self, request: Request) -> Request {
        match self {
            Name::Given(_) => request,
            Name::Made(_, call) => Request { call: Some(call.clone()), ..request },
        }
    }
}
