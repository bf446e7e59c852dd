//! How far a run has come, as one value: what a worker that joins the run has to know besides weights and optimizer.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::super::{
    meter::{Score, Watch},
    report::Epoch,
};
use crate::{Resumed, UpdateCost, World, data::Position};

/// How far a run has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SoFar {
    pub(super) position: Position,
    pub(super) step: u64,
    /// Samples seen in this run by all workers.
    pub(super) seen: usize,
    /// The time of the run, and that without tests and checkpoints.
    pub(super) whole: Watch,
    pub(super) training: Watch,
    /// The steps of the current epoch, as far as their score was heard of, and time and samples before them.
    pub(super) epoch: Score,
    pub(super) before: (f64, usize),
    /// An epoch whose steps are done, and that was not tested yet.
    pub(super) untested: Option<u64>,
    #[serde(with = "epochs")]
    pub(super) epochs: Vec<Epoch>,
    /// The result of the newest test.
    pub(super) tested: Option<Score>,
    pub(super) checkpoint: Option<PathBuf>,
    pub(super) interrupted: bool,
    pub(super) spent: Spent,
}

/// What steps of earlier rounds have cost.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Spent {
    /// Seconds of waiting for other workers.
    pub(super) waited: f64,
    pub(super) cost: UpdateCost,
    pub(super) skipped: u64,
}

impl SoFar {
    /// The beginning of a run, or of the rest of one.
    pub(super) fn start(seed: u64, resumed: Option<&Resumed>) -> Self {
        let start = (Position::start(seed), 0);
        let (position, step) = resumed.map_or(start, |resumed| (resumed.manifest.position, resumed.manifest.step));
        Self {
            position,
            step,
            seen: 0,
            whole: Watch::running(),
            training: Watch::running(),
            epoch: Score::default(),
            before: (0.0, 0),
            untested: None,
            epochs: Vec::new(),
            tested: None,
            checkpoint: resumed.map(|resumed| resumed.path.clone()),
            interrupted: false,
            spent: Spent::default(),
        }
    }

    /// Larger for whoever has come further; never zero, which is for those who know nothing of the run.
    pub(super) fn standing(&self) -> u64 {
        1 + 2 * self.step + u64::from(self.untested.is_none())
    }

    /// What the worker `root` knows.
    pub(super) fn of(world: &World, root: usize, own: Option<&Self>) -> crate::Result<Self> {
        let name = "how far the run has come";
        let broken = |error: postcard::Error| crate::Error::setting(format!("{name}: {error}"), "report this");
        let own = own.filter(|_| world.rank() == root);
        let bytes = own.map_or(Ok(Vec::new()), postcard::to_stdvec).map_err(broken)?;
        let mut told: Self = postcard::from_bytes(&world.broadcast_bytes(name, root, bytes)?).map_err(broken)?;
        told.training.go_on();
        Ok(told)
    }
}

/// Results of epochs for a format without names, which cannot read what reports leave out.
mod epochs {
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serializer};

    use crate::train::{Epoch, Prediction};

    type Told = (u64, [f64; 6], Option<Prediction>, Option<PathBuf>);

    pub(super) fn serialize<S: Serializer>(epochs: &[Epoch], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(epochs.iter().map(|epoch| -> Told {
            let numbers = [
                epoch.seconds,
                epoch.train_loss,
                epoch.train_accuracy,
                epoch.test_loss,
                epoch.test_accuracy,
                epoch.samples_per_second,
            ];
            (epoch.epoch, numbers, epoch.prediction, epoch.checkpoint.clone())
        }))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Epoch>, D::Error> {
        let epoch = |(epoch, numbers, prediction, checkpoint): Told| {
            let [seconds, train_loss, train_accuracy, test_loss, test_accuracy, samples_per_second] = numbers;
            Epoch {
                epoch,
                seconds,
                train_loss,
                train_accuracy,
                test_loss,
                test_accuracy,
                prediction,
                samples_per_second,
                checkpoint,
            }
        };
        Ok(Vec::deserialize(deserializer)?.into_iter().map(epoch).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epoch(prediction: Option<crate::train::Prediction>) -> Epoch {
        Epoch {
            epoch: 3,
            seconds: 1.5,
            train_loss: f64::NAN,
            train_accuracy: 0.25,
            test_loss: 0.75,
            test_accuracy: 0.5,
            prediction,
            samples_per_second: 100.0,
            checkpoint: Some("runs/a".into()),
        }
    }

    #[test]
    fn what_is_told_arrives() {
        let prediction = crate::train::Prediction { bits_per_character: 1.0, perplexity: 2.0 };
        let mut before = SoFar::start(7, None);
        (before.step, before.untested, before.seen) = (12, Some(2), 96);
        before.epochs = vec![epoch(None), epoch(Some(prediction))];
        let time = before.whole.time();
        let bytes = postcard::to_stdvec(&before).unwrap();
        let after: SoFar = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((after.step, after.untested, after.seen, after.position), (12, Some(2), 96, before.position));
        assert_eq!(format!("{:?}", after.epochs), format!("{:?}", before.epochs));
        assert!(after.whole.time() >= time);
    }

    #[test]
    fn a_tested_epoch_is_further_than_its_last_step() {
        let mut run = SoFar::start(1, None);
        let standing = |run: &mut SoFar, step, untested| {
            (run.step, run.untested) = (step, untested);
            run.standing()
        };
        let order = [
            standing(&mut run, 0, None),
            standing(&mut run, 1, None),
            standing(&mut run, 2, Some(0)),
            standing(&mut run, 2, None),
            standing(&mut run, 3, None),
        ];
        assert!(order[0] > 0 && order.windows(2).all(|pair| pair[0] < pair[1]), "{order:?}");
    }
}
