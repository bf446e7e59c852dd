//! NumPy's `.npy`: magic, version, a Python dictionary that describes the values, the values.
//!
//! Parsed here, without a library, because little of the format is needed: the five types of numbers that data sets
//! use, little endian, in row-major order. Everything else is refused with a line of Python that makes a readable file.

use std::{iter::Peekable, path::Path, str::Chars};

use super::{Array, Source, Values, array::product, source::DAMAGED};
use crate::Result;

const MAGIC: [u8; 6] = *b"\x93NUMPY";

/// Longest description; NumPy itself writes about a hundred bytes.
const HEADER_LIMIT: u32 = 1 << 16;

/// Most dimensions of an array, as in NumPy.
const DIMENSIONS: usize = 64;

/// Reads a file.
pub fn read(path: &Path) -> Result<Array> {
    parse(Source::open(path)?)
}

/// Reads the bytes of an `.npy` file.
pub fn parse(mut source: Source<'_>) -> Result<Array> {
    if source.array("magic")? != MAGIC {
        return Err(source.refuse("magic", "this is not a .npy file", "look whether it is the right file"));
    }
    let length = match source.array("version")? {
        [1, _] => u32::from(u16::from_le_bytes(source.array("length of the header")?)),
        [2 | 3, _] => u32::from_le_bytes(source.array("length of the header")?),
        [major, minor] => {
            let problem = format!("{major}.{minor} is not known");
            return Err(source.refuse("version", &problem, "save the array with a current NumPy"));
        }
    };
    if length > HEADER_LIMIT {
        let problem = format!("{length} bytes, at most {HEADER_LIMIT} are allowed");
        return Err(source.refuse("length of the header", &problem, DAMAGED));
    }
    let text = source.take(length.into(), "header")?;
    let Some(header) = std::str::from_utf8(&text).ok().and_then(Header::parse) else {
        return Err(source.refuse("header", "this is not the description of an array", DAMAGED));
    };
    if header.fortran {
        let hint = "save it again with np.save(file, np.ascontiguousarray(array))";
        return Err(source.refuse("fortran_order", "columns come first", hint));
    }
    let Some(count) = product(&header.shape) else {
        return Err(source.refuse("shape", &format!("{:?} is too large", header.shape), DAMAGED));
    };
    let values = match header.descr.as_str() {
        "|u1" => Values::U8(source.take(count as u64, "values")?),
        "<i4" => Values::I32(numbers(&mut source, count, i32::from_le_bytes)?),
        "<i8" => Values::I64(numbers(&mut source, count, i64::from_le_bytes)?),
        "<f4" => Values::F32(numbers(&mut source, count, f32::from_le_bytes)?),
        "<f8" => Values::F64(numbers(&mut source, count, f64::from_le_bytes)?),
        other => {
            let problem = format!("values of type {other:?} are not supported");
            let hint = "u1, <i4, <i8, <f4 and <f8 are: save it again with np.save(file, array.astype('<f4'))";
            return Err(source.refuse("descr", &problem, hint));
        }
    };
    source.end()?;
    Array::new(header.shape, values)
}

/// Reads numbers of `N` bytes, a piece at a time so that they are in memory only once.
fn numbers<T, const N: usize>(source: &mut Source<'_>, count: usize, from: fn([u8; N]) -> T) -> Result<Vec<T>> {
    source.expect((count as u64).saturating_mul(N as u64), "values")?;
    let mut values = Vec::with_capacity(count);
    let mut piece = [0; 1 << 13];
    while values.len() < count {
        let bytes = (count - values.len()).saturating_mul(N).min(piece.len());
        source.fill(&mut piece[..bytes], "values")?;
        values.extend(piece[..bytes].as_chunks().0.iter().map(|bytes| from(*bytes)));
    }
    Ok(values)
}

/// What the dictionary says.
#[derive(Debug, Default, PartialEq)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, keys in any order, all of them once.
    fn parse(text: &str) -> Option<Self> {
        let mut words = Words { left: text.chars().peekable() };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        words.mark('{')?;
        while words.mark('}').is_none() {
            let key = words.string()?;
            words.mark(':')?;
            let fresh = match key.as_str() {
                "descr" => descr.replace(words.string()?).is_none(),
                "fortran_order" => fortran.replace(words.truth()?).is_none(),
                "shape" => shape.replace(words.tuple()?).is_none(),
                _ => false,
            };
            if !fresh || (words.mark(',').is_none() && words.left.peek() != Some(&'}')) {
                return None;
            }
        }
        words.blank();
        words.left.next().is_none().then_some(())?;
        Some(Self { descr: descr?, fortran: fortran?, shape: shape? })
    }
}

/// The words of the dictionary; each method takes one, if it is there, and the space before it.
struct Words<'a> {
    left: Peekable<Chars<'a>>,
}

impl Words<'_> {
    fn blank(&mut self) {
        while self.left.next_if(|letter| letter.is_ascii_whitespace()).is_some() {}
    }

    fn mark(&mut self, mark: char) -> Option<()> {
        self.blank();
        self.left.next_if_eq(&mark).map(|_| ())
    }

    fn string(&mut self) -> Option<String> {
        self.blank();
        let quote = self.left.next_if(|letter| matches!(letter, '\'' | '"'))?;
        let mut text = String::new();
        loop {
            match self.left.next()? {
                letter if letter == quote => return Some(text),
                '\\' => return None,
                letter => text.push(letter),
            }
        }
    }

    fn truth(&mut self) -> Option<bool> {
        self.blank();
        let mut word = String::new();
        while let Some(letter) = self.left.next_if(char::is_ascii_alphabetic) {
            word.push(letter);
        }
        match word.as_str() {
            "True" => Some(true),
            "False" => Some(false),
            _ => None,
        }
    }

    fn tuple(&mut self) -> Option<Vec<usize>> {
        self.mark('(')?;
        let mut numbers = Vec::new();
        while self.mark(')').is_none() {
            let mut digits = String::new();
            while let Some(digit) = self.left.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            numbers.push(digits.parse().ok()?);
            let last = self.mark(',').is_none();
            if numbers.len() > DIMENSIONS || (last && self.left.peek() != Some(&')')) {
                return None;
            }
        }
        Some(numbers)
    }
}

#[cfg(test)]
#[path = "npy_tests.rs"]
pub(super) mod tests;
