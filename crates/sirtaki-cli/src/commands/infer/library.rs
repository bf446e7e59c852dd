//! ONNX Runtime and HDF5's library, found as this process sees the system.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use sirtaki_infer::{
    InferError,
    onnx::{Candidates, Runtime},
};
use sirtaki_volume::format::{Hdf5Candidates, hdf5_from};

use crate::env;

/// Prints the folder of a package without importing it.
const WHERE: &str = "import importlib.util as u, sys; s = u.find_spec(sys.argv[1]); \
                     print(s.submodule_search_locations[0] if s else '')";

/// Loads ONNX Runtime: from where the user says, where it was on another host, or where it is found.
pub(crate) fn find(hint: Option<PathBuf>) -> Result<Runtime, InferError> {
    let given = said(env::ONNXRUNTIME).or(hint.filter(|path| path.is_file()));
    Runtime::find(&Candidates { given, package: &|| package("onnxruntime", None) })
}

/// Tells this process where HDF5's library may be, which is looked for when the first file needs it: where the user says,
/// where it was on another host, where the system knows it, or in the packages of a Python, this one first.
pub fn look_for_hdf5(hint: Option<PathBuf>, python: Option<PathBuf>) {
    let given = said(env::HDF5).or(hint.filter(|path| path.is_file()));
    hdf5_from(Hdf5Candidates { given, package: Box::new(move || package("h5py", python.clone())) });
}

fn said(variable: &str) -> Option<PathBuf> {
    env::process(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The folder of a package of Python.
fn package(name: &str, python: Option<PathBuf>) -> Option<PathBuf> {
    python.into_iter().chain(["python3", "python"].map(PathBuf::from)).find_map(|python| {
        let output =
            Command::new(python).args(["-c", WHERE, name]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (!folder.is_empty()).then(|| folder.into())
    })
}
