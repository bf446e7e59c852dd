//! MPI libraries: which are there, of which family, and whether they fit the launcher.

use sirtaki_comm::communicator::mpi::{Family, Found, find};

use super::{container, finding::Finding};

/// One line per library, and what is known of container and launcher.
pub(crate) fn examine() -> Vec<Finding> {
    let found = find(None);
    let families: Vec<Family> = found.iter().map(|library| library.family).collect();
    let mut findings: Vec<Finding> = found.iter().map(line).collect();
    if findings.is_empty() {
        let hint = "only needed to use a cluster's MPI; on Debian, openmpi-bin or mpich";
        findings.push(Finding::missing("MPI", "no library found", hint));
    }
    findings.extend(container::examine(&families));
    findings
}

fn line(library: &Found) -> Finding {
    // Open MPI adds packages and dates after a comma; MPICH puts a tab before the number.
    let version = library.version.split(',').next().unwrap_or_default().replace('\t', " ");
    Finding::ok("MPI", format!("{version}, {} ABI ({})", library.family.name(), library.path.display()))
}
