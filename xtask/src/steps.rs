//! `cargo xtask test`: the steps, cheapest first, and the table at the end.

use std::{
    num::NonZeroUsize,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};

use crate::{
    book, dist, fuzz, gpu, hygiene, loom, packages, publish, python, python_tests,
    shell::{Call, Shell, cargo, has},
};

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&Shell) -> Result<()>,
}

const STEPS: &[Step] = &[
    Step { name: "hygiene", about: "module headers, file sizes, unique type names, no leftovers", run: hygiene::check },
    Step { name: "format", about: "cargo fmt --check", run: format },
    Step { name: "packages", about: "Debian packages the tests need; installed if allowed", run: packages::check },
    Step { name: "lint", about: "clippy, warnings are errors; with each set of features", run: lint },
    Step { name: "python-lint", about: "Ruff and mypy on the Python package", run: python::lint },
    Step { name: "deny", about: "licences, sources and dependency directions (cargo-deny)", run: deny },
    Step { name: "publish", about: "every crate has what a registry asks for, and can be packed", run: publish::check },
    Step { name: "docs", about: "the book with its links, and cargo doc; warnings are errors", run: docs },
    Step { name: "test", about: "unit and integration tests", run: test },
    Step {
        name: "python",
        about: "the wheel, installed, with each framework on 1, 2 and 4 ranks",
        run: python_tests::test,
    },
    Step { name: "doctest", about: "examples in the documentation, README included", run: doctest },
    Step { name: "loom", about: "every interleaving of the shared-memory signals", run: loom::check },
    Step { name: "fuzz", about: "every byte parser, 10 s each", run: fuzz::check },
];

/// Python's frameworks, gigabytes that one core unpacks, are installed while the steps between these two run.
const INSTALLED_AFTER: &str = "packages";
const INSTALLED_BEFORE: &str = "test";

/// Occasional steps, which take long or need large downloads; they run only when they are named.
const NOW_AND_THEN: &[Step] = &[
    Step {
        name: "gpu",
        about: "everything that needs a GPU, on 2 and 4 ranks, by each way; fails without one",
        run: gpu::test,
    },
    Step {
        name: "batch-files",
        about: "the examples' batch files, submitted to a real Slurm cluster",
        run: batch_files,
    },
    Step {
        name: "elastic-changes",
        about: "100,000 histories of an elastic job, one with 1,000 changes, and training with 200 losses to the same bits",
        run: elastic_changes,
    },
    Step { name: "fuzz-long", about: "every byte parser, 5 minutes each", run: fuzz::check_long },
    Step {
        name: "learner",
        about: "Burn's own training loop on several ranks, with a build of Burn for it",
        run: learner,
    },
    Step { name: "kill-matrix", about: "100 runs in which some part of a job is ended", run: kill_matrix },
    Step {
        name: "search-kills",
        about: "a study killed at 200 places of its journal, and one on 64 slots of which a third is killed",
        run: search_kills,
    },
    Step {
        name: "server-histories",
        about: "100,000 histories of a parameter server with deaths, repetitions and newcomers",
        run: server_histories,
    },
    Step {
        name: "packaging",
        about: "recipes for computing centres, with the files of a release",
        run: dist::check_recipes,
    },
    Step { name: "publish-build", about: "every crate packed, and built from what was packed", run: publish::rehearse },
    Step {
        name: "python-versions",
        about: "the wheel with older versions of the frameworks, which are kept in target (some GB)",
        run: python_tests::test_older,
    },
    Step {
        name: "trackers",
        about: "Weights & Biases and MLflow as listeners, which are installed into target (some 100 MB)",
        run: python_tests::test_trackers,
    },
];

/// How one step went.
enum Outcome {
    Passed(Duration),
    Failed(Duration, anyhow::Error),
    NotRun,
}

/// Shows the steps.
pub(crate) fn list() {
    for Step { name, about, .. } in STEPS {
        println!("{name:<15} {about}");
    }
    for Step { name, about, .. } in NOW_AND_THEN {
        println!("{name:<15} only when named: {about}");
    }
}

/// Runs the named steps, or all everyday ones, until one fails.
pub(crate) fn run(shell: &Shell, names: &[String]) -> Result<()> {
    let steps = select(names)?;
    let mut outcomes: Vec<(&Step, Outcome)> = Vec::new();
    thread::scope(|threads| {
        let mut installation = None;
        for (index, step) in steps.iter().enumerate() {
            if step.name == INSTALLED_BEFORE {
                // The step installs what is missing, or says why it cannot.
                let _ = installation.take().map(thread::ScopedJoinHandle::join);
            }
            let outcome = if outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(..))) {
                Outcome::NotRun
            } else {
                println!("\n[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.about);
                perform(shell, step)
            };
            if names.is_empty() && step.name == INSTALLED_AFTER && matches!(outcome, Outcome::Passed(_)) {
                installation = Some(threads.spawn(|| python_tests::environment(shell)));
            }
            outcomes.push((step, outcome));
        }
    });
    let result = summarise(&outcomes);
    if names.is_empty() {
        println!("left out: everything that needs a GPU; `cargo xtask test gpu` runs it where there is one");
    }
    result
}

fn select(names: &[String]) -> Result<Vec<&'static Step>> {
    if names.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    names
        .iter()
        .map(|name| match STEPS.iter().chain(NOW_AND_THEN).find(|step| step.name == name) {
            Some(step) => Ok(step),
            None => bail!("there is no step `{name}`; `cargo xtask test --list` shows all"),
        })
        .collect()
}

fn perform(shell: &Shell, step: &Step) -> Outcome {
    let start = Instant::now();
    let result = (step.run)(shell);
    let time = start.elapsed();
    match result {
        Ok(()) => {
            println!("  passed in {:.1} s", time.as_secs_f64());
            Outcome::Passed(time)
        }
        Err(error) => {
            println!("  FAILED after {:.1} s: {error:#}", time.as_secs_f64());
            Outcome::Failed(time, error)
        }
    }
}

fn summarise(outcomes: &[(&Step, Outcome)]) -> Result<()> {
    println!("\n{:<15} {:<8} {:>8}", "step", "result", "time");
    let (mut passed, mut failed, mut total) = (0, 0, Duration::ZERO);
    for (step, outcome) in outcomes {
        let (word, time) = match outcome {
            Outcome::Passed(time) => ("passed", Some(*time)),
            Outcome::Failed(time, _) => ("FAILED", Some(*time)),
            Outcome::NotRun => ("not run", None),
        };
        passed += usize::from(matches!(outcome, Outcome::Passed(_)));
        failed += usize::from(matches!(outcome, Outcome::Failed(..)));
        total += time.unwrap_or_default();
        let time = time.map_or("-".into(), |time| format!("{:.1} s", time.as_secs_f64()));
        println!("{:<15} {word:<8} {time:>8}", step.name);
    }
    let failure = outcomes.iter().find_map(|(step, outcome)| match outcome {
        Outcome::Failed(_, error) => Some((step.name, error)),
        _ => None,
    });
    println!("\n{passed} passed, {failed} failed ({:.0} s)", total.as_secs_f64());
    if let Some((name, error)) = failure {
        bail!("step `{name}`: {error:#}\nhint: repeat it alone with `cargo xtask test {name}`");
    }
    Ok(())
}

fn format(shell: &Shell) -> Result<()> {
    shell.run(cargo(["fmt", "--all", "--check"]))?;
    shell.run(cargo(["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]))
}

/// What only these features build is checked separately. Burn's training loop turns on the thread pool of Burn's CPU back
/// end, which would change every other program of the workspace.
const FEATURES: [&str; 4] = ["-p", "sirtaki", "--features", "train,cuda"];

fn lint(shell: &Shell) -> Result<()> {
    let clippy = |which: &[&str]| {
        cargo(["clippy"]).args(which.to_vec()).args(["--all-targets", "--locked", "--", "-D", "warnings"])
    };
    shell.run(clippy(&["--workspace"]))?;
    shell.run(cargo(["clippy", "-p", "sirtaki", "--no-default-features", "--locked", "--", "-D", "warnings"]))?;
    shell.run(without_cuda(clippy(&FEATURES)))
}

/// Burn's build scripts look for CUDA's compilers, unless this is for documentation.
fn without_cuda(call: Call) -> Call {
    call.env("DOCS_RS", "1")
}

/// cargo-deny without its advisories: their database has to be fetched, and this command works without a network.
fn deny(shell: &Shell) -> Result<()> {
    let program = packages::cargo_deny(shell)?;
    println!("  known vulnerabilities are not looked up here: `cargo deny check advisories` needs a network");
    shell.run(program.args([
        "--workspace",
        "check",
        "--allow",
        "unused-wrapper",
        "--allow",
        "license-not-encountered",
        "bans",
        "licenses",
        "sources",
    ]))
}

fn docs(shell: &Shell) -> Result<()> {
    book::check(shell)?;
    let document = |packages: &[&str]| {
        let options = ["--no-deps", "--locked"];
        cargo(["doc"]).args(packages.to_vec()).args(options).env("RUSTDOCFLAGS", "-D warnings")
    };
    shell.run(document(&["--workspace"]))?;
    shell.run(without_cuda(document(&FEATURES)))
}

fn test(shell: &Shell) -> Result<()> {
    let python = python_tests::environment(shell)?;
    let tests = if has("cargo-nextest") {
        let threads = 2 * thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let everyday = ["--profile", "everyday", "--test-threads", &threads.to_string()];
        cargo(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]).args(everyday)
    } else {
        println!("  cargo-nextest is not installed; its reports are nicer, the tests are the same");
        cargo(["test", "--workspace", "--all-targets", "--locked", "--no-fail-fast"])
    };
    shell.run(tests.env(python_tests::WITH_TORCH, python))
}

/// Feature `train` needs a build of Burn of its own, which takes minutes for one test; every day it is only checked.
fn learner(shell: &Shell) -> Result<()> {
    shell.run(cargo(["test", "-p", "sirtaki", "--features", "train", "--test", "learner", "--locked"]))
}

/// Jobs find the wheel's programs beside the Python that is named.
fn batch_files(shell: &Shell) -> Result<()> {
    let python = python_tests::install(shell, "target/python/tests", &python_tests::environment(shell)?, &[])?;
    let test = ["test", "--workspace", "--locked", "--test", "batch_files", "--", "--ignored", "--nocapture"];
    shell.run(cargo(test).env(python_tests::WITH_TORCH, shell.root.join(python).display().to_string()))
}

fn kill_matrix(shell: &Shell) -> Result<()> {
    let test = ["test", "--workspace", "--locked", "--test", "launch_matrix", "--", "--ignored", "--nocapture"];
    shell.run(cargo(test))
}

fn search_kills(shell: &Shell) -> Result<()> {
    let test = ["test", "--workspace", "--locked", "--test", "search", "--", "--ignored", "--nocapture"];
    shell.run(cargo(test))
}

fn elastic_changes(shell: &Shell) -> Result<()> {
    let histories =
        cargo(["test", "-p", "sirtaki-launch", "--locked", "--lib", "--", "members::", "course::histories"]);
    shell.run(histories.env("PROPTEST_CASES", "100000"))?;
    let test = ["test", "--workspace", "--locked", "--test", "elastic", "--test", "elastic_hosts", "--test", "train"];
    shell.run(cargo(test).args(["--", "--ignored", "--nocapture", "--test-threads", "1"]))
}

fn server_histories(shell: &Shell) -> Result<()> {
    shell.run(cargo(["test", "-p", "sirtaki-server", "--locked", "--lib", "--", "--ignored"]))
}

fn doctest(shell: &Shell) -> Result<()> {
    shell.run(cargo(["test", "--workspace", "--doc", "--locked"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_by_name_and_kept_in_order() {
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let picked = select(&names(&["loom", "format"])).unwrap();
        assert_eq!(picked.iter().map(|step| step.name).collect::<Vec<_>>(), ["loom", "format"]);
        assert_eq!(select(&[]).unwrap().len(), STEPS.len());
        assert_eq!(select(&names(&["python-versions"])).unwrap()[0].name, "python-versions");
        assert!(select(&names(&["lom"])).err().unwrap().to_string().contains("`lom`"));
    }

    #[test]
    fn a_failure_is_the_task_s_failure() {
        let step = &STEPS[0];
        assert!(summarise(&[(step, Outcome::Passed(Duration::ZERO))]).is_ok());
        let failed = Outcome::Failed(Duration::ZERO, anyhow::anyhow!("broken"));
        let error = summarise(&[(step, failed), (step, Outcome::NotRun)]).unwrap_err().to_string();
        assert!(error.contains("hygiene") && error.contains("broken"), "{error}");
    }
}
