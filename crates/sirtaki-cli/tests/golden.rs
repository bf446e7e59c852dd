//! What users read, word for word: help, refusals of wrong arguments, and nothing where it does not belong.
//!
//! `cargo xtask docs` regenerates the expected texts; look at the difference before committing it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{path::PathBuf, process::Command};

/// Variables that a command finds.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Runs the command away from the caller's settings and returns exit code, output and messages as one text.
fn sirtaki(arguments: &[&str], variables: Variables<'_>) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sirtaki"));
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").env("COLUMNS", "80");
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let typed = arguments.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { (*word).into() });
    let set = variables.iter().map(|(name, value)| format!("{name}={value} "));
    format!(
        "$ {}sirtaki {}\nexit code {}\n--- stdout\n{}--- stderr\n{}",
        set.collect::<String>(),
        typed.collect::<Vec<String>>().join(" "),
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr)
    )
}

fn compare(name: &str, arguments: &[&str]) {
    compare_with(name, arguments, &[]);
}

fn compare_with(name: &str, arguments: &[&str], variables: Variables<'_>) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name).with_extension("txt");
    let got = sirtaki(arguments, variables);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, expected, "{} differs; if that is meant, run `cargo xtask docs`", path.display());
}

#[test]
fn help() {
    compare("help", &["--help"]);
    compare("help_run", &["run", "--help"]);
    compare("help_train", &["train", "--help"]);
    compare("help_infer", &["infer", "--help"]);
    compare("help_completions", &["completions", "--help"]);
    compare("help_man", &["man", "--help"]);
    compare("help_doctor", &["doctor", "--help"]);
    compare("help_predict", &["predict", "--help"]);
    compare("help_bench", &["bench", "--help"]);
    compare("help_report", &["report", "--help"]);
    compare("help_search", &["search", "--help"]);
    compare("help_search_show", &["search", "show", "--help"]);
    compare("help_scaling", &["bench", "scaling", "--help"]);
    compare("help_allreduce", &["bench", "allreduce", "--help"]);
    compare("help_bench_train", &["bench", "train", "--help"]);
}

#[test]
fn summaries() {
    compare("summary", &["-h"]);
    compare("summary_run", &["run", "-h"]);
    compare("summary_train", &["train", "-h"]);
    compare("summary_bench_train", &["bench", "train", "-h"]);
    compare("summary_search", &["search", "-h"]);
    compare("summary_infer", &["infer", "-h"]);
}

#[test]
fn help_is_at_most_80_columns_wide() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("help") || name.starts_with("summary") {
            let text = std::fs::read_to_string(&file).unwrap();
            let wide: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
            assert!(wide.is_empty(), "{name}: {wide:#?}");
        }
    }
}

/// What people type who come from other launchers, or in a hurry.
#[test]
fn mistakes() {
    let job = ["-hostfile", "tests/golden/hosts", "--workdir", "/data", "--remote-sirtaki", "/opt/sirtaki", "./train"];
    compare("mistake_np", &[&["run", "-np", "2", "--dry-run"], job.as_slice()].concat());
    compare("mistake_nproc_gpu", &["run", "--nproc-per-node", "gpu", "python3", "train.py"]);
    compare("mistake_nproc_hosts", &["run", "-H", "a,b", "--nproc_per_node=4", "python3", "train.py"]);
    compare("mistake_nnodes", &["run", "--nnodes", "2", "--nproc-per-node", "4", "python3", "train.py"]);
    compare("mistake_rdzv", &["run", "--rdzv_backend=c10d", "-n", "2", "python3", "train.py"]);
    compare("mistake_master", &["run", "--master-port", "29500", "python3", "train.py"]);
    compare("mistake_node_rank", &["run", "--node_rank=0", "python3", "train.py"]);
    compare("mistake_elastic", &["run", "--nnodes", "1:4", "python3", "train.py"]);
    compare("mistake_module", &["run", "-m", "package.train"]);
    compare("mistake_bind_to", &["run", "--bind-to", "core", "./train"]);
    compare("mistake_mca", &["run", "--mca", "btl", "tcp", "./train"]);
    compare("mistake_host_number", &["run", "-H", "4", "python3", "train.py"]);
    compare("mistake_hosts_spaced", &["run", "-H", "a:4", "b:4", "--", "python3", "train.py"]);
    compare("mistake_profile", &["run", "--profile", "out.json", "python3", "train.py"]);
    compare("mistake_timeline", &["run", "--timeline", "python3", "train.py"]);
    compare("mistake_dashboard", &["run", "--dashboard", "8080", "python3", "train.py"]);
    compare("mistake_tls", &["run", "--tls", "yes", "--"]);
    compare("mistake_tls_perhaps", &["run", "--tls=perhaps", "--", "yes"]);
    compare("mistake_record", &["run", "--record", "runs/mine", "--", "python3", "train.py"]);
    compare("mistake_quotes", &["run", "-n", "2", "python3 train.py"]);
    compare("mistake_no_run", &["python3", "train.py"]);
    compare("mistake_no_command", &["-n", "2", "python3", "train.py"]);
    compare("mistake_launcher", &["mpirun", "-np", "2", "./train"]);
    compare("mistake_version", &["version"]);
    compare("mistake_negative", &["run", "-n", "-1", "./train"]);
    compare("mistake_bench_np", &["bench", "allreduce", "-np", "0"]);
    compare("mistake_script", &["train.py", "--lr", "0.1"]);
    compare("mistake_trian", &["trian"]);
    compare("mistake_absent", &["run", "--", "trian"]);
    compare("mistake_gpus", &["run", "--gpus", "4", "--", "./train"]);
    compare("mistake_model", &["train", "--model", "vgg16"]);
    compare("mistake_data", &["train", "--data", "/nowhere/mnist"]);
    compare("mistake_not_data", &["train", "--data", "/usr"]);
    compare("mistake_precision", &["train", "--precision", "int8"]);
    compare("mistake_many_ranks", &["run", "-n", "four", "--", "./train"]);
    let slurm = [("PATH", "/nowhere"), ("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-2]")];
    compare_with("mistake_no_srun", &["run", "--", "python3", "train.py"], &slurm);
    compare("mistake_never_used", &["run", "-n", "2", "--profile", "--timeline", "t.json", "--", "true"]);
}

#[test]
fn version() {
    let expected =
        format!("$ sirtaki --version\nexit code 0\n--- stdout\nsirtaki {}\n--- stderr\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(sirtaki(&["--version"], &[]), expected);
}

#[test]
fn wrong_arguments() {
    compare("no_ranks", &["bench", "allreduce", "-n", "0"]);
    compare("bad_algorithm", &["bench", "allreduce", "--algorithm", "rnig"]);
    compare("bad_sizes", &["bench", "allreduce", "--sizes", "4,huge"]);
    compare("bad_dtype", &["bench", "allreduce", "--dtype", "f31"]);
    compare("bad_timeout", &["bench", "allreduce", "--timeout", "0"]);
    compare("unknown_command", &["docter"]);
    compare("infer_nothing", &["infer"]);
    compare("infer_bad_output", &["infer", "net.onnx", "in.zarr", "out.zarr", "--output", "argmin"]);
    compare("infer_bad_region", &["infer", "net.onnx", "in.zarr", "out.zarr", "--roi", "0-64"]);
    compare_with("infer_no_library", &["infer", "net.onnx", "in.zarr", "out.zarr"], &[("PATH", "/nowhere")]);
    compare("report_no_run", &["report"]);
    compare("report_absent", &["report", "tests/golden/absent"]);
    compare("report_not_a_run", &["report", "tests/golden"]);
    compare("report_two_forms", &["report", "tests", "--json", "--markdown"]);
    compare("scaling_bad_workers", &["bench", "scaling", "--workers", "1,none"]);
    compare("scaling_not_shared", &["bench", "scaling", "--workers", "1,3", "--strong"]);
    compare("scaling_no_batch", &["bench", "scaling", "--strong", "--", "./train"]);
}

#[test]
fn wrong_jobs() {
    compare("run_no_program", &["run", "-n", "2"]);
    compare("run_unknown_option", &["run", "--rank", "2", "--", "x"]);
    compare("run_bad_hosts", &["run", "-H", "a:4,b:x", "x"]);
    compare("run_bad_via", &["run", "--via", "shh", "x"]);
    compare("run_two_kinds_of_hosts", &["run", "-H", "a", "--hostfile", "b", "x"]);
    compare("run_own_variable", &["run", "--env", "SIRTAKI_SECRET=hunter2", "x"]);
    compare("run_no_room", &["run", "-n", "9", "-H", "a:4,b:4", "x"]);
    compare("run_no_hosts", &["run", "--via", "ssh", "x"]);
    compare("run_no_allocation", &["run", "--via", "slurm", "x"]);
    compare("run_no_file", &["run", "--hostfile", "tests/golden/absent", "x"]);
    compare("run_bad_hostfile", &["run", "--hostfile", "tests/golden/hostfile", "x"]);
    compare("run_unknown_key", &["run", "--config", "tests/golden/job.toml", "x"]);
    compare("man_unknown", &["man", "rnu"]);
}

#[test]
fn wrong_predictions() {
    compare("predict_nothing", &["predict"]);
    compare("predict_no_file", &["predict", "tests/golden/absent"]);
    compare("predict_other_file", &["predict", "tests/golden/hostfile"]);
    compare("predict_bad_model", &["predict", "--model", "tests/golden/job.toml"]);
    compare("predict_bad_link", &["predict", "x", "--bandwidth", "25"]);
    compare("predict_bad_workers", &["predict", "x", "--workers", "8..4"]);
    compare("predict_bad_strategy", &["predict", "x", "--strategy", "data,severs"]);
    let model = "../../docs/predict/vgg16.json";
    compare("predict_other_strategy", &["predict", "--model", model, "--strategy", "local", "--servers", "2"]);
    compare("predict_bad_noise", &["predict", "x", "--noise", "5"]);
    compare("predict_bad_topology", &["predict", "x", "--topology", "torus"]);
    compare("predict_bad_mtbf", &["predict", "x", "--mtbf", "1000"]);
    compare("predict_no_mtbf", &["predict", "x", "--checkpoint-every", "10m"]);
}

#[test]
fn dry_run() {
    let places = ["--workdir", "/data", "--remote-sirtaki", "/opt/sirtaki/bin/sirtaki"];
    let job = ["-H", "a:4,user@b:2", "--ssh-port", "2222", "--env", "MODE=slow", "--", "python", "train.py"];
    compare("dry_run", &[&["run", "--dry-run"], places.as_slice(), &job].concat());
}

/// The standard output of a command that must succeed.
fn output(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_sirtaki")).args(arguments).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    output.stdout
}

/// Feeds `input` to a checker and returns what it complained about.
fn complaints(checker: &str, input: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), input).unwrap();
    let mut words = checker.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let output = command.args(words).arg(file.path()).output().unwrap();
    format!("{}{}", if output.status.success() { "" } else { "failed: " }, String::from_utf8_lossy(&output.stderr))
}

#[test]
fn completions_are_scripts_that_know_the_options_and_no_inner_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = String::from_utf8(output(&["completions", shell])).unwrap();
        assert!(script.contains("hostfile") && !script.contains("bench-worker"), "{shell}");
    }
    assert_eq!(complaints("bash -n", &output(&["completions", "bash"])), "");
}

#[test]
fn manual_pages_are_there_for_all_commands_and_well_formed() {
    let folder = tempfile::tempdir().unwrap();
    output(&["man", "--all", folder.path().to_str().unwrap()]);
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let expected = [
        "-bench-allreduce",
        "-bench-scaling",
        "-bench-train",
        "-bench",
        "-completions",
        "-doctor",
        "-infer",
        "-man",
        "-predict",
        "-report",
        "-run",
        "-search-best",
        "-search-export",
        "-search-import",
        "-search-report",
        "-search-show",
        "-search",
        "-train",
        "",
    ];
    assert_eq!(names, expected.map(|name| format!("sirtaki{name}.1")));
    for name in &names {
        let page = std::fs::read(folder.path().join(name)).unwrap();
        assert_eq!(complaints("groff -man -z -ww", &page), "", "{name}");
    }
    assert_eq!(
        output(&["man", "bench", "allreduce"]),
        std::fs::read(folder.path().join("sirtaki-bench-allreduce.1")).unwrap()
    );
}

#[test]
fn a_wrong_variable_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_sirtaki"))
        .args(["bench", "allreduce", "--sizes", "4"])
        .env("SIRTAKI_TLS", "perhaps")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: SIRTAKI_TLS is `perhaps`, but must be 1, true, yes, on, 0, false, no or off\n\
                    hint: correct or unset it; docs/environment.md lists all variables\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
}

#[test]
fn a_reader_that_closes_early_is_not_an_error() {
    let script = format!("{} doctor --json | true", env!("CARGO_BIN_EXE_sirtaki"));
    let output = Command::new("bash").args(["-c", &format!("set -o pipefail; {script}")]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn doctor_speaks_json() {
    let output = Command::new(env!("CARGO_BIN_EXE_sirtaki")).args(["doctor", "--json"]).output().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    assert!(findings.len() > 10);
    for finding in findings {
        assert!(finding["name"].is_string() && finding["value"].is_string(), "{finding}");
        assert!(["ok", "missing", "warning"].contains(&finding["state"].as_str().unwrap()), "{finding}");
    }
}
