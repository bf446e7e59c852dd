//! `--horovod` and `--tf1`: what `import horovod` and `import tensorflow` mean to the ranks.
//!
//! Folders of the Python package come first in `PYTHONPATH`: one that contains only a package `horovod`, and one that is
//! run when Python starts. Nothing is installed or replaced, so without the options an installed Horovod is found. The
//! Python of the ranks knows where the folders are; it is asked here, and they have to be in the same place on all hosts.

use std::process::{Command, Stdio};

use sirtaki_launch::{environment::Wish, outside::Outside, programs::python};

use super::options::Options;
use crate::printer::Advice;

const VARIABLE: &str = "PYTHONPATH";
const QUESTION: &str = "import sirtaki; print(sirtaki.__path__[0])";

/// Puts the folders into the variables of all ranks.
pub fn apply(options: &mut Options, outside: &Outside<'_>) -> Result<(), Advice> {
    let wanted = [("--horovod", "_horovod", options.horovod), ("--tf1", "_tf1", options.tf1)];
    let wanted = wanted.into_iter().filter(|(.., wanted)| *wanted);
    let (names, folders): (Vec<_>, Vec<_>) = wanted.map(|(option, folder, _)| (option, folder)).unzip();
    let package = ask(python(&options.job.program), &names.join(" "))?;
    let folder = folders.iter().map(|folder| format!("{package}/{folder}")).collect::<Vec<_>>().join(":");
    let wished = options.job.env.iter().position(|wish| wish.name == VARIABLE).map(|at| options.job.env.remove(at));
    let before = wished.and_then(|wish| wish.value).or_else(|| outside.variable(VARIABLE));
    let value = before.map_or(folder.clone(), |before| format!("{folder}:{before}"));
    options.job.env.push(Wish { name: VARIABLE.into(), value: Some(value) });
    Ok(())
}

fn ask(python: &str, option: &str) -> Result<String, Advice> {
    let advice = |problem: String| {
        Advice::new(problem, format!("{option} needs our package there: `{python} -m pip install sirtaki`"))
    };
    let output = Command::new(python).args(["-c", QUESTION]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| advice(format!("cannot run {python}: {error}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let last = text.lines().last().unwrap_or_default().trim().to_owned();
        return Err(advice(format!("{python} does not find the package sirtaki: {last}")));
    }
    // What Python runs at its start may print, too.
    Ok(String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_python_without_the_package_is_named() {
        let error = ask("false", "--horovod").unwrap_err();
        assert!(error.message.contains("false") && error.hint.contains("pip install sirtaki"), "{error:?}");
    }
}
