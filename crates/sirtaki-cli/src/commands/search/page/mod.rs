//! A study as a page: one file without scripts, as reports of runs are. Every trial is in it, also those that failed.

mod contours;
mod figures;
mod tables;

use sirtaki_launch::words::seconds_in_words;
use sirtaki_search::study::{State, Study};

use crate::{
    commands::report::{
        document::{Document, Key},
        figures::Section,
        page::{self, Appearance},
    },
    study::summary,
};

/// How to read the figures, below every page.
const READING: [&str; 3] = [
    "A trial is finished when it ended by itself with a value; one that was stopped early has the last value it reported.",
    "Importance: the share of the spread of values that a parameter explains on its own, by functional ANOVA over the \
     trials that finished.",
    "Every trial of the study is counted and listed.",
];

/// The whole page, for a file.
pub(super) fn write(study: &Study) -> String {
    assemble(study, document(study), Appearance::Inside)
}

/// The page of a study that runs; `standing` says how far it is.
pub(super) fn live(study: &Study, standing: &str) -> String {
    let mut document = document(study);
    document.notes.insert(0, standing.to_owned());
    assemble(study, document, Appearance::Live)
}

fn assemble(study: &Study, document: Document, appearance: Appearance) -> String {
    let sections = [
        Section { title: "Course".into(), figures: figures::course(study) },
        Section { title: "Parameters".into(), figures: figures::parameters(study) },
    ];
    let sections: Vec<Section> = sections.into_iter().filter(|section| !section.figures.is_empty()).collect();
    page::assemble(&document, "", &sections, &READING, appearance)
}

fn document(study: &Study) -> Document {
    let definition = study.definition();
    let objectives: Vec<String> = definition.objectives.iter().map(ToString::to_string).collect();
    let several = objectives.len() > 1;
    let sentence = match (study.best(), several) {
        (None, _) => "No trial has finished yet.".to_owned(),
        (Some(_), true) => format!("{} trials that no other beats in every objective.", study.front().len()),
        (Some(best), false) => {
            let name = &definition.objectives[0].name;
            format!(
                "Best {name}: {} in trial {} ({})",
                summary::short(best.values[0]),
                best.number,
                summary::parameters(best)
            )
        }
    };
    Document {
        title: format!("Study {}", definition.name),
        sentence,
        census: format!("{}. {} trials: {}.", objectives.join(", "), study.trials().len(), summary::states(study)),
        keys: keys(study),
        notes: notes(study),
        tables: tables::tables(study),
        links: Vec::new(),
    }
}

fn keys(study: &Study) -> Vec<Key> {
    let count = |state: State| study.trials().iter().filter(|trial| trial.state == state).count();
    let spent: f64 = study.trials().iter().filter_map(summary::seconds).sum();
    let mut keys = vec![Key {
        name: "trials",
        value: study.trials().len().to_string(),
        detail: format!("{} finished, {} stopped early", count(State::Finished), count(State::Stopped)),
    }];
    if let (Some(best), [objective]) = (study.best(), &study.definition().objectives[..]) {
        let detail = format!("{}, trial {}", objective.name, best.number);
        keys.push(Key { name: "best", value: summary::short(best.values[0]), detail });
    }
    keys.push(Key { name: "time of trials", value: seconds_in_words(spent), detail: "all of them together".into() });
    keys
}

fn notes(study: &Study) -> Vec<String> {
    let failed = study.trials().iter().filter(|trial| trial.state == State::Failed).count();
    let running = study.trials().iter().filter(|trial| !trial.state.is_over()).count();
    let mut notes = Vec::new();
    notes.extend((failed > 0).then(|| format!("{failed} trials failed; the table says why.")));
    notes.extend((running > 0).then(|| format!("{running} trials have not ended: the study is not complete.")));
    notes
}
