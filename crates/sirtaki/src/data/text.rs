//! Text: sequences of characters, each with the character that follows it.
//!
//! A text is cut into sequences of one length. A sample is a sequence, as the numbers of its characters, and its label is
//! the character behind it; so what should follow each of its characters is the sequence without its first one, and
//! then the label. The last tenth of the text is to test with.
//!
//! Characters are numbered in the order of Unicode over the whole text, so every worker numbers them alike, and a number
//! takes two bytes.

use std::{
    collections::BTreeSet,
    fs,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Samples, Source, Split};
use crate::{Error, Result};

/// One character in this many is to test with.
const TESTED: usize = 10;

/// Sequences of a text.
#[derive(Clone)]
pub struct Text {
    numbers: Arc<[u16]>,
    alphabet: Arc<[char]>,
    range: Range<usize>,
    shape: [usize; 1],
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (count, length, characters) = (self.count(), self.shape[0], self.alphabet.len());
        write!(f, "Text({count} sequences of {length} characters, {characters} different ones)")
    }
}

impl Text {
    /// Cuts a text into sequences of this length.
    pub fn split(text: &str, length: usize) -> Result<Split<Text>> {
        let alphabet: Vec<char> = text.chars().collect::<BTreeSet<char>>().into_iter().collect();
        let number = |character| alphabet.binary_search(&character).ok().and_then(|place| u16::try_from(place).ok());
        let numbers: Option<Arc<[u16]>> = text.chars().map(number).collect();
        let numbers = numbers.ok_or_else(|| {
            let problem = format!("the text has {} different characters", alphabet.len());
            Error::setting(problem, format!("give a text with at most {}", 1 << 16))
        })?;
        let (found, least) = (numbers.len(), length.saturating_add(1).saturating_mul(TESTED));
        if length == 0 || found < least {
            let problem = format!("a text of {found} characters is too short for sequences of {length}");
            let hint = format!("give a text of at least {least} characters, or ask for shorter sequences");
            return Err(Error::setting(problem, hint));
        }
        let cut = found - found / TESTED;
        let part =
            |range| Text { numbers: numbers.clone(), alphabet: alphabet.as_slice().into(), range, shape: [length] };
        Ok(Split { train: part(0..cut), test: part(cut..found) })
    }

    /// The different characters; the place of a character is its number.
    pub fn alphabet(&self) -> &[char] {
        &self.alphabet
    }
}

impl Samples for Text {
    fn count(&self) -> usize {
        (self.range.len() - 1) / self.shape[0]
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> usize {
        self.alphabet.len()
    }

    fn read(&self, index: usize, into: &mut [f32]) -> Result<u32> {
        let length = self.shape[0];
        if index >= self.count() || into.len() != length {
            let problem = format!("sequence {index} of {} does not fit {} values", self.count(), into.len());
            return Err(Error::setting(problem, "ask for samples that there are, with room for exactly one"));
        }
        let begin = self.range.start + index * length;
        let characters = &self.numbers[begin..=begin + length];
        characters.iter().zip(into).for_each(|(&number, value)| *value = number.into());
        Ok(characters[length].into())
    }
}

/// Reads a text: a file in UTF-8, compressed as `.gz` or not, or the `.txt` files of a folder, one behind the other in the
/// order of their names.
pub fn read(path: &Path) -> Result<String> {
    if !path.is_dir() {
        return parse(path, Source::open(path)?);
    }
    let files = files(path)?;
    if files.is_empty() {
        return Err(Error::file(path, "there is no file named .txt in it", "name a text file, or a folder with some"));
    }
    files.iter().map(|file| parse(file, Source::open(file)?)).collect()
}

/// The text of a file.
pub fn parse(path: &Path, mut source: Source<'_>) -> Result<String> {
    let bytes = source.take(source.left(), "text")?;
    source.end()?;
    String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        let problem = format!("text: this is not UTF-8, from byte {place} on");
        Error::file(path, problem, "give a text in UTF-8; `iconv` converts others")
    })
}

/// The text files of a folder, by name.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_text(&path) && !hidden && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file is a text by its name.
pub(crate) fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::source::tests::gzip;

    #[test]
    fn sequences_are_followed_by_what_follows_them() {
        let text: String = "abcäß".chars().cycle().take(66).collect();
        let Split { train, test } = Text::split(&text, 4).unwrap();
        assert_eq!(train.alphabet(), ['a', 'b', 'c', 'ß', 'ä']);
        assert_eq!((train.count(), test.count(), train.classes()), (14, 1, 5));
        let mut values = [0.0; 4];
        assert_eq!(train.read(0, &mut values).unwrap(), 3);
        assert_eq!(values, [0.0, 1.0, 2.0, 4.0]);
        assert_eq!(train.read(1, &mut values).unwrap(), 4);
        assert_eq!(values, [3.0, 0.0, 1.0, 2.0]);
        assert_eq!(test.read(0, &mut values).unwrap(), 3);
        assert_eq!(values, [0.0, 1.0, 2.0, 4.0]);
        assert!(train.read(14, &mut values).is_err() && train.read(0, &mut [0.0]).is_err());
    }

    #[test]
    fn short_texts_are_refused() {
        let refused = |text: &str, length| Text::split(text, length).unwrap_err();
        assert!(Text::split(&"x".repeat(50), 4).is_ok());
        let error = refused(&"x".repeat(49), 4);
        assert_eq!(error.to_string(), "a text of 49 characters is too short for sequences of 4");
        assert!(error.hint().unwrap().contains("at least 50"));
        refused("", 1);
        refused("text", 0);
        refused("text", usize::MAX);
        let all: String = (0..u32::MAX).filter_map(char::from_u32).take((1 << 16) + 1).collect();
        assert!(refused(&all, 4).to_string().contains("65537 different"), "{all}");
    }

    #[test]
    fn files_are_read_in_the_order_of_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("no file named .txt"));
        write("b.txt", "two, drei und fünf; ".as_bytes());
        write("a.TXT", b"one, ");
        write("notes.md", &[0xff]);
        write(".hidden.txt", &[0xff]);
        fs::create_dir(folder.path().join("folder.txt")).unwrap();
        assert_eq!(read(folder.path()).unwrap(), "one, two, drei und fünf; ");
        write("c.gz", &gzip("packed".repeat(9).as_bytes()));
        assert_eq!(read(&folder.path().join("c.gz")).unwrap(), "packed".repeat(9));
        write("c.txt", b"good until here\xff");
        let error = read(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("c.txt`: text: this is not UTF-8, from byte 15 on"), "{error}");
        assert!(error.hint().unwrap().contains("iconv"));
        assert!(read(&folder.path().join("nowhere.txt")).is_err());
    }

    proptest! {
        #[test]
        fn every_character_is_read_once(text in "\\PC{40,90}", length in 1_usize..4) {
            let Split { train, test } = Text::split(&text, length).unwrap();
            let mut read = Vec::new();
            for part in [train, test] {
                for index in 0..part.count() {
                    let mut values = vec![0.0; length];
                    let next = part.read(index, &mut values).unwrap();
                    prop_assert!((next as usize) < part.classes());
                    read.extend(values.iter().map(|&value| part.alphabet()[value as usize]));
                }
                // What is left at the end of a part is shorter than a sequence and its next character.
                let left = part.range.len() - part.count() * length;
                prop_assert!((1..=length).contains(&left));
                read.extend(part.numbers[part.range.end - left..part.range.end].iter().map(|&it| part.alphabet()[usize::from(it)]));
            }
            prop_assert_eq!(read.into_iter().collect::<String>(), text);
        }
    }
}
