//! `cargo xtask test`: the steps, cheapest first, and the table at the end.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::{
    fuzz, gpu, hygiene, loom, packages, python, python_tests,
    shell::{Shell, cargo, has},
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
    Step { name: "lint", about: "clippy, warnings are errors", run: lint },
    Step { name: "cuda", about: "feature `cuda` type-checked, without a GPU", run: cuda },
    Step { name: "python-lint", about: "Ruff and mypy on the Python package", run: python::lint },
    Step { name: "deny", about: "licences, sources and dependency directions (cargo-deny)", run: deny },
    Step { name: "docs", about: "cargo doc for all crates and features, warnings are errors", run: docs },
    Step { name: "test", about: "unit and integration tests", run: test },
    Step {
        name: "python",
        about: "the wheel, installed, with each framework on 1, 2 and 4 ranks",
        run: python_tests::test,
    },
    Step { name: "doctest", about: "examples in the documentation, README included", run: doctest },
    Step { name: "loom", about: "every interleaving of the shared-memory signals", run: loom::check },
    Step { name: "fuzz", about: "every byte parser, 20 s each", run: fuzz::check },
];

/// Occasional steps, which take long or need large downloads; they run only when they are named.
const NOW_AND_THEN: &[Step] = &[
    Step {
        name: "gpu",
        about: "everything that needs a GPU, on 2 and 4 ranks, by each way; fails without one",
        run: gpu::test,
    },
    Step {
        name: "elastic-changes",
        about: "100,000 histories of an elastic job, and one with 1,000 changes of its workers",
        run: elastic_changes,
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
        name: "python-versions",
        about: "the wheel with older versions of the frameworks, which are kept in target (some GB)",
        run: python_tests::test_older,
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
    for (index, step) in steps.iter().enumerate() {
        let outcome = if outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(..))) {
            Outcome::NotRun
        } else {
            println!("\n[{}/{}] {}: {}", index + 1, steps.len(), step.name, step.about);
            perform(shell, step)
        };
        outcomes.push((step, outcome));
    }
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

/// What only feature `train` builds is checked separately. Burn's training loop turns on the thread pool of Burn's CPU
/// back end, which would change every other program of the workspace.
const TRAIN: [&str; 4] = ["-p", "sirtaki", "--features", "train"];

fn lint(shell: &Shell) -> Result<()> {
    shell.run(cargo(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    shell.run(cargo(["clippy"]).args(TRAIN).args(["--all-targets", "--locked", "--", "-D", "warnings"]))
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

/// Burn's build scripts look for CUDA's compilers, unless this is for documentation.
fn cuda(shell: &Shell) -> Result<()> {
    let check = ["check", "-p", "sirtaki", "--features", "cuda", "--locked"];
    shell.run(cargo(check).env("DOCS_RS", "1"))
}

fn docs(shell: &Shell) -> Result<()> {
    let document = |packages: &[&str]| {
        let options = ["--no-deps", "--locked"];
        shell.run(cargo(["doc"]).args(packages.iter().copied()).args(options).env("RUSTDOCFLAGS", "-D warnings"))
    };
    document(&["--workspace"])?;
    document(&TRAIN)
}

fn test(shell: &Shell) -> Result<()> {
    let python = python_tests::environment(shell)?;
    if has("cargo-nextest") {
        let tests = cargo(["nextest", "run", "--workspace", "--locked", "--no-fail-fast"]);
        shell.run(tests.env(python_tests::WITH_TORCH, python))?;
        return shell.run(cargo(["nextest", "run"]).args(TRAIN).args(["--test", "learner", "--locked"]));
    }
    println!("  cargo-nextest is not installed; its reports are nicer, the tests are the same");
    let tests = cargo(["test", "--workspace", "--all-targets", "--locked", "--no-fail-fast"]);
    shell.run(tests.env(python_tests::WITH_TORCH, python))?;
    shell.run(cargo(["test"]).args(TRAIN).args(["--test", "learner", "--locked"]))
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
    let test = ["test", "--workspace", "--locked", "--test", "elastic", "--", "--ignored", "--nocapture"];
    shell.run(cargo(test))
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
