//! What trials report: lines of JSON on standard output that name an objective, such as `{"val_loss": 0.31}` or
//! `{"step": 3, "val_loss": 0.31}`. Any program in any language can write them; everything else it writes is left alone.

use sirtaki_search::journal::Json;

/// Longest line that may be a report; programs that write endless lines cost no more memory than this.
const LONGEST: usize = 64 << 10;

/// Values of one line.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    /// After which step, where that is said.
    pub step: Option<i64>,
    /// The value of each objective, where the line has it.
    pub values: Vec<Option<f64>>,
}

/// Reads a line; nothing where it is not a report. Python writes `NaN` and `Infinity`, which are values, too.
pub fn reported(line: &str, objectives: &[String]) -> Option<Reported> {
    let line = line.trim();
    if !line.starts_with('{') || !line.ends_with('}') {
        return None;
    }
    let json = Json::parse(line)?;
    let values: Vec<Option<f64>> = objectives.iter().map(|name| json.get(name)?.number()).collect();
    let any = values.iter().any(Option::is_some);
    any.then(|| Reported { step: json.get("step").and_then(Json::integer), values })
}

/// Cuts what a rank writes into lines.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
    too_long: bool,
}

impl Lines {
    /// Takes bytes, and calls `line` with every line that they end.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            self.too_long |= self.rest.len() + text.len() > LONGEST;
            if self.too_long {
                self.rest.clear();
            } else {
                self.rest.extend_from_slice(text);
            }
            if ends {
                if !std::mem::take(&mut self.too_long) {
                    line(&String::from_utf8_lossy(&self.rest));
                }
                self.rest.clear();
            }
        }
    }

    /// The last line, whose end never came.
    pub fn finish(&mut self, mut line: impl FnMut(&str)) {
        if !self.rest.is_empty() {
            line(&String::from_utf8_lossy(&std::mem::take(&mut self.rest)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<Reported> {
        reported(line, &["loss".into(), "speed".into()])
    }

    #[test]
    fn lines_with_an_objective_are_reports() {
        let both = |step, loss, speed| Some(Reported { step, values: vec![loss, speed] });
        assert_eq!(of("{\"loss\": 0.31}"), both(None, Some(0.31), None));
        assert_eq!(
            of(" {\"step\": 3, \"speed\": 2, \"loss\": 1e-3, \"x\": [1]}\r"),
            both(Some(3), Some(1e-3), Some(2.0))
        );
        assert!(of("{\"loss\": NaN}").unwrap().values[0].unwrap().is_nan());
        for other in ["", "loss 0.3", "{\"loss\": \"low\"}", "{\"step\": 3}", "{loss: 1}", "[{\"loss\": 1}]"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn lines_come_whole_whatever_pieces_they_arrive_in() {
        let (mut lines, mut seen) = (Lines::default(), Vec::new());
        for piece in ["a", "b\nc\n\n", "d"] {
            lines.push(piece.as_bytes(), |line| seen.push(line.to_owned()));
        }
        lines.push(&[b'x'; 2 * LONGEST], |_| unreachable!("no line ends"));
        assert!(lines.rest.len() <= LONGEST);
        lines.push(b"x\ne", |line| seen.push(line.to_owned()));
        lines.finish(|line| seen.push(line.to_owned()));
        assert_eq!(seen, ["ab", "c", "", "e"]);
    }
}
