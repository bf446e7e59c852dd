//! Tables of numbers, with the class of each line in one of the columns.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{DataContent, Domain, Format, FoundData, ends, is_to_test, names};
use crate::{
    Error, Result,
    checkpoint::hex,
    data::{
        Array, Memory, Normalise, Samples, Values,
        table::{self, Table},
    },
};

pub(super) const FORMAT: Format = Format {
    name: "table",
    layout: "a .csv or .tsv file with numbers and a class in each line, in a column called label or in the last one, or a \
             folder with train.csv and test.csv",
    domain: Domain::Tables,
    is_at: |path| is_table(path) && path.is_file() || !files(path).is_empty(),
    content: DataContent::Classified(|path, _| read(path)),
};

fn is_table(path: &Path) -> bool {
    [".csv", ".tsv", ".csv.gz", ".tsv.gz"].iter().any(|end| ends(path, end))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = names(folder).into_iter().map(|name| folder.join(name)).collect();
    files.retain(|path| is_table(path));
    files
}

fn read(path: &Path) -> Result<FoundData> {
    let all = if path.is_dir() { files(path) } else { vec![path.to_owned()] };
    let named = |path: &PathBuf| path.file_name().is_some_and(|name| is_to_test(&name.to_string_lossy()));
    let (test, train): (Vec<PathBuf>, Vec<PathBuf>) = match all.as_slice() {
        // A single table is to train with, whatever it is called.
        [_] => (Vec::new(), all),
        _ => all.into_iter().partition(named),
    };
    let ([train_file], [] | [_]) = (train.as_slice(), test.as_slice()) else {
        let problem = format!("there are {} tables to train with, and {} to test with", train.len(), test.len());
        return Err(Error::file(path, problem, "name one table, or a folder with train.csv and test.csv"));
    };
    let train = table::read(train_file)?;
    let test = test.first().map(|file| table::read(file).map(|table| (file, table))).transpose()?;
    if let Some((file, test)) = test.as_ref().filter(|(_, test)| test.columns != train.columns) {
        let problem = format!("its columns are {}, and those to train with {}", list(test), list(&train));
        return Err(Error::file(file, problem, "give both tables the same columns"));
    }
    let tables = [Some(&train), test.as_ref().map(|(_, test)| test)].into_iter().flatten();
    let classes = table::classes(tables).map_err(|error| error.in_file(path))?;
    let mut unreadable = told(train_file, &train);
    unreadable.extend(test.iter().flat_map(|(file, test)| told(file, test)));
    let identity = Some(digest(&train));
    let rows = samples(&train)?;
    let normalise = Normalise::measured(&rows)?;
    let memory = |table: &Table, rows| -> Result<Arc<dyn Samples>> {
        let label = |class| classes.iter().position(|known| known == class).map_or(-1, |place| place as i64);
        let labels = Array::new(vec![table.count()], Values::I64(table.classes.iter().map(label).collect()))?;
        Ok(Arc::new(Memory::new(rows, labels, classes.len(), &normalise)?))
    };
    let test = test.map(|(_, test)| memory(&test, samples(&test)?)).transpose()?;
    Ok(FoundData { train: memory(&train, rows)?, test, domain: Domain::Tables, unreadable, identity })
}

/// The numbers of a table, with each column as a channel.
fn samples(table: &Table) -> Result<Array> {
    Array::new(vec![table.count(), table.columns.len(), 1, 1], Values::F32(table.values.clone()))
}

fn list(table: &Table) -> String {
    table.columns.join(", ")
}

fn told(file: &Path, table: &Table) -> Vec<String> {
    table.unreadable.iter().map(|line| format!("`{}`: {line}", file.display())).collect()
}

fn digest(table: &Table) -> String {
    let mut digest = Sha256::new();
    table.values.iter().for_each(|value| digest.update(value.to_le_bytes()));
    table.classes.iter().for_each(|class| digest.update(class));
    format!("a table with SHA-256 {}", &hex(&digest.finalize())[..16])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn tables_of_a_folder_share_their_classes() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(place.path().join(name), text).unwrap();
        write("train.csv", "w,h,class\n1,2,b\n3,4,c\nx,5,c\n");
        write("test.csv", "w,h,class\n1,2,a\n");
        let found = read(place.path()).unwrap();
        assert_eq!((found.train.count(), found.train.shape(), found.train.classes()), (2, [2, 1, 1].as_slice(), 3));
        let (mut row, test) = ([0.0; 2], found.test.unwrap());
        assert_eq!((found.train.read(1, &mut row).unwrap(), row), (2, [1.0, 1.0]));
        assert_eq!((test.read(0, &mut row).unwrap(), row), (0, [-1.0, -1.0]));
        assert!(
            found.unreadable.len() == 1
                && found.unreadable[0].ends_with("train.csv`: line 4: `x` in column 1 (`w`) is not a number")
        );
        write("test.csv", "w,d,class\n1,2,a\n");
        assert!(
            read(place.path())
                .err()
                .unwrap()
                .to_string()
                .contains("its columns are w, d, and those to train with w, h")
        );
        write("more.csv", "1,2,a\n");
        assert!(read(place.path()).err().unwrap().to_string().contains("2 tables to train with, and 1 to test with"));
        assert!(read(&place.path().join("test.csv")).unwrap().test.is_none());
    }
}
