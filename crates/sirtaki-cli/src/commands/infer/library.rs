//! ONNX Runtime, found as this process sees the system.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use sirtaki_infer::{
    InferError,
    onnx::{Candidates, Runtime},
};

use crate::env;

/// Prints the folder of the package without importing it.
const WHERE: &str = "import importlib.util as u; s = u.find_spec('onnxruntime'); \
                     print(s.submodule_search_locations[0] if s else '')";

/// Loads it: from where the user says, where it was on another host, or where it is found.
pub(crate) fn find(hint: Option<PathBuf>) -> Result<Runtime, InferError> {
    let said = env::process(env::ONNXRUNTIME).filter(|path| !path.is_empty()).map(PathBuf::from);
    let given = said.or(hint.filter(|path| path.is_file()));
    Runtime::find(&Candidates { given, package: &package })
}

/// The folder of Python's package.
fn package() -> Option<PathBuf> {
    ["python3", "python"].into_iter().find_map(|python| {
        let output =
            Command::new(python).args(["-c", WHERE]).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (!folder.is_empty()).then(|| folder.into())
    })
}
