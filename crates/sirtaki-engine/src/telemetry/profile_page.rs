//! A profile as a page of text, in the form customary among profilers of MPI programs.

use std::fmt;

use super::{
    counts::{CollectiveKind, Counts, Phase, Whole},
    profile::{Compared, Line, Profile, communication, seconds},
};

/// How many ranks get a line each; beyond that, only those with a maximum are named, above.
pub(super) const RANKS: usize = 64;

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary(f)?;
        self.sizes_of_all(f)?;
        self.phases(f)?;
        self.staleness_table(f)?;
        self.ranks(f)?;
        self.gpus(f)?;
        self.late_ranks(f)
    }
}

/// Only the figures of all ranks together, for a failure report.
#[derive(Debug)]
pub struct Short<'a>(pub &'a Profile);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.summary(f)
    }
}

impl Profile {
    fn summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, known) = (self.counts.len(), self.known().count());
        let hosts = self.hosts.iter().collect::<std::collections::BTreeSet<_>>().len();
        write!(f, "profile of {} on {}", count(ranks, "rank"), count(hosts, "host"))?;
        if known < ranks {
            let missing: Vec<String> =
                (0..ranks).filter(|&rank| self.counts[rank].is_none()).take(20).map(|rank| rank.to_string()).collect();
            write!(f, "; nothing is known of {}: {}", count(ranks - known, "rank"), missing.join(", "))?;
        }
        writeln!(f, "\n\n{:<26} {:>12} {:>12} {:>12}  rank", "", "total", "mean", "largest")?;
        let mut row = |name: &str, number: &dyn Fn(&Counts) -> f64| {
            let Compared { total, mean, most, rank } = self.compare(number);
            writeln!(f, "{name:<26} {total:>12.3} {mean:>12.3} {most:>12.3}  {rank}")
        };
        let whole = |what| move |counts: &Counts| seconds(counts.whole(what));
        row("elapsed [s]", &whole(Whole::Elapsed))?;
        row("CPU, user + system [s]", &whole(Whole::Cpu))?;
        row("communication [s]", &communication)?;
        row("  while nobody waited", &whole(Whole::Hidden))?;
        row("  while somebody waited", &whole(Whole::Exposed))?;
        row("callers waited [s]", &whole(Whole::Waited))?;
        row("largest memory [MiB]", &|counts| counts.whole(Whole::Memory) as f64 / f64::from(1 << 20))?;
        let hidden = self.compare(whole(Whole::Hidden)).total;
        let run = hidden + self.compare(whole(Whole::Exposed)).total;
        if run > 0.0 {
            writeln!(
                f,
                "overlap: {:.1} % of the time of collectives was hidden behind other work",
                100.0 * hidden / run
            )?;
        }
        self.device_summary(f)?;
        self.straggler_line(f)?;
        self.operations(f)?;
        self.device_table(f)
    }

    fn operations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        if lines.is_empty() {
            return writeln!(f, "\nno collectives");
        }
        writeln!(
            f,
            "\n{:<15} {:>10} {:>10} {:>12} {:>9} {:>10} {:>10} {:>10} {:>5} {:>9}",
            "operation",
            "tensors",
            "average",
            "collectives",
            "fused",
            "average",
            "time [s]",
            "largest",
            "rank",
            "bus GB/s"
        )?;
        for line in &lines {
            operation(f, line)?;
        }
        if let Some(copies) = self.copies {
            writeln!(f, "for comparison: a process of rank 0's machine copies {:.1} GB/s in memory", copies / 1e9)?;
        }
        Ok(())
    }

    fn sizes_of_all(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Line { kind, time, .. } in
            self.lines().iter().filter(|line| !matches!(line.kind, CollectiveKind::Barrier | CollectiveKind::Vote))
        {
            let title = format!("sizes of {}", kind.name());
            writeln!(f, "\n{title:<24} {:>12} {:>12} {:>12} {:>6}", "tensors", "collectives", "time [s]", "share")?;
            for (bytes, tensors, collectives, seconds) in self.sizes(*kind) {
                let range =
                    if bytes == 0 { "0 B".into() } else { format!("{} to below {}", size(bytes), size(4 * bytes)) };
                let share = if time.total > 0.0 { 100.0 * seconds / time.total } else { 0.0 };
                writeln!(f, "{range:<24} {tensors:>12} {collectives:>12} {seconds:>12.4} {share:>5.1}%")?;
            }
        }
        Ok(())
    }

    fn phases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |phase: Phase| self.known().map(|(_, counts)| counts.phase(phase).0).sum::<u64>();
        let used: Vec<Phase> = Phase::ALL.into_iter().filter(|&phase| times(phase) > 0).collect();
        if used.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<15} {:>10} {:>12} {:>12} {:>12}  rank", "phase", "times", "total [s]", "mean", "largest")?;
        for phase in used {
            let Compared { total, mean, most, rank } = self.compare(|counts| seconds(counts.phase(phase).1));
            writeln!(f, "{:<15} {:>10} {total:>12.3} {mean:>12.3} {most:>12.3}  {rank}", phase.name(), times(phase))?;
        }
        Ok(())
    }

    fn ranks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<6} {:<16} {:>10} {:>10} {:>10} {:>10} {:>10} {:>11} {:>10}",
            "rank", "host", "elapsed", "CPU [s]", "comm. [s]", "hidden", "waited", "memory MiB", "tensors"
        )?;
        for (rank, counts) in self.known().take(RANKS) {
            let host: String = self.hosts[rank].chars().take(16).collect();
            let [elapsed, cpu, hidden, waited] =
                [Whole::Elapsed, Whole::Cpu, Whole::Hidden, Whole::Waited].map(|what| seconds(counts.whole(what)));
            let tensors: u64 = CollectiveKind::ALL.iter().map(|&kind| counts.tensors(kind)).sum();
            let (comm, memory) = (communication(counts), counts.whole(Whole::Memory) >> 20);
            writeln!(
                f,
                "{rank:<6} {host:<16} {elapsed:>10.3} {cpu:>10.3} {comm:>10.3} {hidden:>10.3} {waited:>10.3} {memory:>11} {tensors:>10}"
            )?;
        }
        match self.known().count() {
            known if known > RANKS => writeln!(f, "… and {} more ranks", known - RANKS),
            _ => Ok(()),
        }
    }
}

fn operation(f: &mut fmt::Formatter<'_>, line: &Line) -> fmt::Result {
    let average = |bytes: u64, count: u64| bytes.checked_div(count).map_or("-".into(), size);
    let fused =
        if line.tensors == 0 { "-".into() } else { format!("{:.1}", line.tensors as f64 / line.collectives as f64) };
    writeln!(
        f,
        "{:<15} {:>10} {:>10} {:>12} {fused:>9} {:>10} {:>10.3} {:>10.3} {:>5} {:>9}",
        line.kind.name(),
        line.tensors,
        average(line.tensor_bytes, line.tensors),
        line.collectives,
        average(line.collective_bytes, line.collectives),
        line.time.total,
        line.time.most,
        line.time.rank,
        line.bus.map_or("-".into(), |bus| format!("{:.2}", bus / 1e9)),
    )
}

/// Bytes as people write them.
pub(super) fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = bytes.checked_ilog(1024).unwrap_or(0).min(4);
    let value = bytes as f64 / 1024_f64.powi(power as i32);
    if value.fract() == 0.0 {
        format!("{value} {}", units[power as usize])
    } else {
        format!("{value:.1} {}", units[power as usize])
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
