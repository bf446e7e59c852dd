//! `sirtaki run`: a program as several processes that work together.

use anyhow::Result;

use crate::{
    args::run::Run,
    launch::{
        cores,
        dry_run::{self, Here},
        gpus,
        options::Options,
        outside::Outside,
        placement::Placement,
    },
    printer::Printer,
};

/// Decides what is wanted and where.
pub fn run(arguments: Run, printer: &mut Printer) -> Result<()> {
    let outside = Outside::real();
    let options = Options::resolve(arguments, &outside)?;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let placement = Placement::find(&options, &outside, &name)?;
    show(&options, &placement, &outside, printer)
}

/// `--dry-run`.
fn show(options: &Options, placement: &Placement, outside: &Outside<'_>, printer: &mut Printer) -> Result<()> {
    let readable = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let here = Here {
        cores: cores::usable(),
        gpus: gpus::usable((outside.get)("CUDA_VISIBLE_DEVICES").as_deref()),
        program: std::env::current_exe()?.display().to_string(),
        folder: std::env::current_dir()?.display().to_string(),
        variables: std::env::vars_os().filter_map(readable).collect(),
    };
    printer.data(dry_run::describe(options, placement, &here)?.trim_end())?;
    Ok(())
}
