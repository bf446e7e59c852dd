//! `--dry-run`: what would be started, where and with what, formatted for 80 columns.

use sirtaki_comm::{CommError, secure::Secret};

use sirtaki_launch::{
    JobSpec, cores,
    environment::{self, Interface, Meeting, Share},
    gpus,
    placement::{Placement, Start, quote},
    plan::HostPlan,
    roles::Cast,
    tf_config::{self, Cluster},
};

use crate::env;

const WIDTH: usize = 80;
const LATER: &str = "(decided at start)";
/// Shown instead of a value from the launcher's environment, which may be a secret.
const OURS: &str = "(as it is set here)";

/// What is known about this machine; other hosts are asked when a job starts.
#[derive(Debug, Clone, Default)]
pub struct Here {
    /// Its processors.
    pub cores: Vec<usize>,
    /// Its GPUs.
    pub gpus: Vec<String>,
    /// Path of the running `sirtaki`.
    pub program: String,
    /// The current folder.
    pub folder: String,
    /// The launcher's own variables.
    pub variables: Vec<(String, String)>,
}

/// The plan as text. Nothing in it is secret.
pub fn describe(spec: &JobSpec, placement: &Placement, here: &Here) -> Result<String, CommError> {
    let mut text = summary(spec, placement, here);
    text += "\nHosts\n";
    for (host, &start) in placement.plan.hosts.iter().zip(&placement.starts) {
        text += &host_lines(host, start, spec, here);
    }
    text += if spec.elastic.is_some() { "\nVariables of the first worker\n" } else { "\nVariables of rank 0\n" };
    for (name, value) in variables(spec, placement, here)? {
        let value = if name == env::SECRET { "(drawn at start, never shown)".into() } else { quote_value(&value) };
        text += &format!("  {name}={value}\n");
    }
    if placement.starts.iter().any(|start| !start.inherits()) {
        text += "\nOther hosts also get these variables of ours\n";
        let own = here.variables.iter().map(|(name, _)| name.as_str());
        let names: Vec<_> = own.filter(|name| environment::travels(name)).collect();
        text += &wrapped(&names, 2, "");
    }
    Ok(text)
}

fn summary(spec: &JobSpec, placement: &Placement, here: &Here) -> String {
    let plan = &placement.plan;
    let program: Vec<_> = spec.program.iter().map(|word| quote(word)).collect();
    let folder = spec.workdir.as_ref().map_or(here.folder.clone(), |folder| folder.display().to_string());
    let network = match (plan.hosts.len(), &spec.interface) {
        (1, _) => "not needed, all ranks are on one host",
        (_, Some(wish)) => wish,
        (_, None) => "the fastest, measured at start",
    };
    let seconds = [spec.timeout, spec.start_timeout, spec.grace].map(|limit| limit.as_secs_f64());
    let limits = format!("{} s without progress, {} s to start, {} s to end", seconds[0], seconds[1], seconds[2]);
    let program = wrapped(&program, 13, " \\");
    format!(
        "Job          {} on {}\nProgram      {}Folder       {folder}\nNetwork      {network}\n\
         Encryption   {}\nTime limits  {limits}\n",
        match &spec.elastic {
            None => count(plan.size(), "rank"),
            Some(elastic) => {
                let most = elastic.max.map_or(plan.size(), |max| max.get().min(plan.size()));
                format!("{} to {}", elastic.min, count(most, "worker"))
            }
        },
        count(plan.hosts.len(), "host"),
        program.trim_start(),
        match (spec.tls, plan.hosts.len()) {
            (true, _) => "TLS",
            (false, 1) => "none, nothing leaves the host",
            (false, _) => "control connections; tensors with --tls",
        },
    )
}

fn host_lines(host: &HostPlan, start: Start, spec: &JobSpec, here: &Here) -> String {
    let ranks = &host.ranks;
    let which = match ranks.len() {
        1 => format!("rank {}", ranks.start),
        _ => format!("ranks {} to {}", ranks.start, ranks.end - 1),
    };
    let how = match start {
        Start::Here => "on this machine",
        Start::Ssh => "over ssh",
        Start::Slurm => "through Slurm",
        Start::Pbs => "through PBS",
        Start::Lsf => "through LSF",
    };
    let mut text = format!("  {}: {which}, {how}\n", host.host);
    let command = start.command(&host.host, spec, &here.program);
    // What goes to ssh is already quoted for the other side.
    let command: Vec<_> = command.iter().map(|word| quote(word)).collect();
    text += &wrapped(&command, 4, " \\");
    if start != Start::Here {
        return text + "    cores and GPUs: divided when the host has said what it has\n";
    }
    for rank in ranks.clone() {
        let Share { cores, gpus, .. } = share(spec, here, host, rank);
        let cores = match cores.len() {
            0 => "any core".into(),
            1 => format!("core {}", cores[0]),
            _ => format!("cores {}", spans(&cores)),
        };
        let gpus = match gpus {
            Some(gpus) => format!("GPU {}", gpus.join(",")),
            None if here.gpus.is_empty() => "no GPU".into(),
            None => format!("sees all GPUs ({})", here.gpus.join(",")),
        };
        text += &format!("    rank {rank}: {cores}, {gpus}\n");
    }
    text
}

fn share(spec: &JobSpec, here: &Here, host: &HostPlan, rank: usize) -> Share {
    let (local, size) = (rank - host.ranks.start, host.ranks.len());
    Share {
        host: host.host.clone(),
        cores: if spec.divide_cores { cores::share(&here.cores, local, size) } else { Vec::new() },
        gpus: if spec.divide_gpus { gpus::share(&here.gpus, local, size) } else { None },
        ..Share::default()
    }
}

/// The variables of rank 0, with placeholders for values that are only known once a job starts.
fn variables(spec: &JobSpec, placement: &Placement, here: &Here) -> Result<Vec<(String, String)>, CommError> {
    let (Some(place), [first, ..]) = (placement.plan.place(0), placement.plan.hosts.as_slice()) else {
        return Ok(Vec::new());
    };
    let start = placement.starts.first().copied().unwrap_or(Start::Here);
    let meeting = Meeting {
        job: LATER.into(),
        store: LATER.into(),
        secret: Secret::random()?,
        master_address: LATER.into(),
        master_port: LATER.into(),
        workers: match tf_config::wanted(spec, &placement.plan) {
            true => Cluster { workers: vec![LATER.into()], ..Cluster::default() },
            false => Cluster::default(),
        },
        timeout: spec.timeout,
        start_timeout: spec.start_timeout,
        tls: spec.tls,
    };
    let mut share = match start {
        Start::Here => share(spec, here, first, 0),
        _ => Share { host: first.host.clone(), ..Share::default() },
    };
    if placement.plan.hosts.len() > 1 {
        share.interface = Some(Interface { name: LATER.into(), address: LATER.into() });
    }
    let own = here.variables.iter().filter(|(name, _)| start.inherits() || environment::travels(name));
    let set: Vec<_> = own.map(|(name, _)| name).chain(spec.env.iter().map(|wish| &wish.name)).collect();
    let has = |name: &str| set.iter().any(|known| *known == name);
    let mut all = match spec.elastic {
        None => environment::of_rank(&place, &meeting, &share, &has),
        Some(_) => environment::of_member(1, &meeting, &share, &has),
    };
    all.extend(environment::of_worker(&Cast::of(spec, placement.plan.size())));
    all.extend(spec.env.iter().map(|wish| (wish.name.clone(), wish.value.clone().unwrap_or(OURS.into()))));
    Ok(all)
}

/// Words on lines of at most [`WIDTH`], each indented and all but the last closed by `more`.
fn wrapped(words: &[impl AsRef<str>], indent: usize, more: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in words.iter().map(AsRef::as_ref) {
        let used = indent + line.len() + 1 + word.len() + more.len();
        if !line.is_empty() && used > WIDTH {
            lines.push(std::mem::take(&mut line));
        }
        line += if line.is_empty() { "" } else { " " };
        line += word;
    }
    lines.push(line);
    let margin = " ".repeat(indent);
    format!("{margin}{}\n", lines.join(&format!("{more}\n{margin}")))
}

/// Placeholders need no quotes.
fn quote_value(value: &str) -> String {
    match value {
        OURS => value.into(),
        _ if value.contains(LATER) => LATER.into(),
        _ => quote(value),
    }
}

/// `0-3,8` for 0, 1, 2, 3 and 8.
fn spans(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| *b == a + 1).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(",")
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
#[path = "dry_run_tests.rs"]
mod tests;
