//! Many short JSON texts one after another in one piece of memory, and numbers written directly: a step of a large
//! model makes thousands of events.

/// Texts that belong together.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    text: String,
    /// Where each one ends.
    ends: Vec<usize>,
}

impl Texts {
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// The text being written.
    pub(crate) fn open(&mut self) -> &mut String {
        &mut self.text
    }

    /// Completes the text being written.
    pub(crate) fn end(&mut self) {
        self.ends.push(self.text.len());
    }

    /// Adds a whole text.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.end();
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.text[start..end])
    }

    /// Bytes of the longest and of all together.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.iter().map(str::len).max().unwrap_or(0), self.text.len())
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }
}

/// Adds a number.
pub(crate) fn number(text: &mut String, mut value: u64) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    text.push_str(std::str::from_utf8(&digits[at..]).unwrap_or_default());
}

/// Adds nanoseconds as microseconds.
pub(crate) fn micros(text: &mut String, nanos: u64) {
    number(text, nanos / 1000);
    let digit = |value: u64| b'0' + (value % 10) as u8;
    let rest = [b'.', digit(nanos / 100), digit(nanos / 10), digit(nanos)];
    text.push_str(std::str::from_utf8(&rest).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_come_back_one_by_one() {
        let mut texts = Texts::default();
        texts.push("one");
        texts.open().push_str("fo");
        number(texts.open(), 0);
        texts.end();
        assert_eq!(texts.iter().collect::<Vec<_>>(), ["one", "fo0"]);
        assert_eq!((texts.lengths(), texts.len()), ((3, 6), 2));
        texts.clear();
        assert_eq!((texts.iter().count(), texts.lengths()), (0, (0, 0)));
    }

    proptest! {
        #[test]
        fn numbers_are_written_as_usual(value in any::<u64>(), small in 0_u64..2000) {
            for value in [value, small, 0, u64::MAX] {
                let (mut text, mut time) = (String::new(), String::new());
                number(&mut text, value);
                micros(&mut time, value);
                prop_assert_eq!(text, value.to_string());
                prop_assert_eq!(time, format!("{}.{:03}", value / 1000, value % 1000));
            }
        }
    }
}
