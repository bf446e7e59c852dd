//! Any bytes are an archive of arrays or none; all its entries can be asked for.

use std::{io::Cursor, path::Path};

use sirtaki::data::npz::Npz;

pub(crate) fn check(bytes: &[u8]) {
    let Ok(mut npz) = Npz::new(Path::new("fuzz"), Cursor::new(bytes)) else { return };
    let names: Vec<String> = npz.names().map(str::to_owned).collect();
    for name in names {
        let _ = npz.read(&name);
    }
}
