//! Files that are there completely or not at all.

use std::{fs, io, io::Write, path::Path};

/// Puts a file with these contents in the place of `path`: written beside it, synced, renamed.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let beside = path.with_added_extension(format!("{}.new", std::process::id()));
    let written = fs::File::create(&beside).and_then(|mut file| file.write_all(contents).and_then(|()| file.sync_all()));
    let renamed = written.and_then(|()| fs::rename(&beside, path));
    if renamed.is_err() {
        let _ = fs::remove_file(&beside);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(folder.path(), b"x").is_err());
        assert!(replace(&folder.path().join("absent/a.txt"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
