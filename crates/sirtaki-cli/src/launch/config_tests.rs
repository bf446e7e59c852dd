use proptest::prelude::*;

use super::*;

fn file(text: &str) -> Result<Run, Advice> {
    from_file(Path::new("job.toml"), text)
}

fn message(text: &str) -> String {
    file(text).unwrap_err().message
}

fn typed(line: &str) -> Run {
    Alone::try_parse_from(line.split(' ')).unwrap().run
}

#[test]
fn a_file_says_what_could_be_typed() {
    let text = r#"
        ranks = 8
        hosts = ["a:4", "b:4"]
        via = "ssh"
        ssh-port = 2222
        ssh-option = ["ProxyJump=gate", "Compression=yes"]
        grace = 2.5
        tls = true
        verbose = false
        tag-output = "host"
        program = ["python", "train.py", "--lr", "0.1"]
        [env]
        WANDB_MODE = "offline"
        LEVEL = 0x10
    "#;
    let expected = typed(
        "-n 8 -H a:4,b:4 --via ssh --ssh-port 2222 --ssh-option ProxyJump=gate --ssh-option Compression=yes --grace 2.5 \
         --tls --verbose=no --tag-output host --env LEVEL=16 --env WANDB_MODE=offline -- python train.py --lr 0.1",
    );
    assert_eq!(file(text).unwrap(), expected);
    assert_eq!(file("hosts = 'a:4,b'").unwrap(), typed("-H a:4,b"));
    assert_eq!(file("").unwrap(), Run::default());
}

#[test]
fn every_option_can_stand_in_a_file() {
    let names = names();
    for name in ["ranks", "start-timeout", "dry-run", "oversubscribe", "remote-sirtaki", "program"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|known| known == "config" || known == "help"), "{names:?}");
}

#[test]
fn mistakes_name_file_line_and_key() {
    assert_eq!(message("\n\nrnaks = 4"), "job.toml:3: there is no option `rnaks`");
    assert_eq!(file("rnaks = 4").unwrap_err().hint, "did you mean `ranks`?");
    assert_eq!(file("start_timeout = 4").unwrap_err().hint, "did you mean `start-timeout`?");
    assert!(file("q = 4").unwrap_err().hint.starts_with("the options are ranks, hosts,"));
    assert_eq!(message("tls = true\nranks = 0"), "job.toml:2: ranks is `0`: must be a whole number greater than zero");
    assert_eq!(message("via = 'shh'"), "job.toml:1: via is `shh`: must be one of auto, local, ssh, slurm, pbs, lsf");
    assert_eq!(message("ranks = [1, 2]"), "job.toml:1: ranks is `1, 2`: must be a single value");
    assert_eq!(message("ranks = { a = 1 }"), "job.toml:1: ranks must be a single value");
    assert_eq!(
        message("program = 'python'"),
        "job.toml:1: program must be an array, such as [\"python\", \"train.py\"]"
    );
    assert_eq!(message("[env]\nTWO-WORDS = 1"), "job.toml:1: env is `TWO-WORDS=1`: must be NAME or NAME=VALUE");
    assert!(
        message("hosts = 'a;b'")
            .starts_with("job.toml:1: hosts is `a;b`: `a;b` is not the name of a host; write HOST:SLOTS")
    );
    assert!(message("ranks = 4\nranks = 5").starts_with("job.toml:2: "), "{}", message("ranks = 4\nranks = 5"));
    assert!(message("a\nb").starts_with("job.toml:1: "));
    let both = message("hosts = 'a'\nhostfile = 'b'");
    assert!(both.starts_with("job.toml: ") && both.contains("--hosts") && both.contains("--hostfile"), "{both}");
}

#[test]
fn variables_are_read_by_the_same_rules() {
    let variables = |list: &'static [(&str, &str)]| {
        let get = move |name: &str| list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let read = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        from_environment(&Outside { get: &get, read: &read })
    };
    let set = variables(&[
        ("SIRTAKI_RUN_VIA", "ssh"),
        ("SIRTAKI_TIMEOUT", "5"),
        ("SIRTAKI_TLS", "1"),
        ("SIRTAKI_RUN_GPUS", ""),
    ]);
    assert_eq!(set.unwrap(), typed("--via ssh --timeout 5 --tls"));
    let advice = variables(&[("SIRTAKI_RUN_GRACE", "soon")]).unwrap_err();
    assert_eq!(advice.message, "SIRTAKI_RUN_GRACE is `soon`: must be seconds above zero, such as 60 or 0.5");
    assert_eq!(advice.hint, "`sirtaki run --help` explains --grace");
}

#[test]
fn every_variable_names_an_option() {
    let names = names();
    assert!(OPTIONS.iter().all(|known| names.iter().any(|name| name == known.option)));
}

proptest! {
    #[test]
    fn no_file_makes_the_parser_panic(text in "[a-z=\\[\\]{}\"',\n 0-9.-]{0,80}") {
        let _ = file(&text);
    }
}
