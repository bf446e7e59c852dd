use sirtaki_launch::outside::Outside;

use super::*;
use crate::{
    args::{Arguments, Command},
    launch::options::Options,
};

const HEX: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

fn shown(line: &str) -> String {
    let arguments: Arguments = clap::Parser::try_parse_from(format!("sirtaki run {line}").split(' ')).unwrap();
    let Command::Run(run) = arguments.command else { panic!("not `run`") };
    let outside = Outside {
        get: &|name| (name == "HOME").then(|| "/home/me".into()),
        read: &|_| Err(std::io::ErrorKind::NotFound.into()),
    };
    let options = Options::resolve(*run, &outside).unwrap();
    let placement = Placement::find(&options.job, &outside, "me").unwrap();
    let variables = [("PATH", "/bin"), ("HOME", "/home/me"), ("SIRTAKI_SECRET", HEX), ("OMP_NUM_THREADS", "3")];
    let here = Here {
        cores: (0..8).collect(),
        gpus: vec!["0".into(), "1".into()],
        program: "/opt/sirtaki/bin/sirtaki".into(),
        folder: "/home/me".into(),
        variables: variables.map(|(name, value)| (name.into(), value.into())).to_vec(),
    };
    describe(&options.job, &placement, &here).unwrap()
}

#[test]
fn a_job_on_this_machine() {
    let text = shown("-n 2 -- ./solve two words");
    assert!(
        text.starts_with("Job          2 ranks on 1 host\nProgram      ./solve two words\nFolder       /home/me\n"),
        "{text}"
    );
    let hosts = "\nHosts\n  me: ranks 0 to 1, on this machine\n    /opt/sirtaki/bin/sirtaki agent\n    rank 0: cores 0-3, GPU 0\n    \
        rank 1: cores 4-7, GPU 1\n";
    assert!(text.contains(hosts), "{text}");
    assert!(text.contains("  CUDA_VISIBLE_DEVICES=0\n") && !text.contains("OMP_NUM_THREADS"), "{text}");
}

#[test]
fn a_job_on_other_hosts() {
    let text = shown("-H a:2,b:1 --tls --env MODE=slow --env HOME -- python train.py");
    assert!(text.contains("  a: ranks 0 to 1, over ssh\n    ssh -T -oBatchMode=yes"), "{text}");
    assert!(text.contains("  b: rank 2, over ssh\n"), "{text}");
    assert!(text.contains("  SIRTAKI_INTERFACE=(decided at start)\n") && text.contains("  MODE=slow\n"), "{text}");
    assert!(text.contains("  HOME=(as it is set here)\n"), "{text}");
    assert!(text.ends_with("\nOther hosts also get these variables of ours\n  PATH OMP_NUM_THREADS\n"), "{text}");
}

#[test]
fn it_fits_on_80_columns_and_keeps_the_secret() {
    let long = "-H a-host-with-a-long-name.example.org:2,b --ssh-option ProxyJump=gate.example.org -- python train.py \
        --learning-rate 0.001 --epochs 100 --data /somewhere/far/away --model resnet-with-a-long-name --log-every 10";
    for text in [shown("-n 2 -- x"), shown(long)] {
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(text.contains("  SIRTAKI_SECRET=(drawn at start, never shown)\n"), "{text}");
        let hex = |word: &str| word.len() >= 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(!text.split(|c: char| !c.is_ascii_alphanumeric()).any(hex), "{text}");
    }
}

#[test]
fn wrapped_commands_are_the_same_to_a_shell() {
    let words: Vec<_> = (0..60).map(|number| format!("word{number}")).collect();
    let script = format!("printf '%s ' {}", wrapped(&words, 4, " \\").trim_start());
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), words.join(" "));
}

#[test]
fn numbers_in_a_row_are_written_short() {
    assert_eq!(spans(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    assert_eq!(spans(&[]), "");
}
