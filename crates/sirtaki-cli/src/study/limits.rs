//! What trials have to keep to, such as `memory <= 8`: a value that they report beside their objectives, and its limit.

/// A limit on a value that trials report.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// The name of the value.
    pub name: String,
    bound: f64,
    /// Whether it must be at least the bound, rather than at most.
    least: bool,
}

impl Limit {
    /// Reads `NAME <= NUMBER` or `NAME >= NUMBER`.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, bound, least) = match (text.split_once("<="), text.split_once(">=")) {
            (Some((name, bound)), None) => (name, bound, false),
            (None, Some((name, bound))) => (name, bound, true),
            _ => return None,
        };
        let bound = bound.trim().parse::<f64>().ok().filter(|bound| bound.is_finite())?;
        let name = name.trim();
        let is_name = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "<>=\"'".contains(c));
        is_name.then(|| Self { name: name.to_owned(), bound, least })
    }

    /// By how much a value breaks the limit; up to 0 it keeps it.
    pub fn broken_by(&self, value: f64) -> f64 {
        let over = if self.least { self.bound - value } else { value - self.bound };
        if over.is_nan() { f64::INFINITY } else { over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_name_a_direction_and_a_number() {
        let memory = Limit::parse("memory <= 8").unwrap();
        assert_eq!((memory.name.as_str(), memory.broken_by(9.5), memory.broken_by(7.0)), ("memory", 1.5, -1.0));
        let speed = Limit::parse("speed>=1e3").unwrap();
        assert_eq!((speed.broken_by(900.0), speed.broken_by(f64::NAN)), (100.0, f64::INFINITY));
        for wrong in ["memory < 8", "memory <= much", "<= 8", "memory", "a b <= 1", "a <= 1 >= 0", "a <= inf"] {
            assert_eq!(Limit::parse(wrong), None, "{wrong}");
        }
    }
}
