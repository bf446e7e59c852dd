//! Which options of `sirtaki run` a variable can set: habits of a person or a site. What belongs to one job (ranks,
//! hosts, program) is typed or in its file.

use crate::env::{self, Section, Variable};

/// An option that a variable can set.
#[derive(Debug, Clone, Copy)]
pub struct OptionVariable {
    /// The variable.
    pub name: &'static str,
    /// The option's long name.
    pub option: &'static str,
}

/// All of them.
pub const OPTIONS: &[OptionVariable] = &[
    OptionVariable { name: "SIRTAKI_RUN_HOSTFILE", option: "hostfile" },
    OptionVariable { name: "SIRTAKI_RUN_VIA", option: "via" },
    OptionVariable { name: "SIRTAKI_RUN_SSH_PORT", option: "ssh-port" },
    OptionVariable { name: "SIRTAKI_RUN_SSH_IDENTITY", option: "ssh-identity" },
    OptionVariable { name: "SIRTAKI_RUN_REMOTE_SIRTAKI", option: "remote-sirtaki" },
    OptionVariable { name: "SIRTAKI_RUN_TAG_OUTPUT", option: "tag-output" },
    OptionVariable { name: "SIRTAKI_RUN_GRACE", option: "grace" },
    OptionVariable { name: "SIRTAKI_RUN_CORES", option: "cores" },
    OptionVariable { name: "SIRTAKI_RUN_GPUS", option: "gpus" },
    OptionVariable { name: "SIRTAKI_RUN_PROGRESS", option: "progress" },
    OptionVariable { name: "SIRTAKI_RUN_DASHBOARD", option: "dashboard" },
    OptionVariable { name: env::TIMEOUT, option: "timeout" },
    OptionVariable { name: env::START_TIMEOUT, option: "start-timeout" },
    OptionVariable { name: env::TLS, option: "tls" },
    OptionVariable { name: env::INTERFACE, option: "interface" },
];

/// Their section of the reference page.
pub const SECTION: Section =
    Section { title: "Launcher", about: "Defaults for options of `sirtaki run`.", variables: VARIABLES };

const VARIABLES: &[Variable] = &[
    Variable {
        name: "SIRTAKI_RUN_HOSTFILE",
        allowed: "a file with a host per line",
        default: "not set",
        about: "`sirtaki run --hostfile`.",
    },
    Variable {
        name: "SIRTAKI_RUN_VIA",
        allowed: "auto, local, ssh, slurm, pbs or lsf",
        default: "auto",
        about: "`sirtaki run --via`: how processes are started.",
    },
    Variable {
        name: "SIRTAKI_RUN_SSH_PORT",
        allowed: "a port",
        default: "ssh's own configuration",
        about: "`sirtaki run --ssh-port`.",
    },
    Variable {
        name: "SIRTAKI_RUN_SSH_IDENTITY",
        allowed: "a file with a key",
        default: "ssh's own configuration",
        about: "`sirtaki run --ssh-identity`.",
    },
    Variable {
        name: "SIRTAKI_RUN_REMOTE_SIRTAKI",
        allowed: "a path",
        default: "where it is here",
        about: "`sirtaki run --remote-sirtaki`: where `sirtaki` is on the other hosts.",
    },
    Variable {
        name: "SIRTAKI_RUN_TAG_OUTPUT",
        allowed: "rank, host or none",
        default: "rank",
        about: "`sirtaki run --tag-output`: what is put before each line of output.",
    },
    Variable {
        name: "SIRTAKI_RUN_GRACE",
        allowed: "seconds above zero, such as 60 or 0.5",
        default: "10",
        about: "`sirtaki run --grace`: how long processes that were asked to end may take.",
    },
    Variable {
        name: "SIRTAKI_RUN_CORES",
        allowed: "auto or none",
        default: "auto",
        about: "`sirtaki run --cores`: whether the processes of a host divide its cores.",
    },
    Variable {
        name: "SIRTAKI_RUN_GPUS",
        allowed: "auto, own or none",
        default: "auto",
        about: "`sirtaki run --gpus`: which GPUs a process sees.",
    },
    Variable {
        name: "SIRTAKI_RUN_PROGRESS",
        allowed: "auto, lines, json or off",
        default: "auto",
        about: "`sirtaki run --progress`: how the progress of a program is shown.",
    },
    Variable {
        name: "SIRTAKI_RUN_DASHBOARD",
        allowed: "a port, yes or no",
        default: "no",
        about: "`sirtaki run --dashboard`: a page with plots while the job runs.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_of_an_option_is_explained_on_the_page() {
        for OptionVariable { name, .. } in OPTIONS {
            let explained = env::all().chain(VARIABLES).filter(|variable| variable.name == *name).count();
            assert_eq!(explained, 1, "{name}");
        }
        assert!(VARIABLES.iter().all(|known| OPTIONS.iter().any(|option| option.name == known.name)));
    }
}
