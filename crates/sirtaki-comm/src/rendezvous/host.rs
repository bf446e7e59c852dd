//! What this process tells the others about itself.

use std::{fs, os::unix::fs::MetadataExt};

use crate::{CommError, Member, Rank, group::this_threads_cores};

/// This process as a member of the job.
///
/// Its `host_id` is the same for two processes exactly when both run under the same boot of the same machine, in the
/// same network, process and user namespaces (containers on one machine are different hosts), and as the same user: then
/// they reach each other over loopback and can open each other's memory.
pub fn this_member(world_rank: Rank) -> Result<Member, CommError> {
    let boot = "/proc/sys/kernel/random/boot_id";
    let boot = fs::read_to_string(boot).map_err(|error| CommError::io(format!("cannot read {boot}"), error))?;
    let user = rustix::process::geteuid().as_raw();
    Ok(Member {
        world_rank,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        host_id: format!("{}/{}/{}/{}/{user}", boot.trim(), namespace("net")?, namespace("pid")?, namespace("user")?),
        pid: std::process::id(),
        cores: this_threads_cores(),
    })
}

/// The number of one of this process's namespaces.
fn namespace(kind: &str) -> Result<u64, CommError> {
    let path = format!("/proc/self/ns/{kind}");
    let metadata = fs::metadata(&path).map_err(|error| CommError::io(format!("cannot look at {path}"), error))?;
    Ok(metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::this_member;

    #[test]
    fn ranks_of_one_process_share_a_host() {
        let (a, b) = (this_member(0).unwrap(), this_member(1).unwrap());
        assert_eq!(a.host_id, b.host_id);
        assert_eq!(a.pid, std::process::id());
        assert!(!a.host.is_empty());
        assert_eq!(a.host_id.split('/').count(), 5);
        assert!(a.host_id.split('/').all(|part| !part.is_empty()));
        let user_namespace = super::namespace("user").unwrap().to_string();
        assert!(a.host_id.split('/').any(|part| part == user_namespace), "{}", a.host_id);
    }
}
