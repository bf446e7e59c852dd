//! `srun`: one process per task of a job step.
//!
//! Whether the step has a PMI of some kind depends on the cluster, as does whether there is an MPI that speaks it. A
//! folder that all nodes see is on every cluster: the user's home.

use super::{
    super::{JobError, Lookup, Place, Position, parse::text},
    in_folder, number, position,
};

const RANK: &str = "SLURM_PROCID";
/// The tasks: of the allocation in batch scripts, of the step below `srun`.
const TASKS: &str = "SLURM_NTASKS";
const STEP_TASKS: &str = "SLURM_STEP_NUM_TASKS";
const NODES: &str = "SLURM_STEP_NUM_NODES";
const TASKS_PER_NODE: &str = "SLURM_STEP_TASKS_PER_NODE";

/// The place of a task. Outside a step (for example in a batch script) there is none, whatever else is set.
pub(crate) fn by_slurm(get: Lookup<'_>) -> Result<Option<Place>, JobError> {
    let Some(step) = text(get, "SLURM_STEP_ID") else { return Ok(None) };
    let tasks = if text(get, STEP_TASKS).is_some() { STEP_TASKS } else { TASKS };
    let Some(world) = position(get, (RANK, tasks), None)? else { return Ok(None) };
    let cross = match text(get, NODES) {
        Some(_) => position(get, ("SLURM_NODEID", NODES), Some((tasks, world.size)))?,
        None => None,
    };
    let local = match cross {
        Some(node) => local(get, node, (tasks, world.size))?,
        None => None,
    };
    let part = |name: &str| text(get, name).unwrap_or_default();
    let restarts = number::<u64>(get, "SLURM_RESTART_COUNT")?.unwrap_or(0);
    let key = format!("{:?}", ("slurm", part("SLURM_CLUSTER_NAME"), part("SLURM_JOB_ID"), step, restarts));
    in_folder(get, world, local, cross, (key, false)).map(Some)
}

/// The task's number on its node. Slurm has no variable for the number of tasks there, but a list for all nodes.
fn local(get: Lookup<'_>, node: Position, (tasks, size): (&str, usize)) -> Result<Option<Position>, JobError> {
    const LOCAL_RANK: &str = "SLURM_LOCALID";
    let (Some(rank), Some(list)) = (number::<usize>(get, LOCAL_RANK)?, text(get, TASKS_PER_NODE)) else {
        return Ok(None);
    };
    let Some(here) = tasks_of_node(&list, node.rank).filter(|here| (1..=size).contains(here)) else {
        let allowed = format!(
            "such as 4(x2),1 for two nodes with 4 tasks and one with 1, with an entry for node {}, at most {size}, \
             which is {tasks}",
            node.rank
        );
        return Err(JobError::Bad { name: TASKS_PER_NODE, value: list, allowed });
    };
    if rank >= here {
        let allowed = format!("below {here}, which {TASKS_PER_NODE} has for node {}", node.rank);
        return Err(JobError::Bad { name: LOCAL_RANK, value: rank.to_string(), allowed });
    }
    Ok(Some(Position { rank, size: here }))
}

/// The entry of a node in a list such as `4(x2),1`.
fn tasks_of_node(list: &str, node: usize) -> Option<usize> {
    let mut left = node;
    for part in list.split(',') {
        let (tasks, nodes) = match part.split_once("(x") {
            Some((tasks, nodes)) => (tasks, nodes.strip_suffix(')')?.parse().ok()?),
            None => (part, 1),
        };
        if left < nodes {
            return tasks.parse().ok();
        }
        left -= nodes;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::tasks_of_node;

    #[test]
    fn lists_of_tasks_are_read() {
        let all = |list: &str| (0..5).map(|node| tasks_of_node(list, node)).collect::<Vec<_>>();
        assert_eq!(all("2(x3),1"), [Some(2), Some(2), Some(2), Some(1), None]);
        assert_eq!(all("4"), [Some(4), None, None, None, None]);
        assert_eq!(all("1,3(x2"), [Some(1), None, None, None, None]);
        assert_eq!(tasks_of_node("9(x18446744073709551615)", 3), Some(9));
        assert_eq!((tasks_of_node("", 0), tasks_of_node("x", 0), tasks_of_node("-1", 0)), (None, None, None));
    }
}
