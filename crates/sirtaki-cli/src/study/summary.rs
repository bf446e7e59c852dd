//! A study in words and as data. All trials are counted, those that failed among them: a best value means little without
//! the number of attempts behind it.

use serde_json::{Value, json};
use sirtaki_launch::words::seconds_in_words;
use sirtaki_search::{
    journal::Json,
    study::{CONTINUES, FROM, State, Study, Trial},
};

use super::template::{value_as_json, word};

const STATES: [State; 7] =
    [State::Finished, State::Stopped, State::Diverged, State::TimedOut, State::Failed, State::Running, State::Waiting];

/// How many trials there are in each state, such as `180 finished, 15 stopped early, 3 failed`.
pub fn states(study: &Study) -> String {
    let count = |state: State| study.trials().iter().filter(|trial| trial.state == state).count();
    let parts: Vec<String> = STATES
        .into_iter()
        .map(|state| (count(state), state.word()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if parts.is_empty() { "no trials yet".into() } else { parts.join(", ") }
}

/// A number as people read it: short, and exact enough to tell trials apart.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size != 0.0 && !(1e-4..1e6).contains(&size) && size.is_finite() => format!("{value:.4e}"),
        _ => {
            let text = format!("{value:.6}");
            let trimmed = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
            trimmed.to_owned()
        }
    }
}

/// The parameters of a trial, such as `lr=0.01 optimizer=sgd`.
pub fn parameters(trial: &Trial) -> String {
    let one = |setting: &sirtaki_search::journal::Setting| {
        let whole = setting.domain.count().is_some();
        let text = if whole { word(&setting.domain, setting.value) } else { short(setting.value) };
        format!("{}={text}", setting.name)
    };
    trial.settings.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// How long a trial took, where it ended.
pub fn seconds(trial: &Trial) -> Option<f64> {
    let (start, end) = (trial.start?, trial.end?);
    (trial.attribute(FROM).is_none()).then_some((end.0 - start.0) as f64 / 1e6)
}

/// The values of a trial, or the last one that it reported.
fn values(trial: &Trial) -> String {
    match (&trial.values[..], trial.reports.last()) {
        ([], Some((step, value))) => format!("{} at {step}", short(*value)),
        (values, _) => values.iter().map(|value| short(*value)).collect::<Vec<_>>().join(" "),
    }
}

/// One line per trial, with a heading.
pub fn table(study: &Study) -> Vec<String> {
    let names: Vec<&str> = study.definition().objectives.iter().map(|objective| objective.name.as_str()).collect();
    let mut rows = vec![["trial".into(), "state".into(), names.join(" "), "time".into(), "parameters".into()]];
    for trial in study.trials() {
        let time = seconds(trial).map_or_else(String::new, seconds_in_words);
        let state = trial.state.word().to_owned();
        rows.push([trial.number.to_string(), state, values(trial), time, parameters(trial)]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 5]| {
        let [number, state, values, time, rest] = row;
        let [a, b, c, d] = widths;
        format!("{number:>a$}  {state:<b$}  {values:>c$}  {time:>d$}  {rest}").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

/// The best trial, or all that no other beats, in a few lines.
pub fn best(study: &Study) -> Vec<String> {
    let objectives = &study.definition().objectives;
    let trials = if objectives.len() > 1 { study.front() } else { Vec::from_iter(study.best()) };
    let mut lines = Vec::new();
    for trial in trials {
        let values = objectives.iter().zip(&trial.values);
        let values: Vec<String> =
            values.map(|(objective, value)| format!("{} {}", objective.name, short(*value))).collect();
        lines.push(format!("trial {}: {}", trial.number, values.join(", ")));
        lines.extend(
            trial
                .settings
                .iter()
                .map(|setting| format!("  {} = {}", setting.name, word(&setting.domain, setting.value))),
        );
    }
    lines
}

/// A trial as data.
pub fn trial_as_json(study: &Study, trial: &Trial) -> Value {
    let number = |value: f64| if value.is_finite() { json!(value) } else { json!(value.to_string()) };
    let objectives = study.definition().objectives.iter();
    let values: serde_json::Map<String, Value> =
        objectives.zip(&trial.values).map(|(objective, value)| (objective.name.clone(), number(*value))).collect();
    let parameters: serde_json::Map<String, Value> = trial
        .settings
        .iter()
        .map(|setting| (setting.name.clone(), value_as_json(&setting.domain, setting.value)))
        .collect();
    json!({
        "number": trial.number,
        "state": trial.state.word(),
        "values": values,
        "parameters": parameters,
        "reports": trial.reports.iter().map(|(step, value)| json!([step, number(*value)])).collect::<Vec<_>>(),
        "started": trial.start.map(|time| time.to_string()),
        "ended": trial.end.map(|time| time.to_string()),
        "seconds": seconds(trial),
        "attempts": trial.attempts,
        "continues": trial.attribute(CONTINUES).and_then(Json::count),
        "reason": trial.reason(),
        "slot": trial.attribute(super::SLOT).and_then(|slot| slot.text()),
    })
}

/// The whole study as data.
pub fn as_json(study: &Study) -> Value {
    let definition = study.definition();
    json!({
        "study": definition.name,
        "objectives": definition.objectives.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "space": definition.space.lines(),
        "sampler": definition.sampler,
        "stop": definition.stopper.to_string(),
        "seed": definition.seed,
        "best": study.best().map(|trial| trial.number),
        "trials": study.trials().iter().map(|trial| trial_as_json(study, trial)).collect::<Vec<_>>(),
    })
}

/// One row per trial, with a column for every objective and parameter.
pub fn as_csv(study: &Study) -> String {
    let objectives: Vec<String> =
        study.definition().objectives.iter().map(|objective| objective.name.clone()).collect();
    let names: Vec<String> = study.definition().space.parameters().iter().map(|known| known.name.clone()).collect();
    let heading = ["trial".to_owned(), "state".into(), "seconds".into()]
        .into_iter()
        .chain(objectives.clone())
        .chain(names.clone());
    let mut text = line(heading);
    for trial in study.trials() {
        let values = (0..objectives.len())
            .map(|index| trial.values.get(index).map_or_else(String::new, |value| format!("{value:?}")));
        let parameter = |name: &String| {
            trial.setting(name).map_or_else(String::new, |setting| word(&setting.domain, setting.value))
        };
        let seconds = seconds(trial).map_or_else(String::new, |seconds| format!("{seconds:.3}"));
        let row = [trial.number.to_string(), trial.state.word().to_owned(), seconds];
        text += &line(row.into_iter().chain(values).chain(names.iter().map(parameter)));
    }
    text
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let quote = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    cells.map(quote).collect::<Vec<_>>().join(",") + "\n"
}

#[cfg(test)]
mod tests {
    use sirtaki_search::{
        journal::Time,
        study::{Archive, Definition, Ending},
    };

    use super::*;

    fn study() -> Study {
        let space = "optimizer=sgd|'a,b',lr=log:1e-5..1,momentum=0..0.9 when optimizer == 'sgd'".parse().unwrap();
        let mut study = Study::create(Definition::new("s", space), Archive::default(), "t").unwrap();
        for number in 0..4 {
            study.ask(Time(1_000_000)).unwrap();
            let ending = match number {
                1 => Ending::Failed("rank 0 ended with exit code 1".into()),
                2 => Ending::Finished(vec![f64::NAN]),
                _ => Ending::Finished(vec![0.5 - number as f64 / 10.0]),
            };
            study.tell(number, ending, Time(3_500_000)).unwrap();
        }
        study.ask(Time(4_000_000)).unwrap();
        study.report(4, 3, 0.25).unwrap();
        study
    }

    #[test]
    fn all_trials_are_counted() {
        assert_eq!(states(&study()), "2 finished, 1 diverged, 1 failed, 1 running");
        let table = table(&study());
        assert_eq!(table.len(), 6);
        assert_eq!(table[0], "trial  state         value   time  parameters");
        assert!(
            table[1].contains("finished") && table[1].contains("0.5") && table[1].contains("2.5 s"),
            "{}",
            table[1]
        );
        assert!(table[5].contains("0.25 at 3"), "{}", table[5]);
        let best = best(&study());
        assert_eq!(best[0], "trial 3: value 0.2");
        assert!(best.iter().any(|line| line.starts_with("  lr = ")));
    }

    #[test]
    fn data_has_every_trial_and_parameter() {
        let study = study();
        let data = as_json(&study);
        assert_eq!((&data["best"], &data["trials"][1]["reason"]), (&json!(3), &json!("rank 0 ended with exit code 1")));
        assert_eq!(data["trials"][4]["reports"], json!([[3, 0.25]]));
        let csv = as_csv(&study);
        assert_eq!(csv.lines().next().unwrap(), "trial,state,seconds,value,optimizer,lr,momentum");
        assert_eq!(csv.lines().count(), 6);
        assert!(csv.contains("\"a,b\"") || csv.contains(",sgd,"), "{csv}");
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in
            [(0.0, "0"), (0.31, "0.31"), (1e-7, "1.0000e-7"), (123456.5, "123456.5"), (3e9, "3.0000e9")]
        {
            assert_eq!(short(value), text);
        }
        assert_eq!(short(f64::NAN), "NaN");
    }
}
