//! `cargo xtask bench search [PART]... [SEEDS]`: how good and how fast the search is, beside Optuna and Hyperopt in the same run.
//!
//! Each part can be had alone, since all of them with 20 seeds take hours: Optuna's Gaussian process and Hyperopt are slow.

use anyhow::{Result, bail};

use crate::{
    python::{pip_install, wheel},
    python_tests::environment_for,
    shell::{Call, Shell, cargo},
};

const FOLDER: &str = "target/python/bench-search";
/// What the peers import, and the package of each. Optuna's Gaussian process needs PyTorch.
const NEEDS: [(&str, &str); 4] =
    [("optuna", "optuna"), ("hyperopt", "hyperopt"), ("torch", "torch"), ("setuptools", "setuptools")];
const TRIALS: &str = "100";
/// Seeds, where nobody says how many; 20 are enough to tell luck from skill.
const SEEDS: &str = "3";
const PARTS: [(&str, &str); 6] = [
    (
        "regret",
        "distance to known optima after 100 trials, one at a time (about 4 minutes per seed, most of it the peers')",
    ),
    ("parallel", "the same, eight at a time, beside one at a time (about 2 minutes per seed)"),
    ("speed", "time of ask and tell, and of suggestions of the Gaussian process"),
    ("durable", "ask and tell with a journal on this disk, from Python; builds the wheel"),
    ("idle", "how long eight slots stand empty between trials of 2 s; builds the wheel"),
    ("lenet", "LeNet with early stopping, beside random search and Optuna (20 minutes with 5 seeds); builds the wheel"),
];

/// Prints the tables of the named parts, or of all.
pub(crate) fn bench(shell: &Shell, arguments: &[String]) -> Result<()> {
    let words = arguments.iter().map(String::as_str);
    let (seeds, names): (Vec<&str>, Vec<&str>) = words.partition(|word| word.parse::<u32>().is_ok());
    if let Some(unknown) = names.iter().find(|name| !PARTS.iter().any(|(part, _)| part == *name)) {
        let parts: Vec<String> = PARTS.iter().map(|(name, about)| format!("\n  {name:<9} {about}")).collect();
        bail!("there is no part `{unknown}` of this benchmark; there are{}", parts.concat());
    }
    let seeds = seeds.first().copied().unwrap_or(SEEDS);
    let bench = Bench { shell, python: environment_for(shell, FOLDER, &NEEDS)?, seeds };
    let wanted = |part: &str| names.is_empty() || names.contains(&part);
    if ["regret", "parallel", "speed"].into_iter().any(wanted) {
        shell.run(cargo(["build", "--release", "--quiet", "--package", "sirtaki-search", "--examples"]))?;
    }
    if ["durable", "idle", "lenet"].into_iter().any(wanted) {
        let wheel = wheel(shell)?;
        shell.run(pip_install(&bench.python).args(["--force-reinstall", "--no-deps", wheel.as_str()]))?;
    }
    for (part, about) in PARTS.iter().filter(|(part, _)| wanted(part)) {
        println!("\n{part}: {about}");
        bench.part(part)?;
    }
    Ok(())
}

struct Bench<'a> {
    shell: &'a Shell,
    python: String,
    seeds: &'a str,
}

impl Bench<'_> {
    fn part(&self, part: &str) -> Result<()> {
        match part {
            "regret" => {
                self.ours("regret", &[TRIALS, self.seeds, "1", "auto", "tpe", "gaussian", "random"])?;
                self.peer("benches/peers/search_peer.py", &["regret", TRIALS, self.seeds, "1"])
            }
            "parallel" => {
                self.ours("regret", &[TRIALS, self.seeds, "1", "auto"])?;
                self.ours("regret", &[TRIALS, self.seeds, "8", "auto"])?;
                for at_a_time in ["1", "8"] {
                    let words = ["regret", TRIALS, self.seeds, at_a_time, "optuna tpe"];
                    self.peer("benches/peers/search_peer.py", &words)?;
                }
                Ok(())
            }
            "speed" => {
                println!(
                    "ask and tell with 11 parameters, in milliseconds; ours with the lines of the journal in memory"
                );
                self.ours("study", &["speed", "1000", "10000"])?;
                self.peer("benches/peers/search_peer.py", &["speed", "1000"])?;
                println!("suggestions of the Gaussian process after so many trials, in milliseconds of the processor");
                self.ours("speed", &["100", "500", "gaussian"])
            }
            "durable" => self.peer("benches/search/bench.py", &["durable"]),
            "idle" => self.peer("benches/search/bench.py", &["idle", &format!("{FOLDER}/bin/sirtaki")]),
            _ => self.peer("benches/search/bench.py", &["lenet", self.seeds]),
        }
    }

    fn ours(&self, example: &str, words: &[&str]) -> Result<()> {
        let run = ["run", "--release", "--quiet", "--package", "sirtaki-search", "--example", example, "--"];
        self.shell.run(cargo(run).args(words.to_vec()))
    }

    fn peer(&self, program: &str, words: &[&str]) -> Result<()> {
        self.shell.run(Call::new(&self.python).args([program]).args(words.to_vec()))
    }
}
