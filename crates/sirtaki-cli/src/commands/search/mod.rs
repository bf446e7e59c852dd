//! `sirtaki search`: many trials of a program, each with other settings, to find the best ones.
//!
//! - `prepare`: from what was typed to a study that can run.
//! - `slots`: where trials run; pure.
//! - `runner`: asks the study what to try, keeps the slots busy, and tells it what came of it.
//! - `trial`: one trial as a job of [`sirtaki_launch`].
//! - `live`: how far the study is, in one line; pure.
//! - `look`: what came of a study; `page`: the same with plots.

mod live;
mod look;
mod page;
mod prepare;
mod runner;
mod slots;
mod trial;

use std::path::Path;

use anyhow::Result;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
};
use sirtaki_launch::{ended::signal_name, placement::quote, tree};

use self::{
    prepare::Prepared,
    runner::{Over, Runner},
    trial::Event,
};
use crate::{
    args::{
        run::Page,
        search::{Look, Search},
    },
    commands::report::page::style,
    launch::progress::{Dashboard, Shown},
    printer::{Advice, Printer, Style},
    study::summary,
};

/// How long what trials left behind may take to end.
const CLEANING: std::time::Duration = std::time::Duration::from_secs(5);
/// The same when somebody asked twice.
const HURRY: std::time::Duration = std::time::Duration::from_millis(500);

/// Runs a study, or shows one.
pub fn run(arguments: Search, program: &Path, printer: &mut Printer) -> Result<u8> {
    if let Some(look) = &arguments.look {
        return match look {
            Look::Show(looked) => look::show(looked, printer),
            Look::Best(looked) => look::best(looked, printer),
            Look::Export(export) => look::export(export, printer),
            Look::Import(wanted) => look::import(wanted, printer),
            Look::Report(wanted) => look::report(wanted, printer),
        }
        .map(|()| 0);
    }
    let prepared = prepare::prepare(&arguments, printer)?;
    let quiet = arguments.quiet;
    if !quiet {
        printer.message(&begins(&prepared));
    }
    tree::adopt_orphans()?;
    let (to, events) = std::sync::mpsc::channel();
    listen(to.clone())?;
    let dashboard = arguments
        .dashboard
        .and_then(Page::port)
        .map(|port| Dashboard::start(port, Shown::Page(style())))
        .transpose()?;
    let mut runner = Runner::new(prepared, program, (to, events), quiet, printer)?;
    dashboard.into_iter().for_each(|page| runner.show_on(page));
    let over = runner.run();
    tree::kill_all(CLEANING);
    let Prepared { store, folder, .. } = runner.into_prepared();
    let study = store.study();
    printer.data(&format!("study {}: {}", study.definition().name, summary::states(study)))?;
    for line in summary::best(study) {
        printer.data(&line)?;
    }
    if !quiet {
        printer.message(&format!("trials and journal: {}", folder.display()));
    }
    closing(over, study.best().is_some(), printer)
}

fn begins(prepared: &Prepared) -> String {
    let definition = prepared.store.study().definition();
    let trials = definition.trials.map_or_else(|| "trials".to_owned(), |count| format!("{count} trials"));
    let ranks = match prepared.plan.ranks.get() {
        1 => String::new(),
        ranks => format!(" of {ranks} ranks"),
    };
    let at_a_time = prepared.slots.len();
    let objectives: Vec<String> = definition.objectives.iter().map(ToString::to_string).collect();
    let known = match prepared.store.study().trials().len() {
        0 => String::new(),
        count => format!(", {count} of them from before"),
    };
    format!("study {}: {}, {trials}{ranks}{known}, {at_a_time} at a time", definition.name, objectives.join(", "))
}

/// Passes signals on to the runner. A second one that ends programs is obeyed at once.
fn listen(to: std::sync::mpsc::Sender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT])?;
    std::thread::spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            if std::mem::replace(&mut asked, true) {
                tree::kill_all(HURRY);
                std::process::exit(128 + signal);
            }
            let _ = to.send(Event::Signal(signal));
        }
    });
    Ok(())
}

/// Why the study ended, and the exit code.
fn closing(over: Over, any: bool, printer: &mut Printer) -> Result<u8> {
    let again = || {
        let mut words: Vec<String> = std::env::args_os().skip(1).map(|word| quote(&word.to_string_lossy())).collect();
        if !words.iter().any(|word| word == "--resume") {
            words.insert(1.min(words.len()), "--resume".into());
        }
        format!("to continue: sirtaki {}", words.join(" "))
    };
    match over {
        Over::Done if any => Ok(0),
        Over::Done => Err(Advice::new("no trial finished", "`sirtaki search show` lists why").into()),
        Over::TimeLimit => {
            printer.message("the time limit is reached; nothing more can finish before it");
            printer.message(&again());
            Ok(0)
        }
        Over::Signal(signal) => {
            printer.message(&format!("interrupted by {}", signal_name(signal)));
            printer.message(&again());
            Ok((128 + signal) as u8)
        }
        Over::Failed(advice) => {
            printer.error(&advice.into());
            printer.labelled(Style::Plain, "note:", &again());
            Ok(1)
        }
    }
}
