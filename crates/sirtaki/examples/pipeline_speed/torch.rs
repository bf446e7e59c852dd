//! PyTorch's own pipeline of the same network, over Gloo.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::work::Size;

const PROGRAM: &str = include_str!("../../../../benches/peers/pipeline_speed.py");

/// The median of the seconds of a step.
pub(crate) fn step(python: &Path, workers: usize, size: Size) -> Result<f64, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("cannot make a folder: {error}"))?;
    let Size { micros, layers, width, samples, steps } = size;
    let words = [micros, layers, width, samples, steps].map(|number| number.to_string());
    let start = |rank: usize| {
        let mut command = Command::new(python);
        command.args(["-c", PROGRAM]).args(&words);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", workers.to_string());
        command.env("INIT_METHOD", format!("file://{}", folder.path().join("meet").display()));
        command.env("GLOO_SOCKET_IFNAME", "lo").env("OMP_NUM_THREADS", "1");
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
