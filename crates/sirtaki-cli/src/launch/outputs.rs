//! Whether a job can write the files it is asked for. Checked before anything starts, so that hours of work are not
//! lost because of a wrong path.

use std::path::Path;

use sirtaki_engine::{files, job::parse::switch};

use super::{options::Options, runs};
use crate::{env, printer::Advice};

/// Checks the files and makes the folder of the run. `folder` is where the ranks work; the files are those of rank 0,
/// which is on this host.
pub fn prepare(options: &mut Options, folder: &Path) -> Result<(), Advice> {
    for (name, option) in [(env::TIMELINE, "--timeline"), (env::PROFILE, "--profile")] {
        if let Some(file) = wish(options, name).filter(|value| switch(value).is_none()) {
            check(&folder.join(file), option)?;
        }
    }
    if let Some(events) = wish(options, env::TENSORBOARD) {
        check_folder(&folder.join(events))?;
    }
    if let Some(wanted) = &options.record {
        options.record_in(runs::reserve(wanted, options.record_is_new)?);
    }
    Ok(())
}

/// What the ranks are given as this variable.
fn wish(options: &Options, name: &str) -> Option<String> {
    let set = options.job.env.iter().find(|wish| wish.name == name)?;
    set.value.clone().or_else(|| env::process(name))
}

/// Makes the folder for TensorBoard's files, and fails if nothing can be written there.
fn check_folder(folder: &Path) -> Result<(), Advice> {
    files::make_private(folder).and_then(|()| files::check(&folder.join("events"))).map_err(|error| {
        let hint = "name a folder that can be made and written to with --tensorboard";
        Advice::new(format!("cannot write to {}: {error}", folder.display()), hint)
    })
}

/// Fails if this file, given by that option, cannot be written.
pub fn check(file: &Path, option: &str) -> Result<(), Advice> {
    files::check(file).map_err(|error| {
        Advice::new(format!("cannot write {}: {error}", file.display()), format!("name another file with {option}"))
    })
}
