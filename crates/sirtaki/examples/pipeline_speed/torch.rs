//! PyTorch's own pipelines: of the same network over Gloo, and of stages that compute next to nothing, over Gloo and over
//! sirtaki.

use std::{
    fmt::Write,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::{
    goals::{Goal, ratio},
    work::{Size, median},
};

const SPEED: &str = include_str!("../../../../benches/peers/pipeline_speed.py");
const EXCHANGE: &str = include_str!("../../../../benches/peers/pipeline_exchange.py");
/// What the second one imports.
const STAGES: &str = include_str!("../../../../benches/peers/torch_pipeline.py");

/// Whether that Python has the package.
pub(crate) fn has_sirtaki(python: &Path) -> bool {
    let mut command = Command::new(python);
    let command = command.args(["-c", "import sirtaki.torch"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// PyTorch's processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peers<'a> {
    pub(crate) python: &'a Path,
    pub(crate) workers: usize,
    pub(crate) backend: &'static str,
}

impl Peers<'_> {
    /// The median of the seconds of a step through equal layers.
    pub(crate) fn step(&self, size: Size) -> Result<f64, String> {
        let Size { micros, layers, width, samples, steps } = size;
        self.run(SPEED, &[micros, layers, width, samples, steps])
    }

    /// The median of the seconds of a step that exchanges activations of so many bytes.
    pub(crate) fn exchange(&self, bytes: usize) -> Result<f64, String> {
        self.run(EXCHANGE, &[bytes, if bytes > 1 << 16 { 20 } else { 60 }])
    }

    fn run(&self, program: &str, words: &[usize]) -> Result<f64, String> {
        let Self { python, workers, backend } = *self;
        let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
        let path = folder.path().join("peer.py");
        let written =
            fs::write(&path, program).and_then(|()| fs::write(folder.path().join("torch_pipeline.py"), STAGES));
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        let start = |rank: usize| {
            let mut command = Command::new(python);
            command.arg(&path).args(words.iter().map(usize::to_string));
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", workers.to_string()).env("BACKEND", backend);
            command.env("INIT_METHOD", format!("file://{}", folder.path().join("meet").display()));
            command.env("GLOO_SOCKET_IFNAME", "lo").env("OMP_NUM_THREADS", "1");
            // They are no ranks of the job that this program is part of.
            let own = std::env::vars_os().map(|(name, _)| name);
            for name in own.filter(|name| name.to_string_lossy().starts_with("SIRTAKI_")) {
                command.env_remove(name);
            }
            command.stdout(Stdio::piped()).stderr(Stdio::inherit());
            command.spawn().map_err(|error| format!("cannot start {}: {error}", python.display()))
        };
        let mut ranks: Vec<Child> = (0..workers).map(start).collect::<Result<_, _>>()?;
        let first = ranks.remove(0).wait_with_output().map_err(|error| format!("PyTorch: {error}"))?;
        for mut rank in ranks {
            rank.wait().map_err(|error| format!("PyTorch: {error}"))?;
        }
        let said = String::from_utf8_lossy(&first.stdout).trim().to_owned();
        said.parse().map_err(|_| format!("PyTorch on {workers} ranks said `{said}` and ended with {}", first.status))
    }
}

/// Steps that do little but exchange activations of one size.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) bytes: usize,
    name: &'static str,
    /// Gloo's time divided by ours.
    least: f64,
    gloo: Vec<f64>,
    sirtaki: Vec<f64>,
}

impl Exchange {
    pub(crate) fn all() -> Vec<Self> {
        let of = |bytes, name, least| Self { bytes, name, least, gloo: Vec::new(), sirtaki: Vec::new() };
        vec![of(4 << 10, "4 KiB", 1.3), of(1 << 20, "1 MiB", 1.05)]
    }

    pub(crate) fn add(&mut self, backend: &str, seconds: impl Iterator<Item = f64>) {
        if backend == "gloo" { self.gloo.extend(seconds) } else { self.sirtaki.extend(seconds) }
    }
}

/// A table, and the goals.
pub(crate) fn told(exchanges: &[Exchange]) -> (String, Vec<Goal>) {
    let (mut text, mut goals) =
        (String::from("PyTorch's own 1F1B on 2 ranks, stages that compute next to nothing"), Vec::new());
    for Exchange { name, least, gloo, sirtaki, .. } in exchanges {
        let [gloo, ours] = [gloo, sirtaki].map(|seconds| median(seconds.iter().copied()));
        let _ = write!(
            text,
            "\n  activations of {name:<8} over Gloo {:>8.2} ms, over sirtaki {:>8.2} ms",
            1000.0 * gloo,
            1000.0 * ours
        );
        let what = format!("PyTorch's 1F1B, activations of {name}, Gloo's time ÷ sirtaki's");
        goals.push(Goal::at_least(&what, gloo / ours, *least, ratio));
    }
    (text, goals)
}
