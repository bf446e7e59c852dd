//! Parameter servers for Python: the head, a rank's part of the service, and processes that serve.
//!
//! A service belongs to a thread of its own, which does one request after the other, so that an interrupt need not wait for
//! an answer.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::AtomicBool,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::Instant,
};

use pyo3::{PyErr, PyRef, PyResult, Python, pyclass, pyfunction, pymethods};
use sirtaki_engine::job::{JobError, JobServers, is_server, server_count, settings::communication};
use sirtaki_server::{
    Delay, Gradient, Head, HeadOptions, JobService, Leaves, Rows, RuleSpec, ServerError, ServicePlace, TableSpec,
};

use crate::{
    engine::Engine,
    error,
    job::Variables,
    memory::{Floats, read_floats, write_floats},
    registry::Live,
    ticket::{SLICE, interruptible, misuse},
};

/// What the thread of a service does next.
type Work = Box<dyn FnOnce(&mut JobService) + Send>;

/// Rows of a table with gradients for them; all rows if none are named.
type PushedRows = (String, Option<Vec<u64>>, Floats);

fn raised(py: Python<'_>, error: &ServerError) -> PyErr {
    let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    error::raised(py, format!("{error}{hint}"), None)
}

fn lookup(defaults: &Variables) -> impl Fn(&str) -> Option<String> + '_ {
    |name| std::env::var(name).ok().or_else(|| defaults.get(name).cloned())
}

/// In a process that was started as a server of its job: serves until the last rank has left, and says so. Returns at once
/// in any other process.
#[pyfunction]
pub(crate) fn serve(py: Python<'_>, defaults: Variables) -> PyResult<bool> {
    let get = lookup(&defaults);
    if !is_server(&get).map_err(|error| error::of_job(py, &error))? {
        return Ok(false);
    }
    let found = py.detach(|| JobServers::discover(&get)).map_err(|error| error::of_job(py, &error))?;
    let Some(servers) = found else { return Ok(false) };
    match interruptible(py, move || serve_ranks(&servers))? {
        Ok(()) => Ok(true),
        Err(Ended::Job(error)) => Err(error::of_job(py, &error)),
        Err(Ended::Server(error)) => Err(raised(py, &error)),
    }
}

/// Why a server could not serve.
enum Ended {
    Job(JobError),
    Server(ServerError),
}

fn serve_ranks(servers: &JobServers) -> Result<(), Ended> {
    let found = servers.head(&AtomicBool::new(false)).map_err(Ended::Job)?;
    let Some((head, hosts)) = found else { return Ok(()) };
    let place = ServicePlace::new(&servers.communication, hosts).map_err(Ended::Server)?;
    place.serve(head).map_err(Ended::Server)
}

/// How many servers were started beside the ranks; none if servers are to be threads of the ranks.
#[pyfunction]
pub(crate) fn servers_beside(py: Python<'_>, defaults: Variables) -> PyResult<usize> {
    let count = server_count(&lookup(&defaults)).map_err(|error| error::of_job(py, &error))?;
    Ok(count.unwrap_or(0))
}

fn place(py: Python<'_>, engine: &Engine, defaults: &Variables) -> PyResult<(ServicePlace, usize)> {
    let settings = communication(&lookup(defaults), engine.secret()?.clone());
    let settings = settings.map_err(|error| error::of_job(py, &error))?;
    let hosts = engine.group().hosts().len();
    Ok((ServicePlace::new(&settings, hosts).map_err(|error| raised(py, &error))?, hosts))
}

/// The head of a service, on the first rank.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct ServerHead {
    head: Mutex<Option<Head>>,
    address: SocketAddr,
}

#[pymethods]
impl ServerHead {
    /// Opens a service for all ranks of this engine with so many servers, and tells those beside the ranks, if there are
    /// any. Without a delay nobody waits for anybody.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        engine: PyRef<'_, Engine>,
        defaults: Variables,
        delay: Option<u64>,
        servers: usize,
        copies: usize,
    ) -> PyResult<ServerHead> {
        let (place, hosts) = place(py, &engine, &defaults)?;
        let delay = delay.map_or(Delay::Unbounded, Delay::Bounded);
        let options = HeadOptions { delay, copies, servers, workers: engine.group().size() };
        let head = place.open(options).map_err(|error| raised(py, &error))?;
        let address = head.address();
        let get = lookup(&defaults);
        let tell = || match JobServers::discover(&get)? {
            Some(servers) => servers.tell(address, hosts),
            None => Ok(()),
        };
        py.detach(tell).map_err(|error| error::of_job(py, &error))?;
        Ok(ServerHead { head: Mutex::new(Some(head)), address })
    }

    /// Where it listens.
    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }
}

/// A rank's part of a service.
#[pyclass(module = "sirtaki._native", frozen)]
pub(crate) struct ServerWorker {
    /// What its thread is to do; `None` after it has left.
    requests: Mutex<Option<Sender<Work>>>,
    /// Where it is counted, as long as the job is not left.
    engine: Weak<Live>,
    process: u32,
}

impl ServerWorker {
    fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut JobService) -> Result<T, ServerError> + Send + 'static,
    ) -> PyResult<T> {
        if self.process != std::process::id() {
            return Err(error::forked(py));
        }
        let (sender, receiver) = mpsc::channel();
        let work: Work = Box::new(move |service| {
            let _ = sender.send(work(service));
        });
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = requests.as_ref().map(|requests| requests.send(work));
        drop(requests);
        if !matches!(sent, Some(Ok(()))) {
            return Err(misuse("this optimizer has left its parameter servers"));
        }
        let receiver = Mutex::new(receiver);
        let next = || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SLICE);
        loop {
            match py.detach(next) {
                Ok(result) => return result.map_err(|error| raised(py, &error)),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Err(misuse("the thread of the service has ended")),
            }
        }
    }
}

#[pymethods]
impl ServerWorker {
    /// Takes part in the service at this address, with so many servers in this process. All ranks call it.
    #[staticmethod]
    #[pyo3(signature = (engine, defaults, head, address, servers))]
    fn join(
        py: Python<'_>,
        engine: PyRef<'_, Engine>,
        defaults: Variables,
        head: Option<PyRef<'_, ServerHead>>,
        address: &str,
        servers: usize,
    ) -> PyResult<ServerWorker> {
        let (place, _) = place(py, &engine, &defaults)?;
        let address = address.parse().map_err(|_| misuse(format!("`{address}` is no address")))?;
        let head = head.and_then(|head| head.head.lock().unwrap_or_else(PoisonError::into_inner).take());
        let joined = interruptible(py, move || JobService::join(&place, head, address, servers))?;
        let mut service = joined.map_err(|error| raised(py, &error))?;
        let (sender, receiver) = mpsc::channel::<Work>();
        let work = move || receiver.into_iter().for_each(|work| work(&mut service));
        thread::Builder::new().name("sirtaki-worker".into()).spawn(work)?;
        let engine = Arc::downgrade(&engine.own(py)?);
        Ok(ServerWorker { requests: Mutex::new(Some(sender)), engine, process: std::process::id() })
    }

    /// Makes a table of so many rows and columns with these weights, unless it is there.
    fn create(
        &self,
        py: Python<'_>,
        name: String,
        shape: (u64, u32),
        rule: &str,
        numbers: HashMap<String, f64>,
        weights: Floats,
    ) -> PyResult<()> {
        let ((rows, width), rule) = (shape, rule_of(rule, &numbers)?);
        let weights = read_floats(weights)?;
        self.ask(py, move |service| service.worker().create(TableSpec { name, rows, width, rule }, &weights))
    }

    /// Pushes gradients and fills these tables with weights. With a tree, of so many leaves, gradients are those of one.
    #[pyo3(signature = (rate, gradients, pulled, tree = None))]
    fn push_pull(
        &self,
        py: Python<'_>,
        rate: f64,
        gradients: Vec<PushedRows>,
        pulled: Vec<(String, u64, Floats)>,
        tree: Option<(u32, u32)>,
    ) -> PyResult<()> {
        let mut pushed = Vec::new();
        for (table, rows, values) in gradients {
            let rows = rows.map(|rows| Rows::some(&rows).ok_or_else(|| misuse("rows have to ascend"))).transpose()?;
            pushed.push((table, rows, read_floats(values)?));
        }
        let asked: Vec<(String, u64)> = pulled.iter().map(|(table, rows, _)| (table.clone(), *rows)).collect();
        let begun = Instant::now();
        let (values, behind) = self.ask(py, move |service| {
            let all = |table: &str| asked.iter().find(|(name, _)| name == table).map_or(0, |(_, rows)| *rows);
            let (leaf, total) = tree.map_or((0, 1), |(leaf, total)| (leaf, total));
            let gradients: Vec<Gradient<'_>> = pushed
                .iter()
                .map(|(table, rows, values)| {
                    let rows = rows.clone().unwrap_or_else(|| Rows::Range(0..all(table)));
                    Gradient { table, rows, leaves: (leaf, leaf + 1), values }
                })
                .collect();
            let tree = tree.map(|_| Leaves { total, scale: 1.0 / f64::from(total) });
            let rows: Vec<(&str, Rows)> =
                asked.iter().map(|(table, rows)| (table.as_str(), Rows::Range(0..*rows))).collect();
            let worker = service.worker();
            Ok((worker.push_pull(rate, &gradients, tree, &rows)?, worker.behind()))
        })?;
        if let Some(live) = self.engine.upgrade() {
            live.engine().served(behind, begun.elapsed());
        }
        pulled.into_iter().zip(values).try_for_each(|((_, _, into), values)| write_floats(into, &values))
    }

    /// Fills memory with a slot of a table: 0 has the weights.
    fn get(&self, py: Python<'_>, table: String, slot: u32, into: Floats) -> PyResult<()> {
        write_floats(into, &self.ask(py, move |service| service.worker().get(&table, slot))?)
    }

    /// Overwrites a slot of a table, and how often its weights were changed.
    fn put(&self, py: Python<'_>, table: String, slot: u32, changes: u64, values: Floats) -> PyResult<()> {
        let values = read_floats(values)?;
        self.ask(py, move |service| service.worker().put(&table, slot, changes, &values))
    }

    /// How often the weights of a table were changed.
    fn changes(&self, py: Python<'_>, table: String) -> PyResult<u64> {
        self.ask(py, move |service| service.worker().changes(&table))
    }

    /// Seconds waited, bytes sent and received, and how often the slowest worker was how many steps behind.
    fn report(&self, py: Python<'_>) -> PyResult<(f64, u64, u64, BTreeMap<u64, u64>)> {
        let report = self.ask(py, |service| Ok(service.report()))?;
        Ok((report.waited.as_secs_f64(), report.sent, report.received, report.behind))
    }

    /// Leaves the service, and waits for the other ranks as long as they need what is served here; or does not wait, where
    /// this rank has failed.
    fn leave(&self, py: Python<'_>, waits: bool) -> PyResult<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        let left = self.ask(py, move |service| {
            if waits {
                return service.end();
            }
            service.abandon();
            Ok(())
        });
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).take();
        left
    }
}

/// The rule of this name with these numbers.
fn rule_of(name: &str, numbers: &HashMap<String, f64>) -> PyResult<RuleSpec> {
    let number = |key: &str| numbers.get(key).copied().ok_or_else(|| misuse(format!("{name} needs {key}")));
    let single = |key: &str| number(key).map(|number| number as f32);
    Ok(match name {
        "sgd" => RuleSpec::Sgd {
            momentum: number("momentum")?,
            dampening: number("dampening")?,
            nesterov: number("nesterov")? != 0.0,
            weight_decay: single("weight_decay")?,
        },
        "adam" => RuleSpec::Adam {
            beta_1: single("beta_1")?,
            beta_2: single("beta_2")?,
            epsilon: single("epsilon")?,
            weight_decay: single("weight_decay")?,
        },
        "adamw" => RuleSpec::AdamW {
            beta_1: single("beta_1")?,
            beta_2: single("beta_2")?,
            epsilon: single("epsilon")?,
            weight_decay: single("weight_decay")?,
        },
        "adagrad" => RuleSpec::AdaGrad { epsilon: single("epsilon")? },
        "ftrl" => RuleSpec::Ftrl { beta: single("beta")?, l1: single("l1")?, l2: single("l2")? },
        other => return Err(misuse(format!("there is no rule `{other}`"))),
    })
}
