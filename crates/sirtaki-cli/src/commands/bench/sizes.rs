//! Sizes in bytes as people type and read them: `4,1K,1M`, `4..64M`, `64 KiB`. Units are powers of 1024.

use std::{fmt, str::FromStr};

use crate::env::bytes;

/// Bytes per rank, ascending, without repetition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes(Vec<usize>);

impl Sizes {
    /// The sizes.
    pub fn list(&self) -> &[usize] {
        &self.0
    }
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(bytes(part)?),
                Some((from, rest)) => range(from, rest, &mut sizes)?,
            }
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&list.join(","))
    }
}

/// `from..to` or `from..to*step`: `from`, then `step` times as much, up to and including `to`.
fn range(from: &str, rest: &str, sizes: &mut Vec<usize>) -> Result<(), String> {
    let (to, step) = rest.split_once('*').unwrap_or((rest, "4"));
    let (from, to) = (bytes(from)?, bytes(to)?);
    let step: usize = step.trim().parse().map_err(|_| format!("`{step}` is not a number"))?;
    if from == 0 || from > to || step < 2 {
        return Err("a range needs 0 < FROM <= TO and a step of at least 2, such as `4..64M*2`".into());
    }
    let mut size = from;
    while size < to {
        sizes.push(size);
        size = size.saturating_mul(step);
    }
    sizes.push(to);
    Ok(())
}

/// A size for people: `4 B`, `64 KiB`, `1.5 MiB`.
pub fn show(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value.fract() < 0.05 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Vec<usize> {
        text.parse::<Sizes>().unwrap().list().to_vec()
    }

    #[test]
    fn lists_ranges_and_units() {
        assert_eq!(parse("4,1K, 1M ,64MiB"), [4, 1024, 1 << 20, 64 << 20]);
        assert_eq!(parse("4..256"), [4, 16, 64, 256]);
        assert_eq!(parse("1..10*3"), [1, 3, 9, 10]);
        assert_eq!(parse("1M,4,4"), [4, 1 << 20]);
        assert_eq!(parse("0"), [0]);
    }

    #[test]
    fn what_is_typed_survives_the_way_to_a_worker() {
        let sizes: Sizes = "4..64M".parse().unwrap();
        assert_eq!(sizes.to_string().parse::<Sizes>().unwrap(), sizes);
    }

    #[test]
    fn mistakes_are_explained() {
        for text in
            ["", "K", "4X", "-4", "1..", "0..4", "8..4", "4..8*1", "4..8*x", "99999999999999999999", "9999999999G"]
        {
            let error = text.parse::<Sizes>().unwrap_err();
            assert!(error.contains("such as") || error.contains("not a number"), "{text}: {error}");
        }
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!([0, 4, 1536, 64 << 20, 1 << 30].map(show), ["0 B", "4 B", "1.5 KiB", "64 MiB", "1 GiB"]);
    }
}
