//! `TF_CONFIG`: who and where TensorFlow's processes are, for `MultiWorkerMirroredStrategy`, `ParameterServerStrategy` and
//! their kin.
//!
//! TensorFlow starts a server in each process of such a script, on a port that all of them have to know before they
//! start. Scripts written for Horovod do not want it: TensorFlow's estimators, once they see the variable, would try to
//! communicate themselves. Our workers are TensorFlow's, servers are its `ps` and the coordinator is its `chief`.

use super::{JobSpec, plan::Plan, protocol::ITSELF, roles::Role};

/// The variable.
pub const VARIABLE: &str = "TF_CONFIG";
/// Most ranks that are told. The text grows with their number, every rank has one, and TensorFlow's servers connect
/// everybody with everybody.
const MOST: usize = 512;

/// Where TensorFlow's servers listen, by role.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cluster {
    /// In the order of the ranks.
    pub workers: Vec<String>,
    /// In the order of the servers.
    pub servers: Vec<String>,
    /// Of the coordinator, if there is one.
    pub coordinator: Option<String>,
}

/// Whether the processes of a job are told where each other's servers are.
pub fn wanted(spec: &JobSpec, plan: &Plan) -> bool {
    let itself = spec.program.first().is_some_and(|program| program == ITSELF);
    spec.tf_config && !itself && plan.size() <= MOST
}

impl Cluster {
    /// Whether nobody is told anything.
    pub fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// What the process with this number among those of its role is told.
    pub fn told_to(&self, role: Role, number: usize) -> String {
        let list = |name: &str, all: &[String]| {
            let all: Vec<_> = all.iter().map(|address| format!("\"{address}\"")).collect();
            (!all.is_empty()).then(|| format!("\"{name}\": [{}]", all.join(", ")))
        };
        let roles =
            [list("chief", self.coordinator.as_slice()), list("ps", &self.servers), list("worker", &self.workers)];
        let cluster: Vec<String> = roles.into_iter().flatten().collect();
        let kind = match role {
            Role::Worker | Role::Trial => "worker",
            Role::Server => "ps",
            Role::Coordinator => "chief",
        };
        let task = format!("{{\"type\": \"{kind}\", \"index\": {number}}}");
        format!("{{\"cluster\": {{{}}}, \"task\": {task}}}", cluster.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    #[test]
    fn every_process_is_named_and_knows_which_one_it_is() {
        let workers = ["10.0.0.1:70", "[fd00::1]:71"].map(str::to_owned).to_vec();
        let alone = Cluster { workers: workers.clone(), ..Cluster::default() };
        let expected =
            r#"{"cluster": {"worker": ["10.0.0.1:70", "[fd00::1]:71"]}, "task": {"type": "worker", "index": 1}}"#;
        assert_eq!(alone.told_to(Role::Worker, 1), expected);
        let all = Cluster { workers, servers: vec!["b:1".into()], coordinator: Some("a:2".into()) };
        let told = all.told_to(Role::Server, 0);
        assert!(told.contains(r#""chief": ["a:2"], "ps": ["b:1"], "worker""#), "{told}");
        assert!(told.ends_with(r#""task": {"type": "ps", "index": 0}}"#), "{told}");
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
