use std::{io, num::NonZeroUsize, path::Path};

use super::*;
use crate::args::{Arguments, Command};

/// Resolves a command line with one variable set and one file there.
fn resolve(line: &str, variables: &[(&str, &str)], file: &str) -> Result<Options, Advice> {
    let arguments: Arguments = clap::Parser::try_parse_from(format!("sirtaki run {line}").split(' ')).unwrap();
    let Command::Run(run) = arguments.command else { panic!("not `run`") };
    let get = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let read = |path: &Path| match path.to_str() {
        Some("file") => Ok(file.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    Options::resolve(*run, &Outside { get: &get, read: &read })
}

#[test]
fn what_is_typed_wins_over_the_environment_over_the_file_over_the_default() {
    let file = "timeout = 3\nprogram = ['x']";
    let variables = [("SIRTAKI_TIMEOUT", "2")];
    let seconds = |line, variables: &[_], file| resolve(line, variables, file).unwrap().job.timeout.as_secs();
    assert_eq!(seconds("--timeout 1 --config file", &variables, file), 1);
    assert_eq!(seconds("--config file", &variables, file), 2);
    assert_eq!(seconds("--config file", &[], file), 3);
    assert_eq!(seconds("x", &[], ""), 60);
}

#[test]
fn switches_can_be_turned_off_again() {
    let on = "tls = true\noversubscribe = true\nquiet = true\nprogram = ['x']";
    let options = resolve("--config file", &[], on).unwrap();
    assert!(options.job.tls && options.job.oversubscribe && options.detail == Detail::Quiet);
    let options = resolve("--config file --tls=no --oversubscribe=false -v", &[], on).unwrap();
    assert!(!options.job.tls && !options.job.oversubscribe && options.detail == Detail::Verbose);
}

#[test]
fn hosts_are_one_question() {
    let by_file = resolve("--hostfile file x", &[], "a slots=2\n").unwrap().job.hosts.unwrap();
    assert_eq!((by_file[0].host.as_str(), by_file[0].slots), ("a", 2));
    let typed = resolve("-H b:3 x", &[("SIRTAKI_RUN_HOSTFILE", "file")], "a slots=2\n").unwrap().job.hosts.unwrap();
    assert_eq!((typed[0].host.as_str(), typed[0].slots), ("b", 3));
    let advice = resolve("--hostfile nowhere x", &[], "").unwrap_err();
    assert!(advice.message.starts_with("cannot read nowhere: ") && advice.hint.contains("--hostfile"));
}

#[test]
fn variables_and_ssh_options_are_collected() {
    let file = "ssh-option = ['A=2', 'B=1']\nprogram = ['x']\nenv = { N = '2', M = '1' }";
    let options = resolve("--config file --env N=1 --ssh-option A=1", &[], file).unwrap();
    assert_eq!(options.job.ssh.options, ["A=1", "A=2", "B=1"]);
    let wishes: Vec<_> =
        options.job.env.iter().map(|wish| format!("{}={}", wish.name, wish.value.as_deref().unwrap())).collect();
    assert_eq!(wishes, ["N=1", "M=1"]);
}

#[test]
fn a_variable_without_a_value_must_be_set_here() {
    assert_eq!(resolve("--env HERE x", &[("HERE", "1")], "").unwrap().job.env[0].value, None);
    let advice = resolve("--env NOT_HERE x", &[], "").unwrap_err();
    assert_eq!(advice.message, "--env NOT_HERE: this variable is not set here");
}

#[test]
fn what_is_ours_cannot_be_set_and_is_not_repeated() {
    for (line, file) in
        [("--env SIRTAKI_SECRET=hunter2 x", ""), ("--config file x", "env = { SIRTAKI_SECRET = 'hunter2' }")]
    {
        let advice = resolve(line, &[], file).unwrap_err();
        assert_eq!(advice.message, "the variable SIRTAKI_SECRET is set by sirtaki itself");
        assert!(!advice.hint.contains("hunter2"));
    }
}

#[test]
fn the_program_may_come_with_or_without_dashes_and_keeps_its_own_options() {
    for line in ["-n 2 -- python t.py -n 3 --tls", "-n 2 python t.py -n 3 --tls"] {
        let options = resolve(line, &[], "").unwrap();
        assert_eq!(options.job.program, ["python", "t.py", "-n", "3", "--tls"], "{line}");
        assert_eq!((options.job.ranks, options.job.tls), (NonZeroUsize::new(2), false));
    }
    assert_eq!(resolve("-n 2", &[], "").unwrap_err().message, "no program was given");
}

#[test]
fn a_script_sees_all_gpus_and_a_program_its_own() {
    let divides = |line: &str| resolve(line, &[], "").unwrap().job.divide_gpus;
    assert!(divides("./program") && !divides("python t.py"));
    assert!(divides("--gpus own python t.py") && !divides("--gpus none ./program"));
}

#[test]
fn progress_is_quiet_with_everything_else_and_a_page_may_have_a_port() {
    let shows = |line: &str| resolve(line, &[], "").unwrap().shows_progress();
    assert!(shows("x") && shows("--progress lines -q x") && !shows("-q x") && !shows("--progress off x"));
    let page = |line: &str, file| resolve(line, &[("SIRTAKI_RUN_DASHBOARD", "8080")], file).unwrap().dashboard;
    assert_eq!(page("x", ""), Some(Some(8080)));
    assert_eq!((page("--dashboard x", ""), page("--dashboard=no x", "")), (Some(None), None));
    let by_file = resolve("--config file", &[], "dashboard = 9000\nprogram = ['x']").unwrap();
    assert_eq!(by_file.dashboard, Some(Some(9000)));
    let advice = resolve("--config file", &[], "dashboard = 70000\nprogram = ['x']").unwrap_err();
    assert!(advice.message.contains("must be a port from 2 to 65535, yes or no"), "{}", advice.message);
}

#[test]
fn a_folder_for_tensorboard_is_the_same_one_for_all_ranks() {
    let told = |line: &str| {
        let wishes = resolve(line, &[], "").unwrap().job.env;
        wishes.into_iter().find(|wish| wish.name == env::TENSORBOARD).and_then(|wish| wish.value)
    };
    let here = std::env::current_dir().unwrap().join("events").display().to_string();
    assert_eq!((told("--tensorboard events x"), told("x")), (Some(here), None));
}

#[test]
fn scripts_for_horovod_are_not_told_about_tensorflow_servers() {
    let told = |line: &str| resolve(line, &[], "").unwrap().job.tf_config;
    assert!(told("x") && !told("--horovod x") && !told("--tf1 x"));
}
