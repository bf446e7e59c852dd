//! The options of a job: the command line, the environment, the file and the defaults combined.

use std::path::PathBuf;

use sirtaki_launch::{
    JobSpec, Ssh,
    environment::{OWN, Wish},
    gpus,
    hosts::{self, HostSlots},
    outside::Outside,
    roles::Returns,
};

use super::{config, elastic::elastic, output::Tag, runs};
use crate::{
    args::{
        roles::RoleOptions,
        run::{Cores, Gpus, Page, Progress, Run},
    },
    env,
    printer::Advice,
};

/// What torchrun calls the number of a restart, and their most.
const TORCH_RESTART: &str = "TORCHELASTIC_RESTART_COUNT";
const TORCH_MOST_RESTARTS: &str = "TORCHELASTIC_MAX_RESTARTS";
/// How often a server is started again, unless another number is given.
const SERVER_RESTARTS: u32 = 3;

/// All options of a job: the job itself, and what people see of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// What runs, and where.
    pub job: JobSpec,
    /// Whether `import horovod` means Sirtaki.
    pub horovod: bool,
    /// Whether `import tensorflow` means TensorFlow 1.
    pub tf1: bool,
    /// How often the job may be started again.
    pub restarts: u32,
    /// The folder in which the run is recorded.
    pub record: Option<PathBuf>,
    /// Whether that has to be a new folder.
    pub record_is_new: bool,
    /// How the program's progress is shown.
    pub progress: Progress,
    /// Whether there is a page that shows it, and on which port, if given.
    pub dashboard: Option<Option<u16>>,
    /// A folder for one file of output per rank.
    pub output: Option<PathBuf>,
    /// What comes before every line.
    pub tag_output: Tag,
    /// How much the launcher prints.
    pub detail: Detail,
    /// Whether to show the plan instead of carrying it out.
    pub dry_run: bool,
}

/// How much the launcher says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Detail {
    Quiet,
    Normal,
    Verbose,
}

impl Detail {
    fn of(quiet: Option<bool>, verbose: Option<bool>) -> Self {
        match (quiet, verbose) {
            (Some(true), _) => Self::Quiet,
            (_, Some(true)) => Self::Verbose,
            _ => Self::Normal,
        }
    }
}

impl Options {
    /// The command line takes precedence over the environment, that over the file, that over the defaults.
    pub fn resolve(typed: Run, outside: &Outside<'_>) -> Result<Self, Advice> {
        let file = match &typed.config {
            None => Run::default(),
            Some(path) => config::from_file(path, &read(path, outside, "--config")?)?,
        };
        let mut all = typed.over(config::from_environment(outside)?).over(file);
        if all.program.is_empty() {
            let hint = "write it after the options, such as `sirtaki run -n 2 -- python train.py`";
            return Err(Advice::new("no program was given", hint));
        }
        check(&all.env, outside)?;
        let (record, record_is_new) = all.record.take().and_then(|wish| runs::choose(&wish, &all.program)).unzip();
        let tensorboard = all.tensorboard.as_ref().and_then(|folder| std::path::absolute(folder).ok());
        let [timeline, folder, events] =
            [&all.timeline, &record, &tensorboard].map(|path| path.as_ref().map(|path| path.display().to_string()));
        let said = [
            (env::TIMELINE, timeline),
            (env::PROFILE, all.profile.take()),
            (env::RUN_FOLDER, folder),
            (env::TENSORBOARD, events),
            (env::HANG_TIMEOUT, all.hang_timeout.take()),
        ];
        let env = with(std::mem::take(&mut all.env), said);
        let hosts = match (all.hosts.take(), &all.hostfile) {
            (Some(list), _) => Some(list.0),
            (None, Some(path)) => Some(hosts::parse_file(path, &read(path, outside, "--hostfile")?)?),
            (None, None) => None,
        };
        let elastic = elastic(&mut all)?;
        check_roles(&all, elastic.is_some())?;
        let job = JobSpec { elastic, ..job(&mut all, hosts, env) };
        let mut options = Self {
            horovod: all.horovod.unwrap_or_default(),
            tf1: all.tf1.unwrap_or_default(),
            job,
            restarts: all.restarts.unwrap_or_default(),
            record,
            record_is_new: record_is_new.unwrap_or_default(),
            progress: all.progress.unwrap_or_default(),
            dashboard: all.dashboard.and_then(Page::port),
            output: all.output,
            tag_output: all.tag_output.unwrap_or_default(),
            detail: Detail::of(all.quiet, all.verbose),
            dry_run: all.dry_run.unwrap_or_default(),
        };
        options.job.pulses = options.shows_progress() || options.dashboard.is_some();
        Ok(options)
    }

    /// The options by which something was to be recorded.
    pub fn monitoring(&self) -> Vec<&'static str> {
        let names = [
            ("--timeline", env::TIMELINE),
            ("--profile", env::PROFILE),
            ("--record", env::RUN_FOLDER),
            ("--tensorboard", env::TENSORBOARD),
        ]
        .into_iter();
        let set =
            |name: &str| self.job.env.iter().find(|wish| wish.name == name).and_then(|wish| wish.value.as_deref());
        let wanted = |value: &str| sirtaki_engine::job::parse::switch(value) != Some(false);
        names.filter(|(_, variable)| set(variable).is_some_and(wanted)).map(|(option, _)| option).collect()
    }

    /// Tells ranks how often the job was started before.
    pub fn tell_restart(&mut self, restart: u32) {
        if self.restarts > 0 {
            let [restart, most] = [restart, self.restarts].map(|number| Some(number.to_string()));
            let told = [(env::RESTART, restart.clone()), (TORCH_RESTART, restart), (TORCH_MOST_RESTARTS, most)];
            self.job.env = with(std::mem::take(&mut self.job.env), told);
        }
    }

    /// Records the run in this folder.
    pub fn record_in(&mut self, folder: PathBuf) {
        let place = Some(folder.display().to_string());
        self.job.env = with(std::mem::take(&mut self.job.env), [(env::RUN_FOLDER, place)]);
        self.record = Some(folder);
    }

    /// Whether the terminal shows the program's progress.
    pub fn shows_progress(&self) -> bool {
        match self.progress {
            Progress::Auto => self.detail != Detail::Quiet,
            Progress::Lines | Progress::Json => true,
            Progress::Off => false,
        }
    }
}

/// The job itself, on these hosts and with these variables.
fn job(all: &mut Run, hosts: Option<Vec<HostSlots>>, env: Vec<Wish>) -> JobSpec {
    let defaults = JobSpec::new(std::mem::take(&mut all.program));
    JobSpec {
        ranks: all.ranks,
        hosts,
        via: all.via.unwrap_or_default(),
        oversubscribe: all.oversubscribe.unwrap_or_default(),
        ssh: Ssh {
            config: all.ssh_config.take(),
            port: all.ssh_port,
            identity: all.ssh_identity.take(),
            options: std::mem::take(&mut all.ssh_option),
        },
        remote_sirtaki: all.remote_sirtaki.take(),
        workdir: all.workdir.take(),
        env,
        divide_cores: all.cores.unwrap_or_default() == Cores::Auto,
        divide_gpus: match all.gpus.unwrap_or_default() {
            Gpus::Auto => !gpus::chooses_itself(&defaults.program),
            Gpus::Own => true,
            Gpus::None => false,
        },
        mpi: all.mpi,
        tf_config: !all.horovod.unwrap_or_default() && !all.tf1.unwrap_or_default(),
        grace: all.grace.unwrap_or(defaults.grace),
        timeout: all.timeout.unwrap_or(defaults.timeout),
        start_timeout: all.start_timeout.unwrap_or(defaults.start_timeout),
        interface: all.interface.take(),
        tls: all.tls.unwrap_or_default(),
        servers: all.roles.servers,
        coordinator: all.roles.coordinator.unwrap_or_default(),
        returns: Returns {
            workers: all.roles.worker_restarts.unwrap_or_default(),
            servers: all.roles.server_restarts.unwrap_or(SERVER_RESTARTS),
        },
        ..defaults
    }
}

/// Variables, and those that options stand for.
fn with<const N: usize>(mut env: Vec<Wish>, options: [(&str, Option<String>); N]) -> Vec<Wish> {
    for (name, value) in options.into_iter().filter(|(_, value)| value.is_some()) {
        env.retain(|wish| wish.name != name);
        env.push(Wish { name: name.into(), value });
    }
    env
}

impl Run {
    /// These options, completed by those `below` that are not given here. Hosts count as one option, whether listed or
    /// in a file, and so does the amount of output; variables and options of ssh are combined, those given here first.
    #[must_use]
    pub fn over(self, below: Run) -> Run {
        let about_hosts = self.hosts.is_some() || self.hostfile.is_some();
        let about_detail = self.quiet.is_some() || self.verbose.is_some();
        let mut env = self.env;
        env.extend(
            below.env.into_iter().filter(|wish| env.iter().all(|known| known.name != wish.name)).collect::<Vec<_>>(),
        );
        Run {
            ranks: self.ranks.or(below.ranks),
            hosts: if about_hosts { self.hosts } else { below.hosts },
            hostfile: if about_hosts { self.hostfile } else { below.hostfile },
            via: self.via.or(below.via),
            oversubscribe: self.oversubscribe.or(below.oversubscribe),
            workdir: self.workdir.or(below.workdir),
            env,
            cores: self.cores.or(below.cores),
            gpus: self.gpus.or(below.gpus),
            horovod: self.horovod.or(below.horovod),
            tf1: self.tf1.or(below.tf1),
            mpi: self.mpi.or(below.mpi),
            restarts: self.restarts.or(below.restarts),
            elastic: self.elastic.over(below.elastic),
            roles: self.roles.over(below.roles),
            config: self.config.or(below.config),
            dry_run: self.dry_run.or(below.dry_run),
            output: self.output.or(below.output),
            timeline: self.timeline.or(below.timeline),
            profile: self.profile.or(below.profile),
            record: self.record.or(below.record),
            tensorboard: self.tensorboard.or(below.tensorboard),
            progress: self.progress.or(below.progress),
            dashboard: self.dashboard.or(below.dashboard),
            tag_output: self.tag_output.or(below.tag_output),
            quiet: if about_detail { self.quiet } else { below.quiet },
            verbose: if about_detail { self.verbose } else { below.verbose },
            grace: self.grace.or(below.grace),
            timeout: self.timeout.or(below.timeout),
            hang_timeout: self.hang_timeout.or(below.hang_timeout),
            start_timeout: self.start_timeout.or(below.start_timeout),
            interface: self.interface.or(below.interface),
            tls: self.tls.or(below.tls),
            ssh_port: self.ssh_port.or(below.ssh_port),
            ssh_config: self.ssh_config.or(below.ssh_config),
            ssh_identity: self.ssh_identity.or(below.ssh_identity),
            ssh_option: [self.ssh_option, below.ssh_option].concat(),
            remote_sirtaki: self.remote_sirtaki.or(below.remote_sirtaki),
            program: if self.program.is_empty() { below.program } else { self.program },
        }
    }
}

/// Values are not repeated: they may be secrets.
fn check(wishes: &[Wish], outside: &Outside<'_>) -> Result<(), Advice> {
    for Wish { name, value } in wishes {
        if OWN.contains(&name.as_str()) {
            let hint = "omit it; `sirtaki run --dry-run` shows what each process gets";
            return Err(Advice::new(format!("the variable {name} is set by sirtaki itself"), hint));
        }
        if value.is_none() && (outside.get)(name).is_none() {
            let hint = format!("give it a value: --env {name}=VALUE");
            return Err(Advice::new(format!("--env {name}: this variable is not set here"), hint));
        }
    }
    Ok(())
}

/// Refuses what cannot be together.
fn check_roles(all: &Run, is_elastic: bool) -> Result<(), Advice> {
    let RoleOptions { servers, coordinator, server_restarts, worker_restarts } = &all.roles;
    if server_restarts.is_some() && servers.is_none() {
        return Err(Advice::new("--server-restarts is for servers", "say how many there are: --servers 2"));
    }
    if is_elastic && (worker_restarts.is_some() || *coordinator == Some(true)) {
        let hint = "leave out --worker-restarts and --coordinator; lost workers of an elastic job are replaced anyway";
        return Err(Advice::new("workers that come and go have no other way to return, and no coordinator", hint));
    }
    Ok(())
}

fn read(path: &std::path::Path, outside: &Outside<'_>, option: &str) -> Result<String, Advice> {
    (outside.read)(path).map_err(|error| {
        Advice::new(format!("cannot read {}: {error}", path.display()), format!("check the path given with {option}"))
    })
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
