//! Which runs a scaling needs, in which order, and the command line of each. Pure.

use std::{collections::BTreeMap, path::Path};

use crate::printer::Advice;

/// How work grows with workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Growth {
    /// The same work, shared.
    Strong,
    /// The same amount for each.
    Weak,
    /// One worker, for which there is no difference.
    Both,
}

impl Growth {
    pub(super) fn name(self) -> &'static str {
        match self {
            Growth::Strong => "strong",
            Growth::Weak => "weak",
            Growth::Both => "both",
        }
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedRun {
    pub(super) kind: Growth,
    pub(super) workers: usize,
    /// Samples per step of each worker.
    pub(super) each: usize,
    pub(super) seed: usize,
}

impl PlannedRun {
    /// Its folder's name.
    pub(super) fn name(&self) -> String {
        let kind = if self.kind == Growth::Both { String::new() } else { format!("{}-", self.kind.name()) };
        format!("{kind}workers{}-seed{}", self.workers, self.seed)
    }

    /// Samples per step of all workers.
    pub(super) fn all(&self) -> usize {
        self.each * self.workers
    }

    /// Settings for the report, unless the program states them itself.
    pub(super) fn settings(&self) -> BTreeMap<String, String> {
        let settings = [
            ("batch_per_worker", self.each.to_string()),
            ("global_batch", self.all().to_string()),
            ("seed", self.seed.to_string()),
            ("scaling", self.kind.name().to_owned()),
        ];
        settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobCommand {
    /// `sirtaki train` with these options.
    Train(Vec<String>),
    /// Another program.
    Other(Vec<String>),
}

/// Options of `sirtaki train` that a scaling sets itself.
const OURS: [&str; 6] = ["-n", "--ranks", "--seed", "--batch-size", "--global-batch", "--checkpoint-dir"];

impl JobCommand {
    /// From what was typed.
    pub(super) fn new(words: &[String]) -> Result<Self, Advice> {
        let options = match words {
            [] => &[],
            [program, train, options @ ..] if is_sirtaki(program) && train == "train" => options,
            other => return Ok(JobCommand::Other(other.to_vec())),
        };
        let ours = |word: &&String| OURS.contains(&word.split('=').next().unwrap_or(""));
        if let Some(word) = options.iter().find(ours) {
            let hint = "choose with --workers, --seeds, --batch and -o before the two dashes";
            return Err(Advice::new(format!("`bench scaling` sets {word} of `sirtaki train` itself"), hint));
        }
        Ok(JobCommand::Train(options.to_vec()))
    }

    /// Whether the batch size can be chosen; otherwise work cannot be shared.
    pub(super) fn takes_batch(&self) -> bool {
        match self {
            JobCommand::Train(_) => true,
            JobCommand::Other(words) => {
                words.iter().any(|word| word.contains("{batch}") || word.contains("{global_batch}"))
            }
        }
    }

    /// The arguments of `sirtaki` for a run that is recorded in this folder.
    pub(super) fn arguments(&self, job: &PlannedRun, folder: &Path) -> Vec<String> {
        let (workers, folder) = (job.workers.to_string(), folder.display().to_string());
        match self {
            JobCommand::Train(options) => {
                let (name, batch) =
                    if job.kind == Growth::Weak { ("--batch-size", job.each) } else { ("--global-batch", job.all()) };
                let ours =
                    ["-n", &workers, "--seed", &job.seed.to_string(), name, &batch.to_string()].map(str::to_owned);
                let place = ["--checkpoint-dir", &folder, "--keep", "1"].map(str::to_owned);
                let train = std::iter::once("train".to_owned());
                train.chain(options.iter().cloned()).chain(ours).chain(place).collect()
            }
            JobCommand::Other(words) => {
                let fill = |word: &String| {
                    word.replace("{workers}", &workers)
                        .replace("{batch}", &job.each.to_string())
                        .replace("{global_batch}", &job.all().to_string())
                        .replace("{seed}", &job.seed.to_string())
                };
                let run = ["run", "-n", &workers, &format!("--record={folder}"), "--"].map(str::to_owned);
                run.into_iter().chain(words.iter().map(fill)).collect()
            }
        }
    }
}

fn is_sirtaki(program: &str) -> bool {
    Path::new(program).file_name().is_some_and(|name| name == "sirtaki")
}

/// All runs, seed by seed, so that changes of the machine over time affect all of them alike.
pub(super) fn jobs(workers: &[usize], kinds: &[Growth], batch: usize, seeds: usize) -> Result<Vec<PlannedRun>, Advice> {
    let mut jobs = Vec::new();
    for seed in 1..=seeds {
        for &workers in workers {
            if workers == 1 {
                jobs.push(PlannedRun { kind: Growth::Both, workers, each: batch, seed });
                continue;
            }
            for &kind in kinds {
                let each = if kind == Growth::Strong { batch / workers } else { batch };
                if kind == Growth::Strong && each * workers != batch {
                    let hint =
                        format!("choose a multiple, such as --batch {}, or other --workers", workers * each.max(1));
                    return Err(Advice::new(
                        format!("a batch of {batch} cannot be shared equally by {workers} workers"),
                        hint,
                    ));
                }
                jobs.push(PlannedRun { kind, workers, each, seed });
            }
        }
    }
    Ok(jobs)
}

/// Powers of two up to this many, and this many.
pub(super) fn powers(cores: usize) -> Vec<usize> {
    let mut list: Vec<usize> =
        std::iter::successors(Some(1), |workers| Some(workers * 2)).take_while(|workers| *workers <= cores).collect();
    if list.is_empty() {
        list.push(1);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(Into::into).collect()
    }

    #[test]
    fn one_worker_runs_once_and_seeds_take_turns() {
        let jobs = jobs(&[1, 2, 4], &[Growth::Strong, Growth::Weak], 128, 2).unwrap();
        let names: Vec<String> = jobs.iter().map(PlannedRun::name).collect();
        let first = [
            "workers1-seed1",
            "strong-workers2-seed1",
            "weak-workers2-seed1",
            "strong-workers4-seed1",
            "weak-workers4-seed1",
        ];
        assert_eq!(names[..5], first);
        assert_eq!((names.len(), names[5].as_str()), (10, "workers1-seed2"));
        let batches: Vec<(usize, usize)> = jobs[..5].iter().map(|job| (job.each, job.all())).collect();
        assert_eq!(batches, [(128, 128), (64, 128), (128, 256), (32, 128), (128, 512)]);
    }

    #[test]
    fn what_cannot_be_shared_is_said_before_anything_runs() {
        let error = jobs(&[1, 3], &[Growth::Strong], 128, 1).unwrap_err();
        assert_eq!(
            (error.message.as_str(), error.hint.contains("--batch 126")),
            ("a batch of 128 cannot be shared equally by 3 workers", true)
        );
        assert!(jobs(&[3], &[Growth::Weak], 128, 1).is_ok());
        assert_eq!((powers(1), powers(2), powers(12)), (vec![1], vec![1, 2], vec![1, 2, 4, 8]));
        assert_eq!(powers(0), [1]);
    }

    #[test]
    fn training_gets_its_options_and_ours() {
        let command = JobCommand::new(&words("/opt/bin/sirtaki train --model cnn")).unwrap();
        let job = PlannedRun { kind: Growth::Weak, workers: 2, each: 64, seed: 3 };
        let expected = "train --model cnn -n 2 --seed 3 --batch-size 64 --checkpoint-dir f --keep 1";
        assert_eq!(command.arguments(&job, Path::new("f")), words(expected));
        let strong = PlannedRun { kind: Growth::Strong, ..job };
        assert!(command.arguments(&strong, Path::new("f")).join(" ").contains("--global-batch 128"));
        assert_eq!(JobCommand::new(&[]).unwrap(), JobCommand::Train(Vec::new()));
        assert!(JobCommand::new(&words("sirtaki train --seed=4")).unwrap_err().message.contains("--seed=4"));
    }

    #[test]
    fn other_programs_get_what_they_ask_for() {
        let command = JobCommand::new(&words("python train.py --b={batch} {global_batch} {seed} {workers}")).unwrap();
        let job = PlannedRun { kind: Growth::Strong, workers: 2, each: 64, seed: 3 };
        let expected = "run -n 2 --record=f -- python train.py --b=64 128 3 2";
        assert_eq!(command.arguments(&job, Path::new("f")), words(expected));
        assert!(command.takes_batch() && !JobCommand::new(&words("./train {seed}")).unwrap().takes_batch());
    }
}
