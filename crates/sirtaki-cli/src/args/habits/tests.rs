use clap::CommandFactory;

use super::*;
use crate::args::Arguments;

fn is_program(word: &str) -> bool {
    ["python", "yes", "bash", "./solver"].contains(&word)
}

fn understood(line: &str) -> Result<String, Advice> {
    let words = std::iter::once("sirtaki").chain(line.split(' ')).map(|word| word.replace('+', " ").into()).collect();
    let words = understand(words, &Arguments::command(), &is_program)?;
    let words: Vec<_> = words[1..].iter().map(|word| word.to_str().unwrap()).collect();
    Ok(words.join(" "))
}

fn hint(line: &str) -> String {
    understood(line).map_err(|advice| format!("{}: {}", advice.message, advice.hint)).unwrap_err()
}

#[test]
fn options_of_other_launchers_become_ours() {
    let cases = [
        ("run -np 4 python train.py", "run --ranks=4 python train.py"),
        ("run --nproc-per-node 4 -- python x", "run --ranks=4 -- python x"),
        ("run --nproc_per_node=4 -- python x", "run --ranks=4 -- python x"),
        ("run --standalone --nnodes 1 --nproc_per_node 2 python x", "run --ranks=2 python x"),
        (
            "run --min-np 2 --max-np=4 --host-discovery-script d --slots-per-host 2 python x",
            "run --min-ranks=2 --max-ranks=4 --discover=d --slots=2 python x",
        ),
        ("run --blacklist-cooldown-range 5 9 --reset-limit 3 python x", "run --cooldown=5,9 --reset-limit 3 python x"),
        ("run --nnodes=1:1 -np 2 python x", "run --ranks=2 python x"),
        ("run -np 2 -hostfile h -x A=1 python x", "run --ranks=2 --hostfile=h --env=A=1 python x"),
        ("run --network-interfaces eth0 python x", "run --interface=eth0 python x"),
        ("run --timeline-filename t.json python x", "run --timeline=t.json python x"),
        ("train --num-gpus 2", "train --ranks=2"),
        ("bench allreduce -np 2", "bench allreduce -n 2"),
    ];
    for (typed, expected) in cases {
        assert_eq!(understood(typed).unwrap(), expected);
    }
}

#[test]
fn our_own_options_and_the_program_s_stay_as_they_are() {
    for line in [
        "run -n 4 -- python train.py -np 4 --nnodes 2",
        "run -n4 -v --tls --profile python train.py --nnodes 2",
        "run --env A=1 --hosts a:4 ./solver -x 3",
        "run --tls -- yes",
        "run --profile=out.json -- python",
        "run --profile train.py",
        "run --timeline t.json python train.py -- more",
        "bench allreduce -n 2",
        "report --nnodes 2",
        "docter",
        "--help",
        "help run",
    ] {
        assert_eq!(understood(line).unwrap(), line);
    }
}

#[test]
fn a_value_after_a_space_is_never_taken_for_the_program() {
    assert!(hint("run --tls yes --").contains("write --tls=yes, or `-- yes` if that is the program"));
    assert!(hint("run --tls off python x").contains("write --tls=off"));
    assert!(hint("run --dashboard 8080 python x").contains("write --dashboard=8080"));
    assert!(hint("run --profile out.json python x").contains("write --profile=out.json"));
    assert!(hint("run --profile out -- python x").contains("write --profile=out"));
    assert!(hint("run --record runs/a python x").contains("write --record=runs/a"));
    assert!(hint("run --timeline python train.py").contains("needs a file, and `python` is a program"));
    assert!(hint("run -H a:4 b:4 -- python x").contains("separated by commas"));
}

#[test]
fn options_without_a_counterpart_get_advice() {
    assert!(hint("run --nproc-per-node gpu python x").contains("`-n 4`"));
    assert!(hint("run -H a,b --nproc-per-node 4 python x").contains("-H a:4,b:4"));
    assert!(hint("run --nnodes 2 python x").contains("once, on one host"));
    for option in ["--rdzv-backend", "--rdzv_endpoint=h:29400", "--master_port", "--node-rank", "--nnodes=1:4"] {
        assert!(hint(&format!("run {option} 1 python x")).starts_with("sirtaki has no option `--"), "{option}");
    }
}

#[test]
fn a_program_where_a_command_belongs() {
    assert!(hint("python train.py").contains("`sirtaki run -n 2 -- python train.py`"));
    assert!(hint("train.py --lr 1").contains("-- python train.py --lr 1`"));
    assert!(hint("-n 4 python train.py").contains("`sirtaki run -n 4 python train.py`"));
    assert!(hint("-np 4 python train.py").contains("`sirtaki run -np 4 python train.py`"));
    assert!(hint("torchrun --nproc-per-node 2 train.py").contains("sirtaki run --nproc-per-node 2 train.py"));
    assert!(hint("version").contains("`sirtaki --version`"));
    assert!(hint("run -n 2 python+train.py").contains("omit the quotes"));
    assert!(hint("run -n 2 -- python+train.py").contains("omit the quotes"));
}
