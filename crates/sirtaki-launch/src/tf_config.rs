//! `TF_CONFIG`: who and where TensorFlow's workers are, for `MultiWorkerMirroredStrategy` and its kin.
//!
//! TensorFlow starts a server in each process of such a script, on a port that all of them have to know before they
//! start. Scripts written for Horovod do not want it: TensorFlow's estimators, once they see the variable, would try to
//! communicate themselves.

use super::{JobSpec, plan::Plan, protocol::ITSELF};

/// The variable.
pub const VARIABLE: &str = "TF_CONFIG";
/// Most ranks that are told. The text grows with their number, every rank has one, and TensorFlow's servers connect
/// everybody with everybody.
const MOST: usize = 512;

/// Whether the ranks of a job are told where each other's servers are.
pub fn wanted(spec: &JobSpec, plan: &Plan) -> bool {
    let itself = spec.program.first().is_some_and(|program| program == ITSELF);
    spec.tf_config && !itself && plan.size() <= MOST
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

    #[test]
    fn every_worker_is_named_and_a_rank_knows_which_one_it_is() {
        let workers = ["10.0.0.1:70", "[fd00::1]:71"].map(str::to_owned);
        let expected =
            r#"{"cluster": {"worker": ["10.0.0.1:70", "[fd00::1]:71"]}, "task": {"type": "worker", "index": 1}}"#;
        assert_eq!(of_rank(&workers, 1), expected);
    }

    #[test]
    fn scripts_that_do_not_want_it_are_not_told() {
        let plan = |ranks| Plan::on_one("a", NonZeroUsize::new(ranks).unwrap()).unwrap();
        let spec = |program: &str, tf_config| JobSpec { tf_config, ..JobSpec::new([program]) };
        assert!(wanted(&spec("python", true), &plan(512)));
        assert!(!wanted(&spec("python", true), &plan(513)));
        assert!(!wanted(&spec(ITSELF, true), &plan(2)));
        assert!(!wanted(&spec("python", false), &plan(2)));
    }
}
