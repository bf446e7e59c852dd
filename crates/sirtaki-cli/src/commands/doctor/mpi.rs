//! MPI libraries: which are there, and of which family.

use sirtaki_comm::communicator::mpi::find;

use super::finding::Finding;

/// One line per library.
pub(crate) fn examine() -> Vec<Finding> {
    let found: Vec<Finding> = find(None)
        .into_iter()
        .map(|library| {
            // Open MPI adds packages and dates after a comma; MPICH puts a tab before the number.
            let version = library.version.split(',').next().unwrap_or_default().replace('\t', " ");
            Finding::ok("MPI", format!("{version}, {} ABI ({})", library.family.name(), library.path.display()))
        })
        .collect();
    if found.is_empty() {
        let hint = "only needed to use a cluster's MPI; on Debian, openmpi-bin or mpich";
        return vec![Finding::missing("MPI", "no library found", hint)];
    }
    found
}
