//! `sirtaki run` on this machine: what ranks get, what people see, and how jobs end.

use std::{fs, process::Command};

use rustix::process::{Signal, kill_process};
use sirtaki_tests::{
    launch::{Finished, Launch},
    wait::until,
};

fn sirtaki() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki-under-test"));
    // What the tests themselves run under must not count.
    for name in ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "OMP_NUM_THREADS", "SIRTAKI_RUN_CONFIG"] {
        command.env_remove(name);
    }
    command
}

fn start(arguments: &[&str], script: &str) -> Launch {
    let mut command = sirtaki();
    command.arg("run").args(arguments).args(["--", "sh", "-c", script]);
    Launch::start(command)
}

fn run(arguments: &[&str], script: &str) -> Finished {
    start(arguments, script).ends()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn every_rank_knows_its_place_by_all_names() {
    let script = "echo $SIRTAKI_RANK $SIRTAKI_SIZE $RANK $WORLD_SIZE $LOCAL_RANK $HOROVOD_RANK $HOROVOD_SIZE \
                  $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $MASTER_ADDR ${#SIRTAKI_SECRET} $TEST_GIVEN";
    let done = run(&["-n", "3", "--env", "TEST_GIVEN=yes"], script);
    assert_eq!(done.code, 0, "{}", done.message());
    let expected: Vec<String> =
        (0..3).map(|rank| format!("[{rank}] {rank} 3 {rank} 3 {rank} {rank} 3 {rank} 3 127.0.0.1 64 yes")).collect();
    assert_eq!(sorted(done.out), expected);
}

#[test]
fn the_secret_is_in_no_argument_and_in_no_message() {
    let launch = start(&["-n", "2", "--verbose"], "echo got $SIRTAKI_SECRET; sleep 2");
    let secret = launch.prints("got", 2)[0].split_whitespace().last().unwrap().to_owned();
    for (pid, line) in launch.processes() {
        assert!(!line.contains(&secret), "{pid:?} {line}");
    }
    let done = launch.ends();
    assert!(!done.message().contains(&secret));
}

#[test]
fn cores_are_divided_and_threads_follow() {
    let done = run(&["-n", "2"], "echo $OMP_NUM_THREADS $(nproc)");
    for line in &done.out {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], words[2], "{line}");
    }
    let done = run(&["-n", "2", "--cores", "none"], "echo ${OMP_NUM_THREADS:-unset}");
    assert_eq!(sorted(done.out), ["[0] unset", "[1] unset"]);
}

#[test]
fn the_first_failure_gives_the_code_and_the_others_end() {
    let script = "if [ $RANK = 1 ]; then echo about to fail >&2; exit 7; fi; exec sleep 1000";
    let done = run(&["-n", "3", "--grace", "5"], script);
    assert_eq!(done.code, 7, "{}", done.message());
    let text = done.message();
    assert!(text.contains("rank 1") && text.contains("exit code 7") && text.contains("about to fail"), "{text}");
}

#[test]
fn a_killed_rank_is_named_with_its_signal() {
    let launch = start(&["-n", "2", "--grace", "5"], "echo pid $$; exec sleep 1000");
    let lines = launch.prints("pid", 2);
    let line = lines.iter().find(|line| line.starts_with("[1]")).unwrap();
    let pid = line.split_whitespace().last().unwrap().parse().unwrap();
    kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    let done = launch.ends();
    assert_eq!(done.code, 137, "{}", done.message());
    assert!(done.message().contains("rank 1") && done.message().contains("SIGKILL"), "{}", done.message());
}

#[test]
fn a_job_that_is_interrupted_ends_politely() {
    for (signal, code, trapped) in [(Signal::INT, 130, "INT"), (Signal::TERM, 143, "TERM"), (Signal::QUIT, 131, "TERM")]
    {
        let script = "trap 'echo got INT; exit 0' INT; trap 'echo got TERM; exit 0' TERM; echo ready; \
                      while true; do sleep 0.05; done";
        let launch = start(&["-n", "2"], script);
        launch.prints("ready", 2);
        launch.signal(signal);
        let done = launch.ends();
        assert_eq!(done.code, code, "{}", done.message());
        let polite = done.out.iter().filter(|line| line.ends_with(&format!("got {trapped}"))).count();
        assert_eq!(polite, 2, "{done:?}");
    }
}

#[test]
fn a_warning_signal_reaches_every_rank_and_the_job_goes_on() {
    let script = "trap 'echo saving; exit 0' USR1; echo ready; while true; do sleep 0.05; done";
    let launch = start(&["-n", "2"], script);
    launch.prints("ready", 2);
    launch.signal(Signal::USR1);
    let done = launch.ends();
    assert_eq!(done.code, 0, "{}", done.message());
    assert_eq!(sorted(done.out)[2..], ["[1] ready", "[1] saving"]);
}

#[test]
fn a_process_that_ignores_signals_is_killed_after_the_grace_time() {
    let launch = start(&["-n", "2", "--grace", "0.5"], "trap '' INT TERM; echo ready; while true; do sleep 0.05; done");
    launch.prints("ready", 2);
    launch.signal(Signal::TERM);
    assert_eq!(launch.ends().code, 143);
}

/// A rank that starts processes which detach themselves in every way.
const FAMILY: &str = "sleep 1000 & (setsid sleep 1000 &) ; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000 & wait' &) ; \
                      echo ready; wait";

#[test]
fn nothing_survives_the_launchers_end_however_it_ends() {
    for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let launch = start(&["-n", "2", "--grace", "0.5"], FAMILY);
        launch.prints("ready", 2);
        assert!(launch.processes().len() > 6, "{:?}", launch.processes());
        launch.signal(signal);
        launch.vanishes();
    }
}

#[test]
fn nothing_survives_the_end_of_an_agent() {
    let launch = start(&["-n", "2", "--grace", "0.5"], FAMILY);
    launch.prints("ready", 2);
    kill_process(launch.agents()[0], Signal::KILL).unwrap();
    let done = launch.ends();
    assert_ne!(done.code, 0, "{}", done.message());
}

#[test]
fn nothing_survives_the_end_of_launcher_and_agent_at_once() {
    let launch = start(&["-n", "2", "--grace", "0.5"], FAMILY);
    launch.prints("ready", 2);
    for pid in [launch.pid(), launch.agents()[0]] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    launch.vanishes();
}

#[test]
fn nothing_survives_an_agent_that_is_killed_while_it_waits_for_what_ranks_left_behind() {
    let launch = start(&["-n", "2", "--grace", "600"], FAMILY);
    launch.prints("ready", 2);
    let agent = launch.agents()[0];
    kill_process(launch.pid(), Signal::KILL).unwrap();
    until("the ranks' end", || !launch.processes().iter().any(|(_, line)| line.contains("echo ready")));
    assert!(!launch.processes().is_empty());
    kill_process(agent, Signal::KILL).unwrap();
    launch.vanishes();
}

#[test]
fn what_ranks_leave_behind_ends_with_a_job_that_succeeds() {
    let done =
        run(&["-n", "2", "--grace", "0.5"], "(setsid sleep 1000 &); (setsid sleep 1000 >/dev/null 2>&1 &); echo bye");
    assert_eq!((done.code, sorted(done.out)), (0, vec!["[0] bye".to_string(), "[1] bye".to_string()]));
}

#[test]
fn a_stopped_rank_is_ended_too() {
    let launch = start(&["-n", "2", "--grace", "0.5"], "echo ready; kill -STOP $$; echo never");
    launch.prints("ready", 2);
    launch.signal(Signal::TERM);
    assert_eq!(launch.ends().code, 143);
}

#[test]
fn output_is_prefixed_quiet_plain_or_in_files() {
    let script = "printf 'one\\ntwo'; echo oops >&2";
    let done = run(&["-n", "2"], script);
    assert_eq!(sorted(done.out), ["[0] one", "[0] two", "[1] one", "[1] two"]);
    assert_eq!(sorted(done.err), ["[0] oops", "[1] oops"]);
    let done = run(&["-n", "1", "--tag-output", "none"], script);
    assert_eq!((done.out, done.err), (vec!["one".to_string(), "two".into()], vec!["oops".to_string()]));
    let done = run(&["-n", "2", "--quiet"], script);
    assert_eq!((done.out.len(), sorted(done.err)), (0, vec!["[0] oops".to_string(), "[1] oops".into()]));
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("logs");
    let done = run(&["-n", "2", "--output", place.to_str().unwrap()], script);
    assert_eq!(done.code, 0, "{}", done.message());
    let mut bytes = fs::read_to_string(place.join("rank-1.log")).unwrap();
    bytes = bytes.replace("oops\n", "");
    assert_eq!(bytes, "one\ntwo");
}

#[test]
fn verbose_tells_where_ranks_run_and_how_they_end() {
    let done = run(&["-n", "2", "--verbose"], "echo pid $$");
    let pids: Vec<&str> = done.out.iter().filter_map(|line| line.split(' ').next_back()).collect();
    let text = done.message();
    assert!(pids.len() == 2 && pids.iter().all(|pid| text.contains(&format!("as process {pid}"))), "{text}");
    assert!(text.contains("rank 1 ended") && text.contains("2 ranks on 1 host finished in "), "{text}");
}

#[test]
fn mistakes_are_one_line_and_a_hint() {
    let mistakes: [(&[&str], &str); 5] = [
        (&["run", "-n", "2", "--", "no-such-program"], "no-such-program"),
        (&["run", "-n", "2"], "no program"),
        (&["run", "--workdir", "/no/such/folder", "--", "true"], "/no/such/folder"),
        (&["run", "-H", "a:2", "-n", "3", "--", "true"], "3"),
        (&["run", "--config", "/no/such/job.toml", "--", "true"], "/no/such/job.toml"),
    ];
    for (arguments, named) in mistakes {
        let mut command = sirtaki();
        command.args(arguments);
        let done = Launch::start(command).ends();
        let text = done.message();
        assert_ne!(done.code, 0, "{arguments:?}");
        assert!(text.contains(named) && text.contains("hint:") && done.err.len() == 2, "{arguments:?}: {text}");
    }
}

#[test]
fn many_jobs_at_once_never_clash() {
    let start = || {
        let mut command = sirtaki();
        command.args(["run", "-n", "2", "--", env!("CARGO_BIN_EXE_join-rank")]);
        Launch::start(command)
    };
    let said = |rank| format!("[{rank}] rank {rank} of 2, local {rank} of 2, host 0 of 1, [3.0] over arena");
    for _ in 0..100 {
        for job in [start(), start()] {
            let done = job.ends();
            assert_eq!(done.code, 0, "{}", done.message());
            assert_eq!(sorted(done.out), [said(0), said(1)]);
        }
    }
}

#[test]
fn many_ranks_start_and_end() {
    let mut command = sirtaki();
    command.args(["run", "-n", "64", "--", "true"]);
    let done = Launch::start(command).ends();
    assert_eq!((done.code, done.out.len()), (0, 0), "{}", done.message());
}

#[test]
fn a_job_that_fails_is_started_again_as_often_as_it_may_be() {
    let script = "echo $SIRTAKI_RANK restarted $SIRTAKI_RESTART, $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS; \
                  exit $(($SIRTAKI_RESTART < 2 ? 3 * $SIRTAKI_RANK : 0))";
    let done = run(&["-n", "2", "--restarts", "2"], script);
    assert_eq!(done.code, 0, "{}", done.message());
    let expected: Vec<String> =
        (0..2).flat_map(|rank| (0..3).map(move |n| format!("[{rank}] {rank} restarted {n}, {n} of 2"))).collect();
    assert_eq!(sorted(done.out), expected);
    for restart in ["rank 1 ended with exit code 3 after", "(restart 1 of 2)", "(restart 2 of 2)"] {
        assert!(done.err.iter().any(|line| line.contains(restart)), "{restart}: {:?}", done.err);
    }
    let failed = run(&["-n", "2", "--max-restarts", "1"], script);
    assert_eq!((failed.code, failed.out.len()), (3, 4), "{}", failed.message());
    assert!(failed.message().contains("error: rank 1 ended with exit code 3"), "{}", failed.message());
}

#[test]
fn a_job_that_is_interrupted_is_not_started_again() {
    let launch = start(&["-n", "1", "--restarts", "5"], "echo here; sleep 1000");
    launch.prints("here", 1);
    launch.signal(Signal::TERM);
    let done = launch.ends();
    assert_eq!((done.code, done.out.len()), (143, 1), "{}", done.message());
}

/// Workers wait until a file is there; servers stay until they are asked to end.
const ROLES: &str = "case $SIRTAKI_ROLE in \
    worker) until [ -e \"$0\" ]; do sleep 0.05; done; echo rank $SIRTAKI_RANK of $SIRTAKI_SIZE with $SIRTAKI_SERVERS;; \
    *) trap 'echo asked; exit 3' TERM; echo $SIRTAKI_ROLE $SIRTAKI_SERVER of $SIRTAKI_SERVERS rank ${SIRTAKI_RANK:-no} \
       life ${SIRTAKI_RETURNED:-0} pid $$; while :; do sleep 0.05; done;; esac";

fn with_roles(options: &[&str], gate: &std::path::Path) -> Launch {
    let mut command = sirtaki();
    command.arg("run").args(options).args(["--", "sh", "-c", ROLES]).arg(gate);
    Launch::start(command)
}

fn pid_in(line: &str) -> rustix::process::Pid {
    let number = line.rsplit(' ').next().and_then(|word| word.parse().ok());
    number.and_then(rustix::process::Pid::from_raw).expect("the line ends with a process's number")
}

#[test]
fn servers_are_no_ranks_return_when_they_die_and_end_after_the_workers() {
    let folder = tempfile::tempdir().unwrap();
    let launch = with_roles(&["-n", "2", "--servers", "2"], &folder.path().join("gate"));
    let servers = launch.prints("life 0", 2);
    assert!(servers.iter().any(|line| line.starts_with("[s1] server 1 of 2 rank no ")), "{servers:?}");
    kill_process(pid_in(&servers[0]), Signal::KILL).unwrap();
    launch.prints("life 1", 1);
    fs::write(folder.path().join("gate"), "").unwrap();
    let done = launch.ends();
    assert_eq!(done.code, 0, "{}", done.message());
    let of_workers: Vec<String> = done.out.iter().filter(|line| line.contains("] rank ")).cloned().collect();
    assert_eq!(sorted(of_workers), ["[ 0] rank 0 of 2 with 2", "[ 1] rank 1 of 2 with 2"]);
    assert_eq!(done.out.iter().filter(|line| line.ends_with("] asked")).count(), 2, "{:?}", done.out);
    assert!(done.message().contains("is started again (return 1 of 3)"), "{}", done.message());
}

#[test]
fn a_server_that_may_not_return_ends_the_job_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let options = ["-n", "1", "--servers", "1", "--server-restarts", "0", "--grace", "5"];
    let launch = with_roles(&options, &folder.path().join("gate"));
    kill_process(pid_in(&launch.prints("server 0", 1)[0]), Signal::KILL).unwrap();
    let done = launch.ends();
    assert_eq!(done.code, 137, "{}", done.message());
    assert!(done.message().contains("error: server 0 was killed by SIGKILL"), "{}", done.message());
}

#[test]
fn a_job_ends_with_its_coordinator() {
    let script =
        "echo $SIRTAKI_ROLE; [ $SIRTAKI_ROLE = coordinator ] && echo \"$TF_CONFIG\" && exit 0; exec sleep 1000";
    let done = run(&["-n", "1", "--servers", "1", "--coordinator"], script);
    assert_eq!(done.code, 0, "{}", done.message());
    let told = done.out.iter().find(|line| line.starts_with("[ c] {")).unwrap();
    assert!(told.contains("\"ps\": [\"127.0.0.1:") && told.contains("\"type\": \"chief\", \"index\": 0"), "{told}");
}
