//! JSON as Python's `json` module writes and reads it.
//!
//! `serde_json` refuses `NaN` and `Infinity`, which Optuna's journals contain, and reads some numbers wrong in the last
//! bit, so that a resumed study would go another way. This reader takes both exactly, in a hundred lines.

use std::fmt::{self, Write};

/// A value of Python's JSON.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`
    Null,
    /// `true` or `false`
    Flag(bool),
    /// A number without a point or exponent.
    Integer(i64),
    /// Any other number, `NaN` and `Infinity` among them.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Json>),
    /// An object, in the order of its keys in the text.
    Object(Vec<(String, Json)>),
}

/// How deep lists and objects may nest, so that no text can exhaust the stack.
const DEEPEST: usize = 100;

impl Json {
    /// Reads one value that fills the text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut reader = Reader { rest: text };
        let value = reader.value(0)?;
        reader.space();
        reader.rest.is_empty().then_some(value)
    }

    /// The value of a key of an object.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Object(entries) => entries.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// It as a number.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// It as an integer.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Number(number) if number.fract() == 0.0 && number.abs() <= crate::space::LARGEST as f64 => {
                Some(*number as i64)
            }
            _ => None,
        }
    }

    /// It as an integer that is not negative.
    pub fn count(&self) -> Option<u64> {
        self.integer().and_then(|number| u64::try_from(number).ok())
    }

    /// It as a text.
    pub fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// It as a list.
    pub fn list(&self) -> Option<&[Self]> {
        if let Self::List(list) = self { Some(list) } else { None }
    }

    /// It as the entries of an object.
    pub fn entries(&self) -> Option<&[(String, Self)]> {
        if let Self::Object(entries) = self { Some(entries) } else { None }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<f64> for Json {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Number(number as f64), Self::Integer)
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(list: Vec<T>) -> Self {
        Self::List(list.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Without line breaks and other spaces, in ASCII.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Integer(number) => write!(f, "{number}"),
            Self::Number(number) if number.is_nan() => f.write_str("NaN"),
            Self::Number(number) if number.is_infinite() => {
                f.write_str(if *number > 0.0 { "Infinity" } else { "-Infinity" })
            }
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Text(text) => write_text(f, text),
            Self::List(list) => {
                for (index, value) in list.iter().enumerate() {
                    write!(f, "{}{value}", if index == 0 { '[' } else { ',' })?;
                }
                f.write_str(if list.is_empty() { "[]" } else { "]" })
            }
            Self::Object(entries) => {
                for (index, (name, value)) in entries.iter().enumerate() {
                    f.write_char(if index == 0 { '{' } else { ',' })?;
                    write_text(f, name)?;
                    write!(f, ":{value}")?;
                }
                f.write_str(if entries.is_empty() { "{}" } else { "}" })
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    f.write_char('"')?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            ' '..='~' => f.write_char(c)?,
            _ => c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(f, "\\u{unit:04x}"))?,
        }
    }
    f.write_char('"')
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }

    fn eat(&mut self, word: &str) -> bool {
        self.space();
        let there = self.rest.strip_prefix(word);
        self.rest = there.unwrap_or(self.rest);
        there.is_some()
    }

    fn value(&mut self, depth: usize) -> Option<Json> {
        const WORDS: [(&str, Json); 6] = [
            ("null", Json::Null),
            ("true", Json::Flag(true)),
            ("false", Json::Flag(false)),
            ("NaN", Json::Number(f64::NAN)),
            ("Infinity", Json::Number(f64::INFINITY)),
            ("-Infinity", Json::Number(f64::NEG_INFINITY)),
        ];
        if depth > DEEPEST {
            return None;
        }
        if let Some((_, value)) = WORDS.into_iter().find(|(word, _)| self.eat(word)) {
            return Some(value);
        }
        match self.rest.as_bytes().first()? {
            b'"' => self.text().map(Json::Text),
            b'[' => self.items("[", "]", |reader| reader.value(depth + 1)).map(Json::List),
            b'{' => self.items("{", "}", |reader| reader.entry(depth + 1)).map(Json::Object),
            _ => self.number(),
        }
    }

    fn entry(&mut self, depth: usize) -> Option<(String, Json)> {
        self.space();
        let name = self.text()?;
        if self.eat(":") { Some((name, self.value(depth)?)) } else { None }
    }

    fn items<T>(&mut self, open: &str, close: &str, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        self.eat(open);
        if self.eat(close) {
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            if self.eat(close) {
                return Some(items);
            }
            if !self.eat(",") {
                return None;
            }
        }
    }

    fn number(&mut self) -> Option<Json> {
        let length = self.rest.find(|c: char| !"+-.eE0123456789".contains(c)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(length);
        if !text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) || text.ends_with('.') {
            return None;
        }
        self.rest = rest;
        let whole = text.parse().ok().filter(|_| text != "-0").map(Json::Integer);
        whole.or_else(|| text.parse().ok().map(Json::Number))
    }

    fn text(&mut self) -> Option<String> {
        self.rest = self.rest.strip_prefix('"')?;
        let mut text = String::new();
        let mut units = Vec::new();
        loop {
            let c = self.rest.chars().next()?;
            self.rest = &self.rest[c.len_utf8()..];
            if c == '\\' && self.rest.starts_with('u') {
                // Characters beyond the first plane come as two units.
                units.push(u16::from_str_radix(self.rest.get(1..5)?, 16).ok()?);
                self.rest = &self.rest[5..];
                continue;
            }
            text.extend(char::decode_utf16(units.drain(..)).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
            match c {
                '"' => return Some(text),
                '\\' => {
                    let escaped = self.rest.chars().next()?;
                    self.rest = &self.rest[escaped.len_utf8()..];
                    let place = ['b', 'f', 'n', 'r', 't', '"', '\\', '/'].iter().position(|known| *known == escaped)?;
                    text.push(['\u{8}', '\u{c}', '\n', '\r', '\t', '"', '\\', '/'][place]);
                }
                c if c < ' ' => return None,
                c => text.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Flag),
            any::<i64>().prop_map(Json::Integer),
            any::<f64>().prop_filter("equality", |x| !x.is_nan()).prop_map(Json::Number),
            any::<String>().prop_map(Json::Text),
        ];
        leaf.prop_recursive(4, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::List),
                prop::collection::vec((any::<String>(), inner), 0..4).prop_map(Json::Object),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in any_json()) {
            let text = value.to_string();
            prop_assert!(text.is_ascii() && !text.contains('\n'));
            prop_assert_eq!(Json::parse(&text), Some(value));
        }

        #[test]
        fn no_text_panics(text in "[\\[\\]{}\",:\\\\u0-9aeE+.NaIntrl é-]{0,40}") {
            let _ = Json::parse(&text);
        }
    }

    #[test]
    fn python_is_understood() {
        let value = Json::parse(r#" {"a": [NaN, -Infinity, 1e-05, "\u00e9\ud83d\ude00\n"], "b": {}} "#).unwrap();
        let list = value.get("a").and_then(Json::list).unwrap();
        assert!(list[0].number().unwrap().is_nan());
        assert_eq!(list[1..], [f64::NEG_INFINITY.into(), 1e-5.into(), Json::from("é😀\n")]);
        for wrong in ["", "[1,]", "{\"a\"}", "tru", "1.", "--1", "\"", "[1] 2", &"[".repeat(100_000)] {
            assert_eq!(Json::parse(wrong), None, "{wrong}");
        }
    }
}
