//! Tables of numbers as text: a line for each sample, with its class in one of the columns.
//!
//! Fields are separated by commas, semicolons or tabs, whichever the first line has most of, and may be quoted. The first
//! line names the columns if it has anything but numbers beside the class. Lines that are no samples are left out and
//! listed, so that one typo in a large table does not end a run.

use std::{collections::BTreeSet, path::Path};

use super::{Source, source::DAMAGED};
use crate::{Error, Result};

/// Columns that have the class, in any case; if no column is called like this, the last one has it.
const CLASS: [&str; 5] = ["label", "labels", "class", "target", "y"];

/// The samples of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// The names of the columns with numbers; they are numbered from 1 if the table has no names.
    pub columns: Vec<String>,
    /// The numbers of all samples, one sample after the other.
    pub values: Vec<f32>,
    /// The class of each sample.
    pub classes: Vec<String>,
    /// Lines that were left out, and why.
    pub unreadable: Vec<String>,
}

impl Table {
    /// How many samples there are.
    pub fn count(&self) -> usize {
        self.classes.len()
    }
}

/// Reads a file, packed with gzip or not.
pub fn read(path: &Path) -> Result<Table> {
    parse(path, Source::open(path)?)
}

/// Reads the bytes of a table; `path` is for messages.
pub fn parse(path: &Path, mut source: Source<'_>) -> Result<Table> {
    let bytes = source.take(source.left(), "table")?;
    source.end()?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let problem = format!("text: it is not UTF-8, from byte {} on", error.utf8_error().valid_up_to());
        Error::file(path, problem, "save it as UTF-8")
    })?;
    let refuse = |problem: &str, hint: &str| Error::file(path, problem, hint);
    let records = records(text.trim_start_matches('\u{feff}'));
    let Some((_, first)) = records.first() else { return Err(refuse("there is no line in it", DAMAGED)) };
    if first.len() < 2 {
        let hint = "separate columns by commas, semicolons or tabs: numbers, and the class of each line";
        return Err(refuse("there is only one column", hint));
    }
    let known = first.iter().position(|name| CLASS.contains(&name.to_ascii_lowercase().as_str()));
    let label = known.unwrap_or(first.len() - 1);
    let has_names = known.is_some() || first.iter().enumerate().any(|(at, word)| at != label && number(word).is_none());
    let name = |(at, word): (usize, &String)| if has_names { word.clone() } else { (at + 1).to_string() };
    let names: Vec<String> = first.iter().enumerate().map(name).collect();
    let (mut values, mut classes, mut unreadable) = (Vec::new(), Vec::new(), Vec::new());
    for (line, fields) in &records[usize::from(has_names)..] {
        match sample(fields, &names, label) {
            Ok((numbers, class)) => {
                values.extend(numbers);
                classes.push(class);
            }
            Err(problem) => unreadable.push(format!("line {line}: {problem}")),
        }
    }
    if classes.is_empty() {
        let problem = unreadable.first().map_or("there is no line with a sample", String::as_str);
        let hint = "give every line a number in each column but that of its class, which is called `label` or the last";
        return Err(refuse(problem, hint));
    }
    let columns = names.into_iter().enumerate().filter(|(at, _)| *at != label).map(|(_, name)| name).collect();
    Ok(Table { columns, values, classes, unreadable })
}

/// All classes of some tables in an order that follows from them: that of numbers if they are numbers, otherwise that of
/// letters. The place of a class is its label.
pub fn classes<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Result<Vec<String>> {
    let all: BTreeSet<&String> = tables.into_iter().flat_map(|table| &table.classes).collect();
    let mut all: Vec<String> = all.into_iter().cloned().collect();
    let numbers: Option<Vec<f32>> = all.iter().map(|class| number(class)).collect();
    if let Some(numbers) = numbers {
        if let Some(fraction) = numbers.iter().find(|number| number.fract() != 0.0) {
            let problem = format!("the class of a line is {fraction}, which is a fraction");
            return Err(Error::setting(problem, "give classes as whole numbers or names: values are not predicted"));
        }
        all.sort_by(|one, other| f32::total_cmp(&number(one).unwrap_or(0.0), &number(other).unwrap_or(0.0)));
    }
    Ok(all)
}

/// The numbers and the class of a line, or why it is none.
fn sample(fields: &[String], names: &[String], label: usize) -> std::result::Result<(Vec<f32>, String), String> {
    if fields.len() != names.len() {
        return Err(format!("it has {} columns, not {}", fields.len(), names.len()));
    }
    if fields[label].is_empty() {
        return Err("its class is missing".into());
    }
    let mut numbers = Vec::with_capacity(fields.len() - 1);
    for (at, (word, name)) in fields.iter().zip(names).enumerate().filter(|(at, _)| *at != label) {
        match number(word) {
            Some(number) => numbers.push(number),
            None if word.is_empty() => return Err(format!("column {} (`{name}`) is empty", at + 1)),
            None => return Err(format!("`{word}` in column {} (`{name}`) is not a number", at + 1)),
        }
    }
    Ok((numbers, fields[label].clone()))
}

fn number(word: &str) -> Option<f32> {
    word.parse().ok().filter(|number: &f32| number.is_finite())
}

/// The lines that are not empty, with their numbers from 1, as fields without the space around them.
fn records(text: &str) -> Vec<(usize, Vec<String>)> {
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let often = |mark: &char| first.matches(*mark).count();
    let separator = [',', ';', '\t'].into_iter().rev().max_by_key(often).unwrap_or(',');
    let mut records = Vec::new();
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let (mut line, mut begun) = (1, 1);
    let mut letters = text.chars().chain(['\n']).peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if quoted || field.trim().is_empty() => quoted = !quoted,
            letter if letter == separator && !quoted => fields.push(std::mem::take(&mut field).trim().to_owned()),
            '\n' if !quoted || letters.peek().is_none() => {
                fields.push(std::mem::take(&mut field).trim().to_owned());
                let done = std::mem::take(&mut fields);
                if done.len() > 1 || !done[0].is_empty() {
                    records.push((begun, done));
                }
                begun = line + 1;
            }
            letter => field.push(letter),
        }
        line += usize::from(letter == '\n');
    }
    records
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(text: &str) -> Result<Table> {
        let path = Path::new("t.csv");
        parse(path, Source::of_bytes(path, text.as_bytes())?)
    }

    #[test]
    fn separators_names_and_quotes_are_understood() {
        let plain = table("1,2,a\n3,4,b\n").unwrap();
        assert_eq!((plain.values.as_slice(), plain.count()), ([1.0, 2.0, 3.0, 4.0].as_slice(), 2));
        assert_eq!((plain.columns, plain.classes), (vec!["1".into(), "2".into()], vec!["a".into(), "b".into()]));
        let named = table("\u{feff}Class;width; height\r\n\r\n\"a; \"\"b\"\"\";1.5;-2e1\r\n").unwrap();
        assert_eq!((named.columns.join(","), named.classes), ("width,height".into(), vec!["a; \"b\"".into()]));
        assert_eq!(named.values, [1.5, -20.0]);
        assert_eq!(table("a\tb\n1\tx\n").unwrap().columns, ["a"]);
    }

    #[test]
    fn lines_that_are_no_samples_are_listed() {
        let table = table("w,h,label\n1,2,a\n1,,a\n1,two,a\n1,2\n1,nan,b\n1,2,\n5,6,b").unwrap();
        assert_eq!((table.count(), table.unreadable.len()), (2, 5));
        for (place, says) in [
            "line 3: column 2 (`h`) is empty",
            "line 4: `two` in column 2 (`h`) is not a number",
            "line 5: it has 2 columns, not 3",
            "line 6: `nan` in column 2 (`h`) is not a number",
            "line 7: its class is missing",
        ]
        .iter()
        .enumerate()
        {
            assert_eq!(table.unreadable[place], *says);
        }
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for (text, says) in [
            ("", "there is no line"),
            ("1\n2\n", "only one column"),
            ("a,b\n", "no line with a sample"),
            ("a,b\nx,1\n", "line 2: `x` in column 1 (`a`) is not a number"),
        ] {
            let error = table(text).unwrap_err();
            assert!(error.to_string().contains(says) && error.hint().is_some(), "{error}");
        }
        let path = Path::new("t.csv");
        assert!(parse(path, Source::of_bytes(path, b"1,\xff\n").unwrap()).unwrap_err().to_string().contains("UTF-8"));
    }

    #[test]
    fn classes_are_in_order() {
        let order = |text: &str| classes([&table(text).unwrap()]).map(|classes| classes.join(" "));
        assert_eq!(order("1,10\n1,9\n1,-1\n").unwrap(), "-1 9 10");
        assert_eq!(order("1,b\n1,a\n1,10\n").unwrap(), "10 a b");
        assert!(order("1,0.5\n1,1\n").unwrap_err().to_string().contains("fraction"));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[0-9a,;\t\" \n.\\-]{0,60}") {
            if let Ok(table) = table(&text) {
                prop_assert_eq!(table.values.len(), table.count() * table.columns.len());
            }
        }
    }
}
