//! The tables of a study's page: what was searched, and every trial.

use sirtaki_launch::words::seconds_in_words;
use sirtaki_search::{
    journal::Json,
    study::{CONTINUES, Study},
};

use crate::{
    commands::report::document::{Table, TableRow},
    study::{summary, template},
};

pub(super) fn tables(study: &Study) -> Vec<Table> {
    vec![trials(study), definition(study)]
}

fn trials(study: &Study) -> Table {
    let objectives = study.definition().objectives.iter().map(|objective| objective.name.clone());
    let names: Vec<String> = study.definition().space.parameters().iter().map(|known| known.name.clone()).collect();
    let best: Vec<u64> = match study.definition().objectives.len() {
        1 => study.best().map(|trial| trial.number).into_iter().collect(),
        _ => study.front().iter().map(|trial| trial.number).collect(),
    };
    let row = |trial: &sirtaki_search::study::Trial| {
        let count = study.definition().objectives.len();
        let value = |index: usize| trial.values.get(index).map_or_else(String::new, |value| summary::short(*value));
        let parameter = |name: &String| {
            let known = trial.setting(name);
            known.map_or_else(String::new, |setting| match setting.domain.count() {
                Some(_) => template::word(&setting.domain, setting.value),
                None => summary::short(setting.value),
            })
        };
        let time = summary::seconds(trial).map_or_else(String::new, seconds_in_words);
        let reason = trial.reason().filter(|_| trial.state.is_over()).map(str::to_owned);
        let continues = trial.attribute(CONTINUES).and_then(Json::count);
        let goes_on = continues.map(|earlier| format!("goes on where trial {earlier} was stopped"));
        let reason = reason.or(goes_on).unwrap_or_default();
        let mark = if best.contains(&trial.number) { "★ " } else { "" };
        let mut cells = vec![format!("{mark}{}", trial.number), time, trial.state.word().to_owned()];
        cells.extend((0..count).map(value));
        cells.extend(names.iter().map(parameter));
        cells.push(reason.lines().next().unwrap_or_default().to_owned());
        TableRow { cells, marked: false }
    };
    Table {
        title: "All trials".into(),
        note: "A star marks the best. Of trials that failed, the last column says why, and of those that go on, with what; their folders have the rest."
            .into(),
        head: vec!["#Trial", "#Time", "State"],
        more: objectives.chain(names.iter().cloned()).chain(["Reason".to_owned()]).collect(),
        rows: study.trials().iter().map(row).collect(),
    }
}

fn definition(study: &Study) -> Table {
    let definition = study.definition();
    let objectives: Vec<String> = definition.objectives.iter().map(ToString::to_string).collect();
    let mut rows = vec![
        ("objective".to_owned(), objectives.join(", ")),
        ("sampler".into(), definition.sampler.clone()),
        ("stopping early".into(), definition.stopper.to_string()),
        ("seed".into(), definition.seed.to_string()),
        ("trials wanted".into(), definition.trials.map_or_else(|| "no limit".into(), |trials| trials.to_string())),
    ];
    let lines = definition.space.lines();
    let parts = lines.iter().filter_map(|line| line.split_once('='));
    rows.extend(parts.map(|(name, domain)| (format!("space: {name}"), domain.to_owned())));
    Table {
        title: "What was searched".into(),
        note: String::new(),
        head: vec!["Setting", "Value"],
        more: Vec::new(),
        rows: rows.into_iter().map(|(name, value)| TableRow { cells: vec![name, value], marked: false }).collect(),
    }
}
