//! How each library is started: as its own launcher would.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use sirtaki_comm::secure::Secret;
use tempfile::TempDir;

use crate::{BenchError, Peer, engine::Cost, python::Horovod};

/// Starting Python with PyTorch takes a while on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// Where the ranks of a peer run and how they reach each other.
#[derive(Debug, Clone)]
pub struct Place {
    /// The network namespace of each rank, if not this one.
    pub namespaces: Vec<Option<String>>,
    /// The interface that connects them.
    pub interface: String,
}

impl Place {
    /// `ranks` ranks on this host, over loopback.
    pub fn here(ranks: usize) -> Self {
        Self { namespaces: vec![None; ranks], interface: "lo".into() }
    }

    fn command(&self, rank: usize, program: &Path) -> Command {
        match &self.namespaces[rank] {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace]).arg(program);
                command
            }
        }
    }
}

/// Starts libraries. Keeps the folders their ranks meet in.
#[derive(Debug)]
pub struct Starter {
    /// Where this package's programs are.
    programs: PathBuf,
    python: Option<PathBuf>,
    horovod: Option<Horovod>,
    folders: Vec<TempDir>,
}

impl Starter {
    /// With this package's programs in `programs`, and the Pythons that have PyTorch and Horovod, if there are any.
    pub fn new(programs: PathBuf, python: Option<PathBuf>, horovod: Option<Horovod>) -> Self {
        Self { programs, python, horovod, folders: Vec::new() }
    }

    /// One of this package's programs, or another one in the same folder.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    /// The Python that has PyTorch, if there is one.
    pub fn python(&self) -> Option<&Path> {
        self.python.as_deref()
    }

    fn folder(&mut self) -> Result<PathBuf, BenchError> {
        let folder = TempDir::new().map_err(BenchError::io("cannot make a folder to meet in"))?;
        let path = folder.path().to_owned();
        self.folders.push(folder);
        Ok(path)
    }

    /// Sirtaki by `mode`: `arena`, `shared`, `tcp`, `engine`, `records` or `telemetry`.
    pub fn sirtaki(&mut self, mode: &str, place: &Place) -> Result<Peer, BenchError> {
        let (program, folder, secret) =
            (self.programs.join("sirtaki-peer"), self.folder()?, Secret::random()?.to_hex().to_string());
        let size = place.namespaces.len();
        let commands = (0..size).map(|rank| {
            let mut command = place.command(rank, &program);
            command.args([mode, &rank.to_string(), &size.to_string()]).arg(&folder);
            if place.interface != "lo" {
                command.arg(&place.interface);
            }
            command.env("SIRTAKI_SECRET", &secret);
            command
        });
        Peer::start(if mode == "arena" { "sirtaki" } else { mode }, commands.collect(), size, PATIENCE)
    }

    /// Open MPI as `mpirun` starts it.
    pub fn open_mpi(&self, ranks: usize) -> Result<Peer, BenchError> {
        let mut command = open_mpi(ranks);
        command.arg(self.programs.join("mpi-peer"));
        Peer::start("openmpi", vec![command], ranks, PATIENCE)
    }

    /// PyTorch's Gloo, if PyTorch is installed.
    pub fn gloo(&mut self, place: &Place) -> Result<Option<Peer>, BenchError> {
        self.gloo_by("gloo", "gloo_peer.py", place)
    }

    /// PyTorch's Gloo reducing training steps, tensor by tensor (`works`) or in flat `buckets`.
    pub fn gloo_steps(&mut self, form: &str, place: &Place) -> Result<Option<Peer>, BenchError> {
        self.gloo_by(form, "gloo_step_peer.py", place)
    }

    fn gloo_by(&mut self, name: &str, script: &str, place: &Place) -> Result<Option<Peer>, BenchError> {
        let Some(python) = self.python.clone() else { return Ok(None) };
        let script = peer_script(script);
        let meeting = format!("file://{}", self.folder()?.join("gloo").display());
        let size = place.namespaces.len();
        let commands = (0..size).map(|rank| {
            let mut command = place.command(rank, &python);
            command.arg(&script).env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
            command.env("PYTHONDONTWRITEBYTECODE", "1").env("STEP_FORM", name);
            command.env("INIT_METHOD", &meeting).env("GLOO_SOCKET_IFNAME", &place.interface);
            command
        });
        Peer::start(name, commands.collect(), size, PATIENCE).map(Some)
    }

    /// Horovod over `gloo`, as its own launcher starts it, or over `mpi`, as `mpirun` does; if it is installed and was
    /// built for that.
    pub fn horovod(&self, carrier: &str, ranks: usize) -> Result<Option<Peer>, BenchError> {
        let Some(horovod) = self.horovod.as_ref().filter(|horovod| horovod.carriers.contains(&carrier)) else {
            return Ok(None);
        };
        let number = ranks.to_string();
        let mut command = match carrier {
            "mpi" => {
                let mut command = Command::new("mpirun.openmpi");
                command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", &number]);
                command.env("HOROVOD_CONTROLLER", "mpi").env("HOROVOD_CPU_OPERATIONS", "mpi");
                command
            }
            _ => horovod_over_gloo(&horovod.python, ranks),
        };
        command.arg(&horovod.python).arg(peer_script("horovod_peer.py")).env("PYTHONDONTWRITEBYTECODE", "1");
        Peer::start(horovod_name(carrier), vec![command], ranks, PATIENCE).map(Some)
    }

    /// What a step of many tensors costs among `ranks` threads of one process.
    pub fn scale(&self, ranks: usize, order: &str, steps: usize) -> Result<Cost, BenchError> {
        let mut command = Command::new(self.programs.join("scale-peer"));
        command.args([&ranks.to_string(), order, &steps.to_string()]).stderr(Stdio::inherit());
        // Ranks are normally processes, each with its own memory. glibc has eight pools per core for all threads of a
        // process, and contention for them and their fragmentation would be most of what is measured.
        command.env("MALLOC_ARENA_MAX", (4 * ranks).to_string());
        let output = command.output().map_err(BenchError::io("cannot start scale-peer"))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|_| BenchError::Protocol(format!("{ranks} ranks as threads gave no figures: {}", output.status)))
    }

    /// The seconds of `steps` synthetic training steps on rank 0, in batches of at most `fusion` bytes, recorded into
    /// `timeline` if there is one.
    pub fn predict_steps(
        &mut self,
        place: &Place,
        steps: usize,
        fusion: usize,
        timeline: Option<&Path>,
    ) -> Result<Vec<f64>, BenchError> {
        let (program, folder, secret) =
            (self.programs.join("predict-peer"), self.folder()?, Secret::random()?.to_hex().to_string());
        let size = place.namespaces.len();
        let start = |rank: usize| {
            let mut command = place.command(rank, &program);
            command.args([rank.to_string(), size.to_string()]).arg(&folder).arg(steps.to_string());
            if place.interface != "lo" {
                command.arg(&place.interface);
            }
            command.env("SIRTAKI_SECRET", &secret).env("SIRTAKI_FUSION", fusion.to_string());
            command.stderr(Stdio::inherit());
            timeline.map(|file| command.env("SIRTAKI_TIMELINE", file));
            command.stdout(if rank == 0 { Stdio::piped() } else { Stdio::null() });
            command.spawn().map_err(BenchError::io("cannot start predict-peer"))
        };
        let mut ranks = (0..size).map(start).collect::<Result<Vec<_>, _>>()?.into_iter();
        let output = ranks.next().map(Child::wait_with_output).transpose();
        ranks.try_for_each(|mut rank| rank.wait().map(drop)).map_err(BenchError::io("cannot wait for predict-peer"))?;
        let output = output.map_err(BenchError::io("cannot read what predict-peer says"))?;
        let seconds = output.and_then(|output| serde_json::from_slice(&output.stdout).ok());
        seconds.ok_or_else(|| BenchError::Protocol(format!("{size} ranks of predict-peer gave no figures")))
    }

    /// The machine itself: every process adds (or copies) that many bytes.
    pub fn limit(&self, task: &str, ranks: usize) -> Result<Peer, BenchError> {
        let mut command = Command::new(self.programs.join("limit-peer"));
        command.args([task, &ranks.to_string()]);
        Peer::start(task, vec![command], ranks, PATIENCE)
    }
}

/// Open MPI's launcher, to which a program is to be added.
pub fn open_mpi(ranks: usize) -> Command {
    let mut command = Command::new("mpirun.openmpi");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]);
    command
}

/// Horovod's own launcher, to which a program is to be added.
pub fn horovod_over_gloo(python: &Path, ranks: usize) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "horovod.runner.launch", "--gloo", "--network-interfaces", "lo"]);
    command.args(["-np", &ranks.to_string(), "-H", &format!("localhost:{ranks}")]);
    command
}

/// Whether it is installed.
pub fn has_open_mpi() -> bool {
    let mut command = Command::new("mpirun.openmpi");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The name of Horovod over a carrier in the tables.
pub fn horovod_name(carrier: &str) -> &'static str {
    if carrier == "mpi" { "hvd mpi" } else { "hvd gloo" }
}

/// Where one of the Python programs of this package is.
pub fn peer_script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name)
}
