//! Any bytes are an archive of arrays or none; all its entries can be asked for.
#![no_main]

use std::{io::Cursor, path::Path};

use libfuzzer_sys::fuzz_target;
use sirtaki::data::npz::Npz;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut npz) = Npz::new(Path::new("fuzz"), Cursor::new(bytes)) else { return };
    let names: Vec<String> = npz.names().map(str::to_owned).collect();
    for name in names {
        let _ = npz.read(&name);
    }
});
