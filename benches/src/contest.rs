//! What the comparison of training runs shows, as tables and goals.

use std::fmt::Write;

use crate::{
    report::Verdict,
    train::{Race, Speed, Trainer, trimmed},
};

/// Seconds in which two workers have to reach the target.
const SECONDS: f64 = 60.0;
/// The share of twice the speed of one worker that two must reach.
const EFFICIENCY: f64 = 0.95;

/// Times to the target, one line per system.
pub fn races(races: &[(Trainer, Vec<Race>)]) -> String {
    let mut text = format!(
        "{:<24} {:>6} {:>10} {:>14} {:>10}",
        "2 workers to 98.5 %", "seeds", "training", "whole command", "accuracy"
    );
    for (system, races) in races {
        let (training, whole) =
            (trimmed(races.iter().map(|race| race.training)), trimmed(races.iter().map(|race| race.whole)));
        let accuracy = 100.0 * trimmed(races.iter().map(|race| race.accuracy));
        let seeds = races.len();
        let _ =
            write!(text, "\n  {:<22} {seeds:>6} {training:>8.1} s {whole:>12.1} s {accuracy:>8.2} %", system.name());
    }
    text
}

/// Throughput, one line per network and system.
pub fn speeds(speeds: &[Speed]) -> String {
    let heads = ["1 worker", "2 workers", "2 strangers", "of 2 × 1", "of strangers", "waiting", "memory"];
    let mut text = format!("{:<20}", "images per second");
    heads.iter().for_each(|head| {
        let _ = write!(text, " {head:>12}");
    });
    for speed in speeds {
        let _ = write!(text, "\n  {:<7} {:<10}", speed.model, speed.system.name());
        speed.images.iter().for_each(|images| {
            let _ = write!(text, " {images:>12.0}");
        });
        let (efficiency, togetherness) = (100.0 * speed.efficiency, 100.0 * speed.togetherness);
        let waiting = speed.communication.map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
        let memory = speed.memory as f64 / f64::from(1 << 20);
        let _ = write!(text, " {efficiency:>10.1} % {togetherness:>10.1} % {waiting:>12} {memory:>8.0} MiB");
    }
    text
}

/// Whether sirtaki's times to the target are good enough.
pub fn fast(races: &[(Trainer, Vec<Race>)]) -> Vec<Verdict> {
    let time = |system: Trainer| {
        let races = &races.iter().find(|(other, _)| *other == system)?.1;
        Some(trimmed(races.iter().map(|race| race.training)))
    };
    let Some(ours) = time(Trainer::Sirtaki) else { return Vec::new() };
    let text = format!("2 workers to 98.5 %: {ours:.1} s, to be at most {SECONDS:.0} s");
    let mut verdicts = vec![Verdict { reached: ours <= SECONDS, text }];
    verdicts.extend(time(Trainer::Ddp).map(|theirs| {
        let ratio = theirs / ours;
        let text = format!("2 workers to 98.5 %, DDP ÷ sirtaki: {ratio:.2}, to be above 1.00");
        Verdict { reached: ratio > 1.0, text }
    }));
    verdicts
}

/// Whether two workers are as fast as twice one, and scale better than DDP's; and how one worker compares with one of
/// DDP's.
pub fn scaling(speeds: &[Speed]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for ours in speeds.iter().filter(|speed| speed.system == Trainer::Sirtaki) {
        let (model, percent) = (ours.model, 100.0 * ours.efficiency);
        let text = format!("{model}, 1 to 2 workers: {percent:.1} %, to be at least {:.0} %", 100.0 * EFFICIENCY);
        verdicts.push(Verdict { reached: ours.efficiency >= EFFICIENCY, text });
        let Some(theirs) = speeds.iter().find(|speed| speed.system == Trainer::Ddp && speed.model == model) else {
            continue;
        };
        let text =
            format!("{model}, 1 to 2 workers: {percent:.1} %, to be above DDP's {:.1} %", 100.0 * theirs.efficiency);
        verdicts.push(Verdict { reached: ours.efficiency > theirs.efficiency, text });
        let ratio = ours.images[0] / theirs.images[0];
        let text = format!("{model}, 1 worker, images per second ÷ PyTorch's: {ratio:.2}, to be at least 1.00");
        verdicts.push(Verdict { reached: ratio >= 1.0, text });
        let ratio = ours.memory as f64 / theirs.memory as f64;
        let text = format!("{model}, memory of a worker ÷ DDP's: {ratio:.2}, to be at most 1.00");
        verdicts.push(Verdict { reached: ratio <= 1.0, text });
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(system: Trainer, images: f64, efficiency: f64, memory: u64) -> Speed {
        let images = [images, 2.0 * images * efficiency, 2.0 * images];
        Speed { model: "lenet", system, images, efficiency, togetherness: efficiency, communication: None, memory }
    }

    #[test]
    fn best_and_worst_seed_do_not_count() {
        assert_eq!(trimmed([9.0, 1.0, 4.0, 2.0]), 3.0);
        assert_eq!(trimmed([1.0, 3.0]), 2.0);
        assert_eq!(trimmed([1.0, 2.0, f64::INFINITY]), 2.0);
        assert!(trimmed([1.0, f64::INFINITY, f64::INFINITY]).is_infinite());
    }

    #[test]
    fn slow_and_missed_targets_are_seen() {
        let race = |training| Race { training, whole: training + 1.0, accuracy: 0.99 };
        let all = |ours, theirs| vec![(Trainer::Sirtaki, vec![race(ours)]), (Trainer::Ddp, vec![race(theirs)])];
        let reached = |ours, theirs| fast(&all(ours, theirs)).iter().map(|verdict| verdict.reached).collect::<Vec<_>>();
        assert_eq!(reached(59.0, 60.0), [true, true]);
        assert_eq!(reached(61.0, 60.0), [false, false]);
        assert_eq!(reached(f64::INFINITY, 60.0), [false, false]);
        assert!(races(&all(1.0, 2.0)).contains("DDP"));
    }

    #[test]
    fn every_goal_of_scaling_can_be_missed() {
        let reached = |ours: Speed, theirs: Speed| {
            scaling(&[ours, theirs]).iter().map(|verdict| verdict.reached).collect::<Vec<_>>()
        };
        let theirs = || speed(Trainer::Ddp, 100.0, 0.96, 10);
        assert_eq!(reached(speed(Trainer::Sirtaki, 100.0, 0.97, 10), theirs()), [true; 4]);
        assert_eq!(reached(speed(Trainer::Sirtaki, 99.0, 0.94, 11), theirs()), [false; 4]);
        assert_eq!(scaling(&[speed(Trainer::Sirtaki, 1.0, 1.0, 1)]).len(), 1);
        assert!(speeds(&[theirs()]).contains("96.0 %"));
    }
}
