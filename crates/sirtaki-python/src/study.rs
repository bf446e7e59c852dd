//! Studies for Python: what is asked and told goes to [`sirtaki_cli::study`] as text, with the interpreter free while a
//! journal is locked or written, or a sampler thinks.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use pyo3::{PyResult, Python, pyclass, pymethods};
use sirtaki_cli::{printer::Advice, study::by_text::StudyByText};

use crate::error;

/// A study, in memory or with a journal.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct NativeStudy(Mutex<StudyByText>);

fn explained(py: Python<'_>, advice: &Advice) -> pyo3::PyErr {
    let hint = if advice.hint.is_empty() { String::new() } else { format!("\nhint: {}", advice.hint) };
    error::raised(py, format!("{}{hint}", advice.message), None)
}

impl NativeStudy {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut StudyByText) -> Result<T, Advice> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)));
        done.map_err(|advice| explained(py, &advice))
    }
}

#[pymethods]
impl NativeStudy {
    #[new]
    fn new(py: Python<'_>, about: &str, path: Option<PathBuf>, wanted: &str) -> PyResult<Self> {
        let opened = py.detach(|| StudyByText::open(about, path.as_deref(), wanted));
        opened.map(|study| Self(Mutex::new(study))).map_err(|advice| explained(py, &advice))
    }

    fn about(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |study| Ok(study.about()))
    }

    fn ask(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, StudyByText::ask)
    }

    fn ask_open(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, StudyByText::ask_open)
    }

    fn suggest(&self, py: Python<'_>, number: u64, name: &str, domain: &str) -> PyResult<String> {
        self.with(py, |study| study.suggest(number, name, domain))
    }

    fn report(&self, py: Python<'_>, number: u64, step: i64, value: f64) -> PyResult<bool> {
        self.with(py, |study| study.report(number, step, value))
    }

    fn tell(&self, py: Python<'_>, number: u64, how: &str, values: Vec<f64>, reason: &str) -> PyResult<String> {
        self.with(py, |study| study.tell(number, how, values, reason))
    }

    fn constrain(&self, py: Python<'_>, number: u64, name: &str, value: f64) -> PyResult<()> {
        self.with(py, |study| study.constrain(number, name, value))
    }

    fn attribute(&self, py: Python<'_>, number: u64, key: &str, value: &str) -> PyResult<()> {
        self.with(py, |study| study.attribute(number, key, value))
    }

    fn annotate(&self, py: Python<'_>, key: &str, value: &str) -> PyResult<()> {
        self.with(py, |study| study.annotate(key, value))
    }

    fn attributes(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        self.with(py, StudyByText::attributes)
    }

    fn enqueue(&self, py: Python<'_>, point: &str) -> PyResult<u64> {
        self.with(py, |study| study.enqueue(point))
    }

    fn trials(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, StudyByText::trials)
    }

    fn best(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, StudyByText::best)
    }

    fn front(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.with(py, StudyByText::front)
    }

    fn importance(&self, py: Python<'_>) -> PyResult<Vec<(String, f64)>> {
        self.with(py, StudyByText::importance)
    }

    fn limit(&self, py: Python<'_>, trials: u64) -> PyResult<()> {
        self.with(py, |study| study.limit(trials))
    }

    fn warm_start(&self, py: Python<'_>, path: PathBuf, name: Option<String>) -> PyResult<usize> {
        self.with(py, |study| study.warm_start(&path, name.as_deref()))
    }
}
