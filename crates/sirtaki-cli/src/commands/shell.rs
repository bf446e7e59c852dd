//! What packages install beside the program: completions for shells, and manual pages. Both come from the definition of
//! the arguments, so they cannot be out of date.

use std::fs;

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_mangen::Man as Page;

use crate::{
    args::{Arguments, Completions, Man},
    printer::{Advice, Printer},
};

/// `sirtaki completions`.
pub fn completions(arguments: &Completions, printer: &mut Printer) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut visible(), "sirtaki", &mut script);
    printer.data(String::from_utf8(script)?.trim_end())?;
    Ok(())
}

/// `sirtaki man`.
pub fn man(arguments: &Man, printer: &mut Printer) -> Result<()> {
    if let Some(folder) = &arguments.all {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        return clap_mangen::generate_to(visible(), folder)
            .with_context(|| format!("cannot write manual pages to {}", folder.display()));
    }
    let mut all = visible();
    all.build();
    let mut command = &all;
    for name in &arguments.command {
        command = command.find_subcommand(name).ok_or_else(|| unknown(&arguments.command))?;
    }
    let mut page = Vec::new();
    Page::new(command.clone()).render(&mut page)?;
    printer.data(String::from_utf8(page)?.trim_end())?;
    Ok(())
}

/// The commands that people use.
fn visible() -> clap::Command {
    let mut all = Arguments::command();
    let names: Vec<_> = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    all = clap::Command::new("sirtaki");
    names.into_iter().fold(all, clap::Command::subcommand)
}

fn unknown(command: &[String]) -> Advice {
    Advice::new(format!("there is no command `{}`", command.join(" ")), "`sirtaki --help` lists the commands")
}
