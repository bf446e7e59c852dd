//! MPI under its own launchers, both families from Debian's packages. Missing launchers are failures, not skips:
//! `apt-get install openmpi-bin mpich` provides them.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    fs::File,
    io::Read,
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// With more ranks than cores MPICH takes its time.
const LIMIT: Duration = Duration::from_secs(300);

fn launcher(name: &str) -> Command {
    let mut command = Command::new(name);
    if name == "mpirun.openmpi" {
        // Tests may run as root in a container, with more ranks than cores.
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    } else {
        // MPICH keeps the core while it waits unless told otherwise.
        command.env("MPIR_CVAR_POLLS_BEFORE_YIELD", "1");
    }
    command
}

/// Ends a launcher that takes too long; asked to leave, it ends its ranks too.
fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a process id");
    let _ = kill_process(pid, Signal::TERM);
    let deadline = Instant::now() + Duration::from_secs(5);
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// How a rank starts for `what`. Layers need several hosts: here ranks 2 and up are given process namespaces of their
/// own, which is what makes a container another host.
fn rank(what: &str) -> Vec<&str> {
    const APART: &str = r#"[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" -lt 2 ] || set -- unshare --pid --fork --kill-child "$@"
        exec "$@""#;
    let program = [env!("CARGO_BIN_EXE_mpi-rank"), what];
    if what == "layered" { [&["sh", "-c", APART, "sh"], &program[..]].concat() } else { program.to_vec() }
}

/// Runs `ranks` ranks of the test program; their output and how the launcher ended.
fn run(name: &str, ranks: usize, what: &str) -> (ExitStatus, String) {
    let mut output = tempfile::NamedTempFile::new().unwrap();
    let sink = || Stdio::from(File::options().append(true).open(output.path()).unwrap());
    let mut launcher = launcher(name);
    if what == "layered" {
        // Both libraries take these hosts for one, by its name, and would look for shared memory by process ids that
        // mean something else there. MPICH's UCX gets the kind without: over TCP its MPI_Finalize hangs now and then.
        launcher.env("OMPI_MCA_pml", "ob1").env("OMPI_MCA_btl", "tcp,self").env("UCX_TLS", "sysv,self");
    }
    let mut child = launcher
        .args(["-n", &ranks.to_string()])
        .args(rank(what))
        .stdin(Stdio::null())
        .stdout(sink())
        .stderr(sink())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {name} ({error}); install Debian's openmpi-bin and mpich"));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if Instant::now() > deadline {
            end(&mut child);
            break None;
        }
        sleep(Duration::from_millis(20));
    };
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    match status {
        Some(status) => (status, text),
        None => panic!("{name} -n {ranks} {what} did not end within {LIMIT:?}:\n{text}"),
    }
}

fn check(name: &str, what: &str, sizes: &[usize], leaves_in_order: bool) {
    for &ranks in sizes {
        let (status, text) = run(name, ranks, what);
        for rank in 0..ranks {
            let fine = format!("rank {rank}: fine");
            assert!(text.contains(&fine), "rank {rank} of {ranks} under {name} is not fine ({status}):\n{text}");
        }
        assert!(status.success() || !leaves_in_order, "{name} -n {ranks} {what} ended with {status}:\n{text}");
    }
}

#[test]
fn openmpi_conforms() {
    check("mpirun.openmpi", "conformance", &[1, 2, 3, 4], true);
}

/// Not with more ranks, which only wait for each other's time slices; the operations below have them.
#[test]
fn mpich_conforms() {
    check("mpirun.mpich", "conformance", &[1, 2, 3], true);
}

#[test]
fn openmpi_does_all_operations() {
    check("mpirun.openmpi", "operations", &[1, 2, 3, 4], true);
}

#[test]
fn mpich_does_all_operations() {
    check("mpirun.mpich", "operations", &[1, 2, 3, 4], true);
}

#[test]
fn openmpi_names_the_rank_at_fault() {
    check("mpirun.openmpi", "faults", &[2, 3, 4], false);
}

#[test]
fn mpich_names_the_rank_at_fault() {
    check("mpirun.mpich", "faults", &[2, 3, 4], false);
}

#[test]
fn openmpi_ranks_of_one_host_share_memory() {
    check("mpirun.openmpi", "arena", &[3], true);
}

#[test]
fn mpich_ranks_of_one_host_share_memory() {
    check("mpirun.mpich", "arena", &[3], true);
}

#[test]
fn openmpi_joins_hosts_that_share_memory_inside() {
    check("mpirun.openmpi", "layered", &[4], true);
}

#[test]
fn mpich_joins_hosts_that_share_memory_inside() {
    check("mpirun.mpich", "layered", &[4], true);
}
