//! What packages install along with the program: completions for shells, and manual pages. Both come from the
//! definition of the arguments, so they cannot be out of date.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_mangen::Man as Page;

use crate::{
    args::{Arguments, Completions, Man},
    printer::{Advice, Printer},
};

/// `sirtaki completions`.
pub fn completions(arguments: &Completions, printer: &mut Printer) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut for_people(), "sirtaki", &mut script);
    printer.data(String::from_utf8(script)?.trim_end())?;
    Ok(())
}

/// `sirtaki man`.
pub fn man(arguments: &Man, printer: &mut Printer) -> Result<()> {
    let mut all = without_help_command(for_people());
    all.build();
    match &arguments.all {
        Some(folder) => {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
            write(&all, folder)
        }
        None => {
            let mut command = &all;
            for name in &arguments.command {
                command = command.find_subcommand(name).ok_or_else(|| unknown(&arguments.command))?;
            }
            printer.data(page(command)?.1.trim_end())?;
            Ok(())
        }
    }
}

/// The page of `command` and those of the commands below it.
fn write(command: &Command, folder: &Path) -> Result<()> {
    let (name, text) = page(command)?;
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    command.get_subcommands().try_for_each(|command| write(command, folder))
}

/// File name and text of a page.
fn page(command: &Command) -> Result<(String, String)> {
    let page = Page::new(command.clone()).source(concat!("sirtaki ", env!("CARGO_PKG_VERSION")));
    let mut text = Vec::new();
    page.render(&mut text)?;
    Ok((page.get_filename(), String::from_utf8(text)?))
}

/// The commands without those that only the program itself uses.
fn for_people() -> Command {
    let all = Arguments::command();
    let bare = Command::new("sirtaki").version(env!("CARGO_PKG_VERSION"));
    let bare = bare.about(all.get_about().cloned().unwrap_or_default());
    let bare = bare.after_help(all.get_after_help().cloned().unwrap_or_default());
    bare.subcommands(all.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

/// `help` explains itself and needs no page.
fn without_help_command(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help_command)
}

fn unknown(command: &[String]) -> Advice {
    Advice::new(format!("there is no command `{}`", command.join(" ")), "`sirtaki --help` lists the commands")
}
