//! `cargo xtask bench search`: how good and how fast the search is, beside Optuna and Hyperopt in the same run.

use anyhow::Result;

use crate::{
    python_tests::environment_for,
    shell::{Call, Shell, cargo},
};

const FOLDER: &str = "target/python/bench-search";
/// What the peers import, and the package of each. Optuna's Gaussian process needs PyTorch.
const NEEDS: [(&str, &str); 4] =
    [("optuna", "optuna"), ("hyperopt", "hyperopt"), ("torch", "torch"), ("setuptools", "setuptools")];
const TRIALS: &str = "100";

/// Prints the tables; the first argument is the number of seeds, 20 unless given.
pub(crate) fn bench(shell: &Shell, arguments: &[String]) -> Result<()> {
    let seeds = arguments.first().map_or("20", String::as_str);
    let python = environment_for(shell, FOLDER, &NEEDS)?;
    shell.run(cargo(["build", "--release", "--quiet", "--package", "sirtaki-search", "--examples"]))?;
    let ours = |example: &str, words: &[&str]| {
        let run = ["run", "--release", "--quiet", "--package", "sirtaki-search", "--example", example, "--"];
        shell.run(cargo(run).args(words.to_vec()))
    };
    let theirs =
        |words: &[&str]| shell.run(Call::new(&python).args(["benches/peers/search_peer.py"]).args(words.to_vec()));
    println!("Regret after {TRIALS} trials: medians and quartiles over {seeds} seeds, and milliseconds per suggestion");
    for at_a_time in ["1", "8"] {
        ours("regret", &[TRIALS, seeds, at_a_time, "auto", "tpe", "gaussian", "random"])?;
        theirs(&["regret", TRIALS, seeds, at_a_time])?;
    }
    println!(
        "\nAsk and tell with 11 parameters, in milliseconds; ours with the lines of the journal, not yet on a disk"
    );
    ours("study", &["speed", "1000", "10000"])?;
    theirs(&["speed", "1000", "10000"])?;
    println!("\nSuggestions of the Gaussian process after so many trials, in milliseconds");
    ours("speed", &["100", "500", "gaussian"])
}
