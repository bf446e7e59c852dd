//! The part of a profile's page about who kept whom waiting.

use std::{fmt, time::Duration};

use super::{
    lateness::{CLASSES, Lateness, class_from},
    profile::{Profile, seconds},
    profile_page::RANKS,
};

/// The first class that has a column of its own; those below share one.
const FIRST: usize = 4;
/// The last one, which has everything above, too.
const LAST: usize = 12;

impl Profile {
    /// Who holds the job up, in one line, if anybody does.
    pub(super) fn straggler_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.straggler() {
            Some(straggler) => writeln!(f, "straggler: {straggler}"),
            None => Ok(()),
        }
    }

    /// Every rank's lateness.
    pub(super) fn late_ranks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.lateness();
        let known: Vec<(usize, &Lateness)> =
            all.iter().enumerate().filter_map(|(rank, lateness)| Some((rank, lateness.as_ref()?))).collect();
        if known.len() < 2 || known.iter().all(|(_, lateness)| lateness.events == 0) {
            return Ok(());
        }
        writeln!(f, "\nothers waited for a rank, by what it did longer than others")?;
        writeln!(
            f,
            "{:<6} {:>8} {:>8} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "rank",
            "steps",
            "late",
            "mean [ms]",
            "most",
            "total [s]",
            "input",
            "forward",
            "backward",
            "optimizer",
            "other"
        )?;
        for (rank, lateness) in known.iter().take(RANKS) {
            let Lateness { events, late, total, most, by, unknown, .. } = lateness;
            let mean = 1e3 * seconds(*total) / (*events).max(1) as f64;
            write!(
                f,
                "{rank:<6} {events:>8} {late:>8} {mean:>10.3} {:>10.3} {:>10.3}",
                1e3 * seconds(*most),
                seconds(*total)
            )?;
            for nanos in by.iter().chain([unknown]) {
                write!(f, " {:>9.3}", seconds(*nanos))?;
            }
            writeln!(f)?;
        }
        late_classes(f, &known)
    }
}

fn late_classes(f: &mut fmt::Formatter<'_>, known: &[(usize, &Lateness)]) -> fmt::Result {
    write!(f, "\n{:<18} {:>9}", "steps by time", "below")?;
    for class in FIRST..=LAST {
        write!(f, " {:>9}", format!("{:.0?}", Duration::from_secs_f64(class_from(class))))?;
    }
    writeln!(f)?;
    for (rank, lateness) in known.iter().take(RANKS) {
        write!(f, "{:<18} {:>9}", format!("waited for rank {rank}"), lateness.classes[..FIRST].iter().sum::<u64>())?;
        for class in FIRST..=LAST {
            let end = if class == LAST { CLASSES } else { class + 1 };
            write!(f, " {:>9}", lateness.classes[class..end].iter().sum::<u64>())?;
        }
        writeln!(f)?;
    }
    Ok(())
}
