//! `sirtaki doctor`: what this machine offers.
//!
//! Looking changes nothing: no file is written, no network is used, and libraries are opened only to ask for their
//! version.

mod container;
mod finding;
mod gpu;
mod machine;
mod mpi;
mod network;
mod software;

use anyhow::Result;

use self::finding::{Finding, State};
use crate::{
    args::Doctor,
    printer::{Printer, Style},
};

/// Looks at everything and prints it.
pub fn run(arguments: &Doctor, printer: &mut Printer) -> Result<()> {
    let findings = examine();
    if arguments.json {
        printer.data(&serde_json::to_string_pretty(&findings)?)?;
        return Ok(());
    }
    print(&findings, printer)?;
    Ok(())
}

/// Everything, in the order of the page.
fn examine() -> Vec<Finding> {
    let parts = [machine::examine(), network::examine(), gpu::examine(), mpi::examine(), software::examine()];
    parts.into_iter().flatten().collect()
}

fn print(findings: &[Finding], printer: &mut Printer) -> std::io::Result<()> {
    let width = findings.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
    for finding in findings {
        let mark = printer.paint(finding.state.style(), finding.state.mark());
        let name = printer.paint(Style::Bold, &format!("{:<width$}", finding.name));
        printer.data(&format!("{mark} {name}  {}", finding.value))?;
        if let Some(hint) = &finding.hint {
            let hint = printer.paint(Style::Faint, &format!("hint: {hint}"));
            printer.data(&format!("  {:<width$}  {hint}", ""))?;
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    printer.data("")?;
    printer.data(&format!(
        "{} {} found   {} {} not there   {} {} to look at",
        State::Ok.mark(),
        count(State::Ok),
        State::Missing.mark(),
        count(State::Missing),
        State::Warning.mark(),
        count(State::Warning)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_has_these() {
        let findings = examine();
        for name in ["cores", "memory", "shared memory", "open files"] {
            let found = findings.iter().find(|finding| finding.name == name).unwrap_or_else(|| panic!("no {name}"));
            assert!(found.state != State::Missing && !found.value.is_empty(), "{found:?}");
        }
        assert!(findings.iter().any(|finding| finding.name == "interface lo"), "{findings:#?}");
    }

    #[test]
    fn whatever_is_not_fine_says_so_in_words_and_advises() {
        for finding in examine() {
            assert!(finding.state == State::Ok || finding.hint.is_some() || finding.state == State::Missing);
            assert!(finding.state != State::Warning || finding.hint.is_some(), "{finding:?}");
        }
    }
}
