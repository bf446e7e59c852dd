//! Files that are complete or as they were before, whatever happens meanwhile.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::Path,
};

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
