//! Fuzzing of every byte parser for a bounded time.
//!
//! libFuzzer needs a program that reports which branches it took. The compiler's coverage pass does that on the stable
//! tool chain, so neither a nightly compiler nor cargo-fuzz is needed. The build names a target, because only then do
//! the flags not apply to build scripts.

use std::{fs, num::NonZeroUsize, thread};

use anyhow::{Context, Result, bail};

use crate::shell::{Call, Shell, cargo};

const SECONDS: u32 = 10;
/// The same when it is asked to look for longer.
const LONG_SECONDS: u32 = 300;
const FLAGS: &[&str] = &[
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // Several units would each register the same counters.
    "-Ccodegen-units=1",
];

/// Builds every target in `fuzz/src/targets` and runs each for a short time.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    run(shell, SECONDS)
}

/// The same for a long time.
pub(crate) fn check_long(shell: &Shell) -> Result<()> {
    run(shell, LONG_SECONDS)
}

fn run(shell: &Shell, seconds: u32) -> Result<()> {
    let host = shell.host()?;
    let build = cargo(["build", "--manifest-path", "fuzz/Cargo.toml", "--release", "--locked"]);
    let build = build.args(["--target", &host, "--target-dir", "target/fuzz"]);
    shell.run(build.env("RUSTFLAGS", FLAGS.join(" ")))?;
    let targets = targets(shell)?;
    if targets.is_empty() {
        bail!("no targets in fuzz/src/targets");
    }
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    for some in targets.chunks(cores) {
        thread::scope(|threads| {
            let runs: Vec<_> =
                some.iter().map(|target| threads.spawn(|| try_inputs(shell, &host, target, seconds))).collect();
            runs.into_iter().try_for_each(|run| run.join().unwrap_or_else(|_| bail!("a fuzzing thread panicked")))
        })?;
    }
    Ok(())
}

/// Runs one target for its time.
fn try_inputs(shell: &Shell, host: &str, target: &str, seconds: u32) -> Result<()> {
    let corpus = format!("target/fuzz/corpus/{target}");
    fs::create_dir_all(shell.root.join(&corpus))?;
    // For inputs with so much structure that chance would not find it.
    let seeds = Some(format!("fuzz/seeds/{target}")).filter(|seeds| shell.root.join(seeds).is_dir());
    let program = shell.root.join(format!("target/fuzz/{host}/release/sirtaki-fuzz")).display().to_string();
    let limits = ["-rss_limit_mb=2048", "-timeout=10", "-max_len=8192", "-verbosity=0", "-print_final_stats=1"];
    let artifacts = format!("-artifact_prefix=target/fuzz/{target}-");
    let call = Call::new(program).env("SIRTAKI_FUZZ_TARGET", target);
    let call = call.args(limits).args([format!("-max_total_time={seconds}"), artifacts, corpus]).args(seeds);
    let said = shell.run_logged(call, &format!("target/fuzz/{target}.log"));
    let said = said.with_context(|| format!("the input that broke `{target}` is in target/fuzz/{target}-*"))?;
    let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!("    {target}: {} inputs tried, all survived", runs.unwrap_or("?").trim());
    Ok(())
}

fn targets(shell: &Shell) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(shell.root.join("fuzz/src/targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}
