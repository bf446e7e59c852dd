use super::*;
use crate::hosts;

const SLURM: &[(&str, &str)] =
    &[("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-2]"), ("SLURM_TASKS_PER_NODE", "2(x2)")];

/// A job by the options of `sirtaki run`.
fn spec(line: &str) -> JobSpec {
    let mut spec = JobSpec::new(["program"]);
    let mut words = line.split_whitespace();
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        match option {
            "-n" => spec.ranks = value.parse().ok(),
            "-H" => spec.hosts = Some(hosts::parse_list(value).unwrap()),
            "--via" => spec.via = Via::named(value).unwrap(),
            "--remote-sirtaki" => spec.remote_sirtaki = Some(value.into()),
            "--ssh-port" => spec.ssh.port = value.parse().ok(),
            "--ssh-identity" => spec.ssh.identity = Some(value.into()),
            "--ssh-option" => spec.ssh.options.push(value.into()),
            other => panic!("{other}"),
        }
    }
    spec
}

fn find(line: &str, variables: &[(&str, &str)]) -> Result<Placement, Advice> {
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let outside = Outside { get: &get, read: &|_| Err(std::io::ErrorKind::NotFound.into()) };
    Placement::find(&spec(line), &outside, "me")
}

fn shown(line: &str, variables: &[(&str, &str)]) -> String {
    let placement = find(line, variables).unwrap();
    let hosts = placement.plan.hosts.iter().zip(&placement.starts);
    hosts.map(|(host, start)| format!("{start:?} {} {:?}", host.host, host.ranks)).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_user_comes_before_the_scheduler_and_that_before_here() {
    assert_eq!(shown("", &[]), "Here me 0..1");
    assert_eq!(shown("-n 3", &[]), "Here me 0..3");
    assert_eq!(shown("-H a:2,b:1", &[]), "Ssh a 0..2, Ssh b 2..3");
    assert_eq!(shown("", SLURM), "Slurm n1 0..2, Slurm n2 2..4");
    assert_eq!(shown("-n 3", SLURM), "Slurm n1 0..2, Slurm n2 2..3");
    assert_eq!(shown("-H n2:1", SLURM), "Slurm n2 0..1");
    assert_eq!(shown("-H other:1", SLURM), "Ssh other 0..1");
    assert_eq!(shown("--via local -n 2", SLURM), "Here me 0..2");
    assert_eq!(shown("--via ssh -H n1", SLURM), "Ssh n1 0..1");
}

#[test]
fn this_machine_is_reached_without_ssh_unless_that_is_wanted() {
    assert_eq!(shown("-H me:2,b:1", &[]), "Here me 0..2, Ssh b 2..3");
    assert_eq!(shown("-H localhost:2", &[]), "Here localhost 0..2");
    assert_eq!(shown("-H localhost:2 --via ssh", &[]), "Ssh localhost 0..2");
    assert_eq!(shown("-H user@me:2", &[]), "Ssh user@me 0..2");
    assert_eq!(shown("-H me:2 --via local", &[]), "Here me 0..2");
}

#[test]
fn impossible_placements_are_refused_with_a_hint() {
    let message = |line, variables| find(line, variables).unwrap_err().message;
    assert_eq!(message("--via slurm", &[]), "this is not a job of Slurm: SLURM_JOB_ID is not set");
    assert_eq!(message("--via pbs", SLURM), "this is not a job of PBS: PBS_JOBID is not set");
    assert_eq!(message("--via ssh", &[]), "--via ssh needs hosts");
    assert_eq!(message("--via local -H b:2", &[]), "--via local cannot start ranks on b");
    assert!(message("-n 5", SLURM).contains("room for 4"));
}

#[test]
fn commands_of_all_kinds() {
    let command = |start: Start, line: &str| start.command("b", &spec(line), "/opt/a b/sirtaki").join(" ");
    assert_eq!(command(Start::Here, "--remote-sirtaki /x"), "/opt/a b/sirtaki agent");
    assert_eq!(
        command(Start::Ssh, "--ssh-port 2222 --ssh-identity key --ssh-option ProxyJump=gate"),
        "ssh -T -p 2222 -i key -oProxyJump=gate -oBatchMode=yes -oConnectTimeout=60 -oServerAliveInterval=5 \
         -oServerAliveCountMax=3 -oForwardAgent=no -oForwardX11=no -oClearAllForwardings=yes -- b '/opt/a b/sirtaki' agent"
    );
    assert_eq!(command(Start::Pbs, "--remote-sirtaki /x/sirtaki"), "pbs_tmrsh b /x/sirtaki agent");
    assert_eq!(command(Start::Lsf, ""), "blaunch b /opt/a b/sirtaki agent");
    assert_eq!(
        command(Start::Slurm, ""),
        "srun --nodes=1 --ntasks=1 --nodelist=b --overlap --cpu-bind=none --mpi=none /opt/a b/sirtaki agent"
    );
}

#[test]
fn a_shell_reads_quoted_words_as_they_were() {
    for word in ["plain", "", "two words", "it's", "$HOME", "a\"b", "*", "ü"] {
        let output =
            std::process::Command::new("sh").args(["-c", &format!("printf %s {}", quote(word))]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
    }
}

#[test]
fn words_survive_a_shell() {
    assert_eq!([quote("--lr=0.1"), quote("a b"), quote("it's"), quote("")], ["--lr=0.1", "'a b'", r"'it'\''s'", "''"]);
}
