//! `TF_CONFIG`: who and where TensorFlow's workers are, for `MultiWorkerMirroredStrategy` and its kin.
//!
//! TensorFlow starts a server in each process of such a script, on a port that all of them have to know before they
//! start. Scripts written for Horovod do not want it: TensorFlow's estimators, once they see the variable, would try to
//! communicate themselves.

use super::{options::Options, plan::Plan, protocol::ITSELF};

/// The variable.
pub const VARIABLE: &str = "TF_CONFIG";
/// Most ranks that are told. The text grows with their number, every rank has one, and TensorFlow's servers connect
/// everybody with everybody.
const MOST: usize = 512;

/// Whether the ranks of a job are told where each other's servers are.
pub fn wanted(options: &Options, plan: &Plan) -> bool {
    let itself = options.program.first().is_some_and(|program| program == ITSELF);
    !itself && !options.horovod && !options.tf1 && plan.size() <= MOST
}

/// What `rank` is told.
pub fn of_rank(workers: &[String], rank: usize) -> String {
    let workers: Vec<_> = workers.iter().map(|worker| format!("\"{worker}\"")).collect();
    let (workers, task) = (workers.join(", "), format!("{{\"type\": \"worker\", \"index\": {rank}}}"));
    format!("{{\"cluster\": {{\"worker\": [{workers}]}}, \"task\": {task}}}")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::launch::outside::Outside;

    #[test]
    fn every_worker_is_named_and_a_rank_knows_which_one_it_is() {
        let workers = ["10.0.0.1:70", "[fd00::1]:71"].map(str::to_owned);
        let expected =
            r#"{"cluster": {"worker": ["10.0.0.1:70", "[fd00::1]:71"]}, "task": {"type": "worker", "index": 1}}"#;
        assert_eq!(of_rank(&workers, 1), expected);
    }

    #[test]
    fn scripts_that_do_not_want_it_are_not_told() {
        let outside = Outside { get: &|_| None, read: &|_| Ok(String::new()) };
        let run = |program: &str| crate::args::run::Run { program: vec![program.into()], ..Default::default() };
        let plan = |ranks| Plan::on_one("a", NonZeroUsize::new(ranks).unwrap()).unwrap();
        let options = |run| Options::resolve(run, &outside).unwrap();
        assert!(wanted(&options(run("python")), &plan(512)));
        assert!(!wanted(&options(run("python")), &plan(513)));
        assert!(!wanted(&options(run(ITSELF)), &plan(2)));
        for flag in ["horovod", "tf1"] {
            let mut run = run("python");
            *(if flag == "tf1" { &mut run.tf1 } else { &mut run.horovod }) = Some(true);
            assert!(!wanted(&options(run), &plan(2)), "{flag}");
        }
    }
}
