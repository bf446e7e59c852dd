//! Names of requests, as Python gives them.

use pyo3::FromPyObject;
use sirtaki_engine::Request;

/// A name, or one that was made from a call and its size, with that call.
#[derive(FromPyObject)]
pub(crate) enum Name {
    Given(String),
    Made(String, String),
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
