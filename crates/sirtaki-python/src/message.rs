//! Messages between two ranks.

use std::sync::Arc;

use pyo3::{PyResult, Python, pyfunction};
use sirtaki_comm::Rank;
use sirtaki_engine::{Expected, Source, Tag};

use crate::{
    engine::Engine,
    memory::{self, Described, Events},
    ticket::Ticket,
};

/// Sends a tensor of the host to a rank of the engine, which receives it with the same tag.
#[pyfunction]
pub(crate) fn send(
    py: Python<'_>,
    engine: &Engine,
    label: &str,
    tensor: Described,
    to: Rank,
    tag: Tag,
) -> PyResult<Ticket> {
    let own = engine.own(py)?;
    let (tensor, _, shape) = memory::tensor(tensor, &mut Events::default())?;
    Ok(Ticket::new(Arc::new(own.engine().send(to, tag, label, &shape, tensor)), true))
}

/// Replaces a tensor of the host by one that a rank sends, or the first that does; waiting returns which.
#[pyfunction]
pub(crate) fn receive(
    py: Python<'_>,
    engine: &Engine,
    label: &str,
    tensor: Described,
    source: Option<Rank>,
    tag: Tag,
) -> PyResult<Ticket> {
    let own = engine.own(py)?;
    let (tensor, _, shape) = memory::tensor(tensor, &mut Events::default())?;
    let source = source.map_or(Source::Any, Source::Rank);
    Ok(Ticket::new(Arc::new(own.engine().receive(source, tag, label, Expected::Into(tensor, shape))), true))
}
