//! Figures of front ends that Python programs in `benches` measure.

use anyhow::Result;

use crate::{
    python::{pip_install, wheel},
    python_tests::{environment, environment_for, install},
    shell::{Call, Shell, cargo},
};

const FOLDER: &str = "target/python/bench-tensorflow";
/// What the benchmark imports, and the package of each.
const NEEDS: [(&str, &str); 3] = [("tensorflow", "tensorflow-cpu"), ("keras", "keras"), ("tf_keras", "tf_keras")];

/// Keras on TensorFlow beside MultiWorkerMirroredStrategy; the arguments are passed on.
pub(crate) fn bench_tensorflow(shell: &Shell, arguments: &[String]) -> Result<()> {
    let wheel = wheel(shell)?;
    let python = environment_for(shell, FOLDER, &NEEDS)?;
    let sirtaki = format!("{FOLDER}/bin/sirtaki");
    shell.run(pip_install(&python).args(["--force-reinstall", "--no-deps", &wheel]))?;
    shell.run(pip_install(&python).args(["cloudpickle"]))?;
    shell.run(Call::new(&python).args(["benches/tensorflow/bench.py", &sirtaki]).args(arguments))
}

/// Samples and bytes that local SGD needs; the arguments are passed on.
pub(crate) fn bench_local_sgd(shell: &Shell, arguments: &[String]) -> Result<()> {
    samples_needed(shell, "local", "2", arguments)
}

/// Workers that are killed and come, in Rust and with PyTorch; the arguments are passed on.
pub(crate) fn bench_elastic(shell: &Shell, arguments: &[String]) -> Result<()> {
    let python = install(shell, "target/python/bench-elastic", &environment(shell)?, &[])?;
    // One program, which is launcher, agent and workers in one.
    let example = ["--package", "sirtaki", "--example", "elastic_speed", "--", "--python", &python];
    shell.run(cargo(["run", "--release", "--quiet"]).args(example).args(arguments))
}

/// Parameter servers, with PyTorch's remote calls before and after them, and the samples they need; the arguments are passed
/// on.
pub(crate) fn bench_server(shell: &Shell, arguments: &[String]) -> Result<()> {
    let speed = ["run", "--release", "--quiet", "--package", "sirtaki-server", "--example", "server_speed", "--"];
    let python = environment(shell)?;
    let peer = || Call::new(&python).args(["benches/peers/server_rpc.py"]);
    shell.run(peer())?;
    shell.run(cargo(speed).args(["target/server.svg"]))?;
    shell.run(peer())?;
    shell.run(cargo(speed).args(["transfer"]))?;
    samples_needed(shell, "server", "4", arguments)
}

/// Samples to an accuracy on so many ranks, beside data parallelism.
fn samples_needed(shell: &Shell, which: &str, ranks: &str, arguments: &[String]) -> Result<()> {
    let folder = "target/python/bench-local-sgd";
    let python = install(shell, folder, &environment(shell)?, &[])?;
    let sirtaki = format!("{folder}/bin/sirtaki");
    let run = Call::new(&sirtaki).args(["run", "-n", ranks, "--progress", "off", "--", &python]);
    shell.run(run.args(["benches/local_sgd/bench.py", which]).args(arguments))
}

/// Networks on volumes beside PyTorch and MONAI; the arguments are passed on.
pub(crate) fn bench_volume(shell: &Shell, arguments: &[String]) -> Result<()> {
    let folder = "target/python/bench-volume";
    let python = install(shell, folder, &environment(shell)?, &["monai", "scipy"])?;
    let wheel = wheel(shell)?;
    shell.run(pip_install(&python).args(["--force-reinstall", "--no-deps", &wheel]))?;
    let sirtaki = format!("{folder}/bin/sirtaki");
    shell.run(Call::new(&python).args(["benches/volume/bench.py", &sirtaki]).args(arguments))
}
