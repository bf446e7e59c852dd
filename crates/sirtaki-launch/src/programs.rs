//! What a command runs, as far as can be seen from its words.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Whether a word names a program that can be run: a file by its path, or a name in `PATH`.
pub fn is_program(word: &str) -> bool {
    match word.contains('/') {
        true => is_executable(Path::new(word)),
        false => in_path(word).any(|path| is_executable(&path)),
    }
}

/// Whether this is a file that may be run.
pub(crate) fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Where a name may be found.
pub(crate) fn in_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).map(|folder| folder.join(name)).collect::<Vec<_>>().into_iter()
}

/// The Python that ranks run.
pub fn python(program: &[String]) -> &str {
    let is_python = |word: &&String| {
        Path::new(word.as_str()).file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
    };
    program.first().filter(is_python).map_or("python3", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_python_of_the_ranks_is_found() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(python(&words("/opt/a/bin/python3.12 train.py")), "/opt/a/bin/python3.12");
        assert_eq!(python(&words("./train.py --lr 1")), "python3");
    }

    #[test]
    fn programs_are_told_from_other_files() {
        assert!(is_program("sh") && is_program("/bin/sh"));
        assert!(!is_program("/etc/passwd") && !is_program("/bin") && !is_program("no-such-program"));
    }
}
