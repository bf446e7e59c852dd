//! The hosts that a scheduler has allocated, from the variables it sets in the environment of a job.

use std::path::Path;

use super::{
    hosts::{self, HostSlots, MOST},
    nodelist,
    outside::Outside,
};
use crate::Advice;

const HINT: &str =
    "the scheduler sets this variable; name hosts with -H, or run on this machine alone with --via local";

/// Which scheduler made the allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Scheduler {
    Slurm,
    Pbs,
    Lsf,
}

/// What a scheduler has allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allocation {
    /// Which scheduler made it.
    pub scheduler: Scheduler,
    /// Its number or name for the job.
    pub job: String,
    /// The hosts, in the scheduler's order.
    pub hosts: Vec<HostSlots>,
}

impl Allocation {
    /// The allocation this process is in, if any.
    pub fn find(outside: &Outside<'_>) -> Result<Option<Self>, Advice> {
        for (scheduler, variable) in
            [(Scheduler::Slurm, "SLURM_JOB_ID"), (Scheduler::Pbs, "PBS_JOBID"), (Scheduler::Lsf, "LSB_JOBID")]
        {
            if let Some(job) = outside.variable(variable) {
                let hosts = match scheduler {
                    Scheduler::Slurm => slurm(outside)?,
                    Scheduler::Pbs => pbs(outside)?,
                    Scheduler::Lsf => lsf(outside)?,
                };
                return Ok(Some(Self { scheduler, job, hosts }));
            }
        }
        Ok(None)
    }
}

/// Nodes, and how many tasks each may have; without that, its processors divided by those of a task.
fn slurm(outside: &Outside<'_>) -> Result<Vec<HostSlots>, Advice> {
    let (list, value) = first(outside, &["SLURM_JOB_NODELIST", "SLURM_NODELIST"])
        .ok_or_else(|| Advice::new("SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not", HINT))?;
    let nodes = nodelist::expand(&value).map_err(|why| bad(list, &value, &why))?;
    let slots = match first(outside, &["SLURM_TASKS_PER_NODE"]) {
        Some((name, value)) => per_node(name, &value, nodes.len())?,
        None => slots_by_processors(outside, nodes.len())?,
    };
    let hosts = nodes.into_iter().zip(slots).map(|(host, slots)| Ok(HostSlots { host, slots }));
    hosts::collect(hosts)
}

fn slots_by_processors(outside: &Outside<'_>, nodes: usize) -> Result<Vec<usize>, Advice> {
    let per_task = match outside.variable("SLURM_CPUS_PER_TASK") {
        Some(value) => hosts::number(&value).map_err(|why| bad("SLURM_CPUS_PER_TASK", &value, &why))?,
        None => 1,
    };
    let names: &[_] =
        if nodes == 1 { &["SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE"] } else { &["SLURM_JOB_CPUS_PER_NODE"] };
    match first(outside, names) {
        Some((name, value)) => {
            Ok(per_node(name, &value, nodes)?.iter().map(|count| (count / per_task).max(1)).collect())
        }
        None => Ok(vec![1; nodes]),
    }
}

fn per_node(name: &str, value: &str, nodes: usize) -> Result<Vec<usize>, Advice> {
    let counts = nodelist::counts(value).map_err(|why| bad(name, value, &why))?;
    if counts.len() == nodes {
        return Ok(counts);
    }
    Err(bad(name, value, &format!("it has {} nodes, and the list of nodes has {nodes}", counts.len())))
}

/// A file with one line per slot.
fn pbs(outside: &Outside<'_>) -> Result<Vec<HostSlots>, Advice> {
    let path = outside
        .variable("PBS_NODEFILE")
        .ok_or_else(|| Advice::new("PBS_JOBID is set, but PBS_NODEFILE is not", HINT))?;
    one_line_per_slot("PBS_NODEFILE", &path, outside)
}

/// Pairs of a host and its slots; in long lists, where they do not fit into a variable, a file with one line per slot.
fn lsf(outside: &Outside<'_>) -> Result<Vec<HostSlots>, Advice> {
    let name = "LSB_MCPU_HOSTS";
    let Some(value) = outside.variable(name) else {
        let path = outside.variable("LSB_DJOB_HOSTFILE").ok_or_else(|| {
            Advice::new(format!("LSB_JOBID is set, but neither {name} nor LSB_DJOB_HOSTFILE is"), HINT)
        })?;
        return one_line_per_slot("LSB_DJOB_HOSTFILE", &path, outside);
    };
    let words: Vec<_> = value.split_whitespace().collect();
    let pairs = words.chunks(2).map(|pair| match pair {
        [host, slots] => host_of(host, hosts::number(slots)?),
        _ => Err("hosts and numbers must alternate".into()),
    });
    hosts::collect(pairs).map_err(|why: String| bad(name, &value, &why))
}

fn one_line_per_slot(name: &str, path: &str, outside: &Outside<'_>) -> Result<Vec<HostSlots>, Advice> {
    let text = (outside.read)(Path::new(path)).map_err(|error| bad(name, path, &error.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let hosts = hosts::collect(lines.map(|host| host_of(host, 1))).map_err(|why| bad(name, path, &why))?;
    match hosts.len() {
        0 => Err(bad(name, path, "the file names no host")),
        count if count > MOST => Err(bad(name, path, &format!("the file names more than {MOST} hosts"))),
        _ => Ok(hosts),
    }
}

fn host_of(host: &str, slots: usize) -> Result<HostSlots, String> {
    if hosts::is_name(host) {
        Ok(HostSlots { host: host.into(), slots })
    } else {
        Err(format!("`{host}` is not the name of a host"))
    }
}

fn first(outside: &Outside<'_>, names: &[&'static str]) -> Option<(&'static str, String)> {
    names.iter().find_map(|&name| Some((name, outside.variable(name)?)))
}

fn bad(name: &str, value: &str, why: &str) -> Advice {
    Advice::new(format!("{name} is `{value}`: {why}"), HINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)], file: &str) -> Result<Option<Allocation>, Advice> {
        let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let read = |path: &Path| match path.to_str() {
            Some("/nodes") => Ok(file.to_owned()),
            _ => Err(std::io::ErrorKind::NotFound.into()),
        };
        Allocation::find(&Outside { get: &get, read: &read })
    }

    fn shown(variables: &[(&str, &str)], file: &str) -> String {
        let found = find(variables, file).unwrap().unwrap();
        let hosts: Vec<_> = found.hosts.iter().map(|host| format!("{}:{}", host.host, host.slots)).collect();
        format!("{:?} {} {}", found.scheduler, found.job, hosts.join(","))
    }

    fn message(variables: &[(&str, &str)]) -> String {
        find(variables, "").unwrap_err().message
    }

    const JOB: (&str, &str) = ("SLURM_JOB_ID", "7");
    const NODES: (&str, &str) = ("SLURM_JOB_NODELIST", "n[1-2],m");

    #[test]
    fn slurm_says_tasks_or_processors_or_nothing() {
        assert_eq!(shown(&[JOB, NODES, ("SLURM_TASKS_PER_NODE", "2(x2),1")], ""), "Slurm 7 n1:2,n2:2,m:1");
        let processors = ("SLURM_JOB_CPUS_PER_NODE", "8(x2),3");
        assert_eq!(shown(&[JOB, NODES, processors], ""), "Slurm 7 n1:8,n2:8,m:3");
        assert_eq!(shown(&[JOB, NODES, processors, ("SLURM_CPUS_PER_TASK", "4")], ""), "Slurm 7 n1:2,n2:2,m:1");
        assert_eq!(shown(&[JOB, NODES, ("SLURM_CPUS_ON_NODE", "8")], ""), "Slurm 7 n1:1,n2:1,m:1");
        let one = ("SLURM_JOB_NODELIST", "n1");
        assert_eq!(shown(&[JOB, one, ("SLURM_CPUS_ON_NODE", "8")], ""), "Slurm 7 n1:8");
    }

    #[test]
    fn pbs_and_lsf() {
        let pbs = [("PBS_JOBID", "7.server"), ("PBS_NODEFILE", "/nodes")];
        assert_eq!(shown(&pbs, "a\na\nb\na\n\n"), "Pbs 7.server a:3,b:1");
        assert_eq!(shown(&[("LSB_JOBID", "9"), ("LSB_MCPU_HOSTS", "a 4 b 2 ")], ""), "Lsf 9 a:4,b:2");
        assert_eq!(shown(&[("LSB_JOBID", "9"), ("LSB_DJOB_HOSTFILE", "/nodes")], "a\nb\nb\n"), "Lsf 9 a:1,b:2");
    }

    #[test]
    fn without_a_job_there_is_no_allocation() {
        assert_eq!(find(&[NODES, ("SLURM_JOB_ID", "")], "").unwrap(), None);
    }

    #[test]
    fn mistakes_name_the_variable() {
        assert_eq!(message(&[JOB]), "SLURM_JOB_ID is set, but SLURM_JOB_NODELIST is not");
        let huge = ("SLURM_JOB_NODELIST", "n[1-1000000000]");
        assert_eq!(message(&[JOB, huge]), "SLURM_JOB_NODELIST is `n[1-1000000000]`: more than 65536 nodes");
        let short = ("SLURM_TASKS_PER_NODE", "2");
        assert_eq!(
            message(&[JOB, NODES, short]),
            "SLURM_TASKS_PER_NODE is `2`: it has 1 nodes, and the list of nodes has 3"
        );
        assert_eq!(message(&[("PBS_JOBID", "1")]), "PBS_JOBID is set, but PBS_NODEFILE is not");
        assert!(message(&[("PBS_JOBID", "1"), ("PBS_NODEFILE", "/gone")]).starts_with("PBS_NODEFILE is `/gone`: "));
        assert!(message(&[("PBS_JOBID", "1"), ("PBS_NODEFILE", "/nodes")]).ends_with("the file names no host"));
        assert!(message(&[("LSB_JOBID", "1")]).contains("LSB_MCPU_HOSTS"));
        assert!(message(&[("LSB_JOBID", "1"), ("LSB_MCPU_HOSTS", "a 4 b")]).contains("must alternate"));
        assert!(message(&[("LSB_JOBID", "1"), ("LSB_MCPU_HOSTS", "-x 4")]).contains("`-x` is not the name of a host"));
    }
}
