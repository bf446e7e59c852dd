//! What an agent reports about one rank: how far the program says it is, and what its flight record counts. The rank itself
//! does nothing for it.

use serde::{Deserialize, Serialize};
use sirtaki_engine::telemetry::{
    GpuSample, Progress,
    counts::{Counts, Phase},
    staleness::STALENESS,
};

/// A rank at some moment. Times are nanoseconds of its host's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pulse {
    /// Which one.
    pub rank: usize,
    /// When this was.
    pub time: u64,
    /// When the program said how far it is, and that, as words: fields that are left out would not survive a message.
    said: Option<(u64, [u64; 9])>,
    /// For how long others have waited for it since its start, where ranks have been compared.
    pub late: Option<Late>,
    /// Most bytes of memory it ever had.
    pub memory: u64,
    /// How much of its GPU is in use, if it has one that says so.
    pub gpu: Option<GpuSample>,
    /// How often weights from parameter servers lacked how many steps, by class, if there are servers.
    pub staleness: Option<[u64; STALENESS]>,
}

/// For how long others have waited for a rank, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Altogether.
    pub total: u64,
    /// Because of each of its phases.
    pub by: [u64; Phase::ALL.len()],
}

impl Pulse {
    /// What a rank's counters show; `None` before it has an engine.
    pub fn of(rank: usize, time: u64, counts: &Counts) -> Option<Pulse> {
        let said = counts.progress().map(|(time, progress)| (time, progress.to_words()));
        let (lateness, memory) = (counts.lateness(), counts.memory());
        let late = (lateness.events > 0).then_some(Late { total: lateness.total, by: lateness.by });
        let (gpu, staleness) = (counts.gpu_now(), counts.staleness());
        let staleness = staleness.iter().any(|&times| times > 0).then_some(staleness);
        (said.is_some() || memory > 0).then_some(Pulse { rank, time, said, late, memory, gpu, staleness })
    }

    /// A rank of which this is known.
    pub fn new(rank: usize, time: u64, said: Option<(u64, Progress)>, late: Option<Late>, memory: u64) -> Pulse {
        let said = said.map(|(time, progress)| (time, progress.to_words()));
        Pulse { rank, time, said, late, memory, gpu: None, staleness: None }
    }

    /// The same rank, with a GPU.
    pub fn with_gpu(self, gpu: GpuSample) -> Pulse {
        Pulse { gpu: Some(gpu), ..self }
    }

    /// When the program said how far it is, and that.
    pub fn said(&self) -> Option<(u64, Progress)> {
        self.said.map(|(time, words)| (time, Progress::from_words(words)))
    }

    /// Whether nothing has changed but the time.
    pub fn says_the_same(&self, other: &Pulse) -> bool {
        Pulse { time: other.time, ..*self } == *other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_survives_a_message() {
        let said = Progress { step: 7, loss: Some(0.5), ..Progress::default() };
        let pulse = Pulse::new(3, 9, Some((5, said)), Some(Late { total: 1, by: [0, 1, 0, 0] }), 2);
        let pulse = pulse.with_gpu(GpuSample { memory: 1, total: 2, busy: None });
        let bytes = postcard::to_stdvec(&pulse).unwrap();
        let back: Pulse = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((back, back.said()), (pulse, Some((5, said))));
        assert!(pulse.says_the_same(&Pulse { time: 10, ..pulse }));
        assert!(!pulse.says_the_same(&Pulse { late: None, ..pulse }));
        assert!(!pulse.says_the_same(&Pulse { gpu: None, ..pulse }));
        assert!(!pulse.says_the_same(&Pulse { staleness: Some([1; STALENESS]), ..pulse }));
    }
}
