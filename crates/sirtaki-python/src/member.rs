//! This process as a member of an elastic job.

use std::sync::Arc;

use pyo3::{PyResult, Python, pyclass, pymethods};
use sirtaki_comm::Rank;
use sirtaki_engine::job;

use crate::{
    engine::Engine,
    error,
    job::{Variables, discover},
    ticket,
};

#[pyclass(frozen, module = "sirtaki._native")]
pub(crate) struct Member(Arc<job::RoundMember>);

#[pymethods]
impl Member {
    /// This process in an elastic job; `None` if the ranks of its job are fixed.
    #[staticmethod]
    fn find(py: Python<'_>, defaults: Variables) -> PyResult<Option<Member>> {
        let job = discover(py, &defaults)?;
        let found = py.detach(|| job::RoundMember::of(&job)).map_err(|error| error::of_job(py, &error))?;
        Ok(found.map(|member| Member(Arc::new(member))))
    }

    /// Joins the next round, with whoever is there. `blames` is the rank of the last round that was waited for in vain.
    #[pyo3(signature = (defaults, blames = None))]
    fn join(&self, py: Python<'_>, defaults: Variables, blames: Option<Rank>) -> PyResult<Engine> {
        let (job, member) = (discover(py, &defaults)?, self.0.clone());
        let world = ticket::interruptible(py, move || member.join(&job, blames))?;
        Ok(Engine::of_world(world.map_err(|error| error::of_job(py, &error))?))
    }

    /// The round that this process was in last, from one.
    #[getter]
    fn round(&self) -> u64 {
        self.0.round()
    }

    /// This process has the state of the training from now on.
    fn hold(&self) {
        self.0.set_holding();
    }

    /// Whether the members of the round are wanted in another one.
    fn is_wanted_elsewhere(&self, py: Python<'_>) -> bool {
        py.detach(|| self.0.is_wanted_elsewhere())
    }

    /// This process has to end soon, and hands over before.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.leave()).map_err(|error| error::of_job(py, &error))
    }
}
