//! Files that are complete or as they were before, whatever happens meanwhile; folders that are the user's alone.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Write},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

/// Makes a folder, and those above it that are missing, for this user alone. One that is there keeps its permissions:
/// whoever wants to share makes it first, or opens it with `chmod`.
pub fn make_private(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Writes a file beside its place, brings it to disk and moves it there.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    // Several threads of a process may write it at once.
    let unique = (std::process::id(), rustix::thread::gettid().as_raw_nonzero());
    let beside = path.with_file_name(format!(".{name}.{}.{}", unique.0, unique.1));
    let written = (|| {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}
