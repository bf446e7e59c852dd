//! MPI libraries: which are there, and of which family.

use sirtaki_comm::communicator::mpi::find;

use super::finding::Finding;

/// One line per library.
pub(crate) fn examine() -> Vec<Finding> {
    let found: Vec<Finding> = find(None)
        .into_iter()
        .map(|library| {
            Finding::ok(
                "MPI",
                format!("{} ABI: {} ({})", library.family.name(), library.version, library.path.display()),
            )
        })
        .collect();
    if found.is_empty() {
        let hint = "only needed to use a cluster's MPI; on Debian, openmpi-bin or mpich";
        return vec![Finding::missing("MPI", "no library found", hint)];
    }
    found
}
