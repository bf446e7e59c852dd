//! A study by hand, for checks against Optuna and for figures.
//!
//! - `study write` prints a journal with two studies. In one, trials end in all ways there are, some run and one waits; the
//!   other has two objectives, and its parameters come one by one.
//! - `study read FILE` says what is in a journal, whoever wrote it, and asks for one trial more.
//! - `study speed [FINISHED]...` prints how long one ask and one tell take, lines of the journal included, when so many
//!   trials have finished, with 11 parameters.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Instant};

use sirtaki_search::{
    SearchError,
    journal::{Time, read},
    sampler::SAMPLERS,
    space::{Choice, Domain, Space},
    study::{Archive, Definition, Ending, State, Study},
};

const SPACE: &str = "optimizer=sgd|adam,lr=log:1e-5..1,layers=int:1..6,width=logint:8..1024,dropout=float:0..0.5:0.1,\
                     momentum=float:0..0.99 when optimizer == 'sgd'";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("write") => print!("{}", write()?),
        Some("read") => print!("{}", summary(&std::fs::read(&words[1])?)?),
        Some("speed") => {
            let counts: Vec<u64> = words[1..].iter().filter_map(|word| word.parse().ok()).collect();
            speed(if counts.is_empty() { &[1000, 10_000] } else { &counts })?;
        }
        _ => return Err("usage: study write | read FILE | speed [FINISHED]...".into()),
    }
    Ok(())
}

fn write() -> Result<String, SearchError> {
    let mut definition = Definition::new("from sirtaki", SPACE.parse()?);
    definition.objectives = vec!["minimize val_loss".parse()?];
    definition.stopper = "asha:min=1,max=9".parse()?;
    definition.seed = 7;
    let mut study = Study::create(definition, Archive::default(), "sirtaki-0")?;
    study.enqueue(&[("optimizer".into(), Choice::Text("adam".into())), ("lr".into(), Choice::Number(0.001))])?;
    let second = |count: u64| Time(1_795_000_000_000_000 + count as i64 * 1_000_000);
    for turn in 0..60 {
        let Some(asked) = study.ask(second(2 * turn))? else { break };
        let loss = (asked.point.0[1].unwrap_or(1.0).log10() + 3.0).powi(2) + 0.1 * asked.point.0[0].unwrap_or(0.0);
        study.constrain(asked.number, "memory", asked.point.0[3].unwrap_or(0.0) - 1000.0)?;
        let mut stop = false;
        for step in 1..=9 {
            stop = stop || study.report(asked.number, step, loss + 1.0 / step as f64)?;
        }
        let ending = match turn {
            57.. => continue,
            11 => Ending::Finished(vec![f64::NAN]),
            12 => Ending::Failed("exit status 1: out of memory".into()),
            13 => Ending::TimedOut,
            14 => Ending::Lost("host b is down".into()),
            _ if stop => Ending::Stopped,
            _ => Ending::Finished(vec![loss]),
        };
        study.tell(asked.number, ending, second(2 * turn + 1))?;
    }
    study.enqueue(&[("lr".into(), Choice::Number(0.01))])?;
    let first = study.take_lines();
    Ok(first + &write_two_objectives(study.archive().clone())?)
}

fn write_two_objectives(archive: Archive) -> Result<String, SearchError> {
    let mut definition = Definition::new("two objectives", Space::default());
    definition.objectives = vec!["minimize loss".parse()?, "maximize speed".parse()?];
    let mut study = Study::create(definition, archive, "sirtaki-0")?;
    while let Some(number) = study.ask_open(Time(1_795_000_000_000_000))? {
        let depth = study.suggest(number, "depth", &Domain::Int { low: 1, high: 9, log: false, step: 2 })?;
        let mut speed = 10.0 - depth;
        if depth > 4.0 {
            speed -= study.suggest(number, "skip", &Domain::Choices(vec![Choice::Flag(true), Choice::Null]))?;
        }
        study.tell(number, Ending::Finished(vec![1.0 / depth, speed]), Time(1_795_000_001_000_000))?;
        if number == 30 {
            break;
        }
    }
    Ok(study.take_lines())
}

fn summary(bytes: &[u8]) -> Result<String, SearchError> {
    let reading = read(bytes)?;
    let mut text = String::new();
    if let Some(torn) = &reading.torn {
        text += &format!("the last line is torn and left out: {torn}\n");
    }
    let archive = Archive::new(reading.records);
    for record in archive.studies() {
        let mut study = Study::open(archive.clone(), &record.name, "sirtaki-1")?;
        let count = |state: State| study.trials().iter().filter(|trial| trial.state == state).count();
        let states = [
            State::Waiting,
            State::Running,
            State::Finished,
            State::Stopped,
            State::Diverged,
            State::TimedOut,
            State::Failed,
        ];
        let states: Vec<String> = states.iter().map(|state| format!("{} {}", count(*state), state.word())).collect();
        text += &format!("study `{}` in {}\n  {}\n", record.name, study.definition().space, states.join(", "));
        if let Some(best) = study.best() {
            let settings: Vec<String> = best.settings.iter().map(|s| format!("{}={}", s.name, s.value)).collect();
            text += &format!("  front: {:?}\n", study.front().iter().map(|trial| trial.number).collect::<Vec<_>>());
            text += &format!("  best: trial {} with {:?}: {}\n", best.number, best.values, settings.join(" "));
        }
        text += &format!("  next: {:?}\n", study.ask(Time(0))?);
    }
    Ok(text)
}

fn speed(counts: &[u64]) -> Result<(), SearchError> {
    let mut space: Vec<String> = (0..8).map(|index| format!("x{index}=float:0..1")).collect();
    space.extend(["lr=log:1e-6..1", "w=logint:8..1024", "act=relu|tanh|gelu"].map(str::to_owned));
    println!("{:10} {:>9} {:>10} {:>10} {:>10}", "sampler", "finished", "ask ms", "tell ms", "both ms");
    for sampler in SAMPLERS.iter().filter(|sampler| !matches!(sampler.name, "grid")) {
        for &count in counts {
            // Only samplers that answer quickly in a long study are of interest there.
            if count > 1000 && !matches!(sampler.name, "random" | "sobol" | "tpe" | "auto") {
                continue;
            }
            let definition =
                Definition { sampler: "random".into(), ..Definition::new("speed", space.join(",").parse()?) };
            let mut study = Study::create(definition, Archive::default(), "sirtaki-0")?;
            run(&mut study, count)?;
            let lines = study
                .take_lines()
                .replace("\"sirtaki:sampler\":\"random\"", &format!("\"sirtaki:sampler\":\"{}\"", sampler.name));
            let mut study = Study::open(Archive::new(read(lines.as_bytes())?.records), "speed", "sirtaki-0")?;
            run(&mut study, 2)?;
            let mut times = run(&mut study, 11)?;
            times.sort_by(|a, b| (a.0 + a.1).total_cmp(&(b.0 + b.1)));
            let (ask, tell) = times[5];
            println!("{:10} {count:9} {ask:10.3} {tell:10.3} {:10.3}", sampler.name, ask + tell);
        }
    }
    Ok(())
}

/// Milliseconds of each ask and tell of some trials.
fn run(study: &mut Study, count: u64) -> Result<Vec<(f64, f64)>, SearchError> {
    let mut times = Vec::new();
    for _ in 0..count {
        let begin = Instant::now();
        let Some(asked) = study.ask(Time(0))? else { break };
        let lines = if count < 100 { study.take_lines().len() } else { 0 };
        let ask = begin.elapsed().as_secs_f64();
        let loss = asked.point.0[..8].iter().flatten().map(|x| x * x).sum::<f64>();
        let begin = Instant::now();
        study.tell(asked.number, Ending::Finished(vec![loss]), Time(lines as i64))?;
        if count < 100 {
            study.take_lines();
        }
        times.push((ask * 1e3, begin.elapsed().as_secs_f64() * 1e3));
    }
    Ok(times)
}
