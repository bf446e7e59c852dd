//! The way that tensors of GPUs take: all ranks choose the same, from what each of them offers.

use std::{collections::BTreeSet, path::PathBuf};

use serde::{Deserialize, Serialize};
use sirtaki_comm::Rank;

use crate::decide::check::name_ranks;

/// How tensors in the memory of GPUs travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// NCCL carries them.
    Nccl,
    /// Ranks of one host work in each other's memory, of one GPU or of several that reach each other.
    Shared,
    /// They are copied to the host's memory, and back.
    Staged,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Nccl, Way::Shared, Way::Staged];

    /// The name used in messages and variables.
    pub const fn name(self) -> &'static str {
        match self {
            Way::Nccl => "nccl",
            Way::Shared => "shared",
            Way::Staged => "staged",
        }
    }
}

/// What a job can configure about GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceSettings {
    /// The way to take; `None` lets the ranks decide. Rank 0's value counts.
    pub way: Option<Way>,
    /// Where NCCL is; `None` takes the one that the process or the system has.
    pub nccl: Option<PathBuf>,
    /// Where the CUDA driver is; `None` takes the system's.
    pub driver: Option<PathBuf>,
    /// Where NVIDIA's management library is; `None` takes the system's.
    pub nvml: Option<PathBuf>,
    /// Whether everything between hosts has to be encrypted, which NCCL cannot do. [`crate::Engine::start`] takes it
    /// from the communication settings.
    pub encrypted: bool,
    /// Whether the engine has only some of the job's ranks, so that others use the same devices.
    pub subset: bool,
}

/// What one rank has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    /// Its GPU, or why it has none.
    pub(super) gpu: Result<Gpu, String>,
    /// Its version of NCCL, or why there is none.
    pub(super) nccl: Result<String, String>,
    /// The way it was told to take.
    pub(super) wanted: Option<Way>,
    /// Whether another group of ranks may use its GPU at the same time.
    pub(super) contended: bool,
    /// Whether everything between hosts has to be encrypted.
    pub(super) encrypted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Gpu {
    pub(super) uuid: [u8; 16],
    pub(super) name: String,
    /// How many GPUs its process sees.
    pub(super) seen: u32,
}

const UNENCRYPTED: &str = "the job has several hosts and asks for TLS, which NCCL does not have";

/// What was decided, and why, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) way: Way,
    pub(super) reason: String,
    pub(super) contended: bool,
}

/// The way that all ranks take; an error names a rank that cannot take any. `hosts` are the hosts of the ranks.
pub(super) fn choose(offers: &[Offer], hosts: &[&str]) -> Result<Choice, (Rank, String)> {
    for (rank, offer) in offers.iter().enumerate() {
        if let Err(problem) = &offer.gpu {
            return Err((rank, problem.clone()));
        }
    }
    let contended = offers.iter().any(|offer| offer.contended);
    let choice = |way, reason: String| Ok(Choice { way, reason, contended });
    let uuids: Vec<[u8; 16]> = offers.iter().filter_map(|offer| Some(offer.gpu.as_ref().ok()?.uuid)).collect();
    let different: BTreeSet<[u8; 16]> = uuids.iter().copied().collect();
    let one_host = hosts.iter().all(|host| *host == hosts[0]);
    let without = offers.iter().enumerate().find_map(|(rank, offer)| Some((rank, offer.nccl.as_ref().err()?)));
    let encrypted = !one_host && offers.iter().any(|offer| offer.encrypted);
    match offers[0].wanted {
        Some(Way::Nccl) if encrypted => Err((0, format!("{UNENCRYPTED}; unset SIRTAKI_GPU, or leave out --tls"))),
        Some(Way::Nccl) => match without {
            Some((rank, reason)) => Err((rank, reason.clone())),
            None => choice(Way::Nccl, "it was asked for".into()),
        },
        Some(Way::Shared) if !one_host => {
            Err((0, "the job has several hosts, so ranks cannot work in each other's memory".into()))
        }
        Some(way) => choice(way, "it was asked for".into()),
        None if encrypted => choice(Way::Staged, UNENCRYPTED.into()),
        None if offers.len() == 1 => choice(Way::Shared, "there is one rank".into()),
        None if different.len() == uuids.len() && without.is_none() => {
            let version = offers[0].nccl.as_ref().map_or("", |version| version.as_str());
            choice(Way::Nccl, format!("every rank has a GPU of its own and NCCL {version}"))
        }
        None if different.len() == 1 && one_host => choice(Way::Shared, "all ranks share one GPU".into()),
        None => {
            let reason = match without {
                Some((rank, reason)) => format!("rank {rank} has no NCCL: {reason}"),
                None => "some ranks share a GPU and some do not, which NCCL refuses".into(),
            };
            // Whether GPUs reach each other shows when they try; if they do not, tensors are staged.
            choice(if one_host { Way::Shared } else { Way::Staged }, reason)
        }
    }
}

/// The warning to give where ranks of a host share a GPU although it has more of them.
pub(super) fn crowded(offers: &[Offer], hosts: &[&str]) -> Option<String> {
    let gpus: Vec<&Gpu> = offers.iter().filter_map(|offer| offer.gpu.as_ref().ok()).collect();
    for host in hosts {
        let here = || gpus.iter().zip(hosts).enumerate().filter(|(_, (_, other))| *other == host);
        let used: BTreeSet<[u8; 16]> = here().map(|(_, (gpu, _))| gpu.uuid).collect();
        let seen = here().map(|(_, (gpu, _))| gpu.seen as usize).max().unwrap_or(0);
        for uuid in used.iter().filter(|_| seen > used.len()) {
            let ranks: Vec<Rank> = here().filter(|(_, (gpu, _))| gpu.uuid == *uuid).map(|(rank, _)| rank).collect();
            if ranks.len() > 1 {
                return Some(format!(
                    "{} use one GPU, although {seen} can be seen there; hint: choose one for each rank, in PyTorch with \
                     torch.cuda.set_device(hvd.local_rank())",
                    name_ranks(&ranks)
                ));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_crowd_one_gpu_are_named() {
        let seeing = |gpu, seen| {
            let own = Gpu { uuid: [gpu; 16], name: "GPU".into(), seen };
            Offer { gpu: Ok(own), ..offer(gpu, true) }
        };
        let crowd = [seeing(1, 2), seeing(1, 2), seeing(2, 2)];
        assert_eq!(
            crowded(&crowd, &["a", "a", "b"]).unwrap().split(';').next(),
            Some("ranks 0,1 use one GPU, although 2 can be seen there")
        );
        assert_eq!(crowded(&crowd, &["a", "a", "a"]), None, "all of them are used");
        assert_eq!(crowded(&[seeing(1, 1), seeing(1, 1)], &["a", "a"]), None, "there is no other");
    }

    fn offer(gpu: u8, nccl: bool) -> Offer {
        Offer {
            gpu: Ok(Gpu { uuid: [gpu; 16], name: "GPU".into(), seen: 1 }),
            nccl: if nccl { Ok("2.28.9".into()) } else { Err("no library was found".into()) },
            wanted: None,
            contended: false,
            encrypted: false,
        }
    }

    #[test]
    fn what_has_to_be_encrypted_does_not_travel_by_nccl() {
        let secret = |gpu, wanted| Offer { encrypted: true, wanted, ..offer(gpu, true) };
        assert_eq!(way(&[secret(1, None), secret(2, None)], &["a", "b"]), Way::Staged);
        assert_eq!(way(&[secret(1, None), secret(2, None)], &["a", "a"]), Way::Nccl, "nothing leaves the host");
        let (_, refused) = choose(&[secret(1, Some(Way::Nccl)), secret(2, None)], &["a", "b"]).unwrap_err();
        assert!(refused.contains("NCCL") && refused.contains("--tls"), "{refused}");
    }

    fn way(offers: &[Offer], hosts: &[&str]) -> Way {
        choose(offers, hosts).unwrap().way
    }

    #[test]
    fn the_fastest_way_that_all_can_take_is_taken() {
        assert_eq!(way(&[offer(1, true), offer(2, true)], &["a", "b"]), Way::Nccl);
        assert_eq!(way(&[offer(1, true)], &["a"]), Way::Shared);
        assert_eq!(way(&[offer(1, true), offer(1, true)], &["a", "a"]), Way::Shared);
        assert_eq!(way(&[offer(1, false), offer(1, true)], &["a", "a"]), Way::Shared);
        assert_eq!(way(&[offer(1, true), offer(1, true), offer(2, true)], &["a"; 3]), Way::Shared);
        assert_eq!(way(&[offer(1, true), offer(1, true), offer(2, true)], &["a", "a", "b"]), Way::Staged);
        assert_eq!(way(&[offer(1, true), offer(2, false)], &["a", "a"]), Way::Shared, "they may reach each other");
        let choice = choose(&[offer(1, true), offer(2, false)], &["a", "b"]).unwrap();
        assert_eq!((choice.way, choice.reason.as_str()), (Way::Staged, "rank 1 has no NCCL: no library was found"));
    }

    #[test]
    fn what_was_asked_for_is_done_or_refused() {
        let asked = |way, gpu, nccl| Offer { wanted: Some(way), ..offer(gpu, nccl) };
        assert_eq!(way(&[asked(Way::Nccl, 1, true), offer(1, true)], &["a", "a"]), Way::Nccl);
        assert_eq!(way(&[asked(Way::Staged, 1, true), offer(2, true)], &["a", "a"]), Way::Staged);
        let refused = choose(&[asked(Way::Nccl, 1, true), offer(2, false)], &["a", "a"]).unwrap_err();
        assert_eq!(refused, (1, "no library was found".into()));
        assert_eq!(way(&[asked(Way::Shared, 1, true), offer(2, true)], &["a", "a"]), Way::Shared);
        assert!(choose(&[asked(Way::Shared, 1, true), offer(2, true)], &["a", "b"]).is_err());
        let none = Offer { gpu: Err("no driver".into()), ..offer(1, true) };
        assert_eq!(choose(&[offer(1, true), none], &["a", "a"]).unwrap_err(), (1, "no driver".into()));
    }
}
