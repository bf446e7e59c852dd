//! Any order of asks, reports, ends, deaths and restarts, and the single rules.

use proptest::prelude::*;

use super::*;
use crate::{
    journal::{Time, read},
    sampler::Outcome,
    space::{Choice, Domain},
    stopper::Stopper,
};

const SPACE: &str = "optimizer=sgd|adam,lr=log:1e-5..1,layers=int:1..6,momentum=float:0..0.99 when optimizer == 'sgd'";

fn definition() -> Definition {
    let stopper = Stopper::Asha { min: 1, max: 9, factor: 3, promote: true };
    let sampler = "tpe".into();
    Definition { seed: 7, sampler, stopper, trials: Some(20), ..Definition::new("s", SPACE.parse().unwrap()) }
}

fn study() -> Study {
    Study::create(definition(), Archive::default(), "test").unwrap()
}

fn reopened(journal: &str) -> Study {
    let reading = read(journal.as_bytes()).unwrap();
    Study::open(Archive::new(reading.records), "s", "test").unwrap()
}

/// What somebody does with a study. The number picks one of the running trials.
#[derive(Clone, Debug)]
enum Action {
    Ask,
    Enqueue,
    Report(prop::sample::Index, i64, f64),
    Constrain(prop::sample::Index, f64),
    Tell(prop::sample::Index, Ending),
    Restart(prop::sample::Index),
}

fn any_action() -> impl Strategy<Value = Action> {
    let which = any::<prop::sample::Index>();
    let ending = prop_oneof![
        5 => (-9.0..9.0f64).prop_map(|value| Ending::Finished(vec![value])),
        1 => Just(Ending::Finished(vec![f64::NAN])),
        1 => Just(Ending::Stopped),
        1 => Just(Ending::Failed("exit 1".into())),
        1 => Just(Ending::TimedOut),
        2 => Just(Ending::Lost("host down".into())),
    ];
    prop_oneof![
        6 => Just(Action::Ask),
        1 => Just(Action::Enqueue),
        3 => (which.clone(), 1..9i64, -9.0..9.0f64).prop_map(|(which, step, value)| Action::Report(which, step, value)),
        1 => (which.clone(), -1.0..1.0f64).prop_map(|(which, value)| Action::Constrain(which, value)),
        6 => (which.clone(), ending).prop_map(|(which, ending)| Action::Tell(which, ending)),
        1 => which.prop_map(Action::Restart),
    ]
}

fn act(study: &mut Study, journal: &mut String, action: Action, now: Time) {
    let running: Vec<u64> = study.running().map(|trial| trial.number).collect();
    let pick = |which: prop::sample::Index| (!running.is_empty()).then(|| *which.get(&running));
    match action {
        Action::Ask => {
            let before = study.trials().len();
            if let Some(asked) = study.ask(now).unwrap() {
                assert!(!running.contains(&asked.number), "a running trial is not asked for again");
                assert!(study.definition().space.contains(&asked.point), "{:?}", asked.point);
                let trial = study.trial(asked.number).unwrap();
                assert_eq!((trial.state, trial.attempts), (State::Running, asked.attempt));
                assert_eq!(trial.point(&study.definition().space), asked.point);
            } else {
                assert!(before >= 20);
            }
        }
        Action::Enqueue => {
            study.enqueue(&[("lr".into(), Choice::Number(0.5))]).unwrap();
        }
        Action::Report(which, step, value) => {
            if let Some(number) = pick(which) {
                study.report(number, step, value).unwrap();
            }
        }
        Action::Constrain(which, value) => {
            if let Some(number) = pick(which) {
                study.constrain(number, "c", value).unwrap();
            }
        }
        Action::Tell(which, ending) => {
            let Some(number) = pick(which) else { return };
            let lost = matches!(ending, Ending::Lost(_));
            let attempts = study.trial(number).unwrap().attempts;
            let state = study.tell(number, ending, now).unwrap();
            assert_eq!(state == State::Waiting, lost && attempts < 3);
            assert!(lost || state.is_over());
            assert!(study.tell(number, Ending::Stopped, now).is_err(), "a trial ends once");
        }
        Action::Restart(cut) => {
            // The coordinator dies in the middle of a line, after some of what it had not written yet.
            let unwritten = study.take_lines();
            journal.push_str(&unwritten[..cut.index(unwritten.len() + 1)]);
            let whole = read(journal.as_bytes()).unwrap().length;
            journal.truncate(whole);
            if journal.is_empty() || Archive::new(read(journal.as_bytes()).unwrap().records).studies().next().is_none()
            {
                *study = self::study();
                journal.clear();
                return;
            }
            *study = reopened(journal);
            let lost: Vec<u64> = study.running().map(|trial| trial.number).collect();
            for number in lost {
                study.tell(number, Ending::Lost("restart".into()), now).unwrap();
            }
        }
    }
}

fn check(study: &Study) {
    let over: Vec<&Trial> = study.trials().iter().filter(|trial| trial.state.is_over()).collect();
    assert_eq!(study.history().ended().len(), over.len());
    assert_eq!(study.history().running().len(), study.running().count());
    for observation in study.history().ended() {
        let trial = study.trial(observation.number.unwrap()).unwrap();
        assert_eq!(observation.outcome == Outcome::Finished, trial.state == State::Finished);
        assert!(trial.attempts <= 3);
    }
    let good = |trial: &&&Trial| trial.state == State::Finished && trial.violation() == 0.0;
    let best = over.iter().filter(good).map(|trial| trial.values[0]).min_by(f64::total_cmp);
    assert_eq!(study.best().map(|trial| trial.values[0]), best);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_events_leaves_a_study_in_order(actions in prop::collection::vec(any_action(), 0..120)) {
        let (mut study, mut journal) = (study(), String::new());
        for (turn, action) in actions.into_iter().enumerate() {
            act(&mut study, &mut journal, action, Time(turn as i64 * 1_000_000));
            check(&study);
        }
        // Whoever reads the journal knows the same and goes on in the same way.
        journal.push_str(&study.take_lines());
        let mut again = reopened(&journal);
        prop_assert_eq!(again.archive(), study.archive());
        prop_assert_eq!(again.definition(), study.definition());
        let count = study.history().ended().len();
        prop_assert_eq!(again.history().lineage(count), study.history().lineage(count));
        prop_assert_eq!(again.ask(Time(0)).unwrap(), study.ask(Time(0)).unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lines that are lost, doubled, in another order or damaged may be refused, but nothing panics.
    #[test]
    fn a_damaged_journal_is_read_or_refused(
        lines in prop::collection::vec(any::<prop::sample::Index>(), 1..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut study = study();
        for number in 0..6 {
            study.ask(Time(1)).unwrap();
            study.report(number, 1, 0.5).unwrap();
            let ending = if number == 3 { Ending::Failed("exit 1".into()) } else { Ending::Finished(vec![1.0]) };
            study.tell(number, ending, Time(2)).unwrap();
        }
        let journal = study.take_lines();
        let known: Vec<&str> = journal.split_inclusive('\n').collect();
        let mut bytes: Vec<u8> = known[..7].concat().into_bytes();
        lines.iter().for_each(|line| bytes.extend_from_slice(line.get(&known).as_bytes()));
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let Ok(reading) = read(&bytes) else { return Ok(()) };
        let archive = Archive::new(reading.records);
        for record in archive.studies() {
            if let Ok(mut study) = Study::open(archive.clone(), &record.name, "test")
                && let Some(asked) = study.ask(Time(3)).unwrap()
            {
                prop_assert!(study.definition().space.contains(&asked.point));
            }
        }
    }
}

#[test]
fn a_study_ends_when_its_trials_are_used_up() {
    let mut study = study();
    for number in 0..20 {
        assert!(!study.is_done());
        assert_eq!(study.ask(Time(1)).unwrap().unwrap().number, number);
        study.tell(number, Ending::Finished(vec![number as f64]), Time(2)).unwrap();
    }
    assert!(study.is_done());
    assert_eq!(study.ask(Time(3)).unwrap(), None);
    assert_eq!(study.best().unwrap().number, 0);
    study.set_trials(21);
    let mut again = reopened(&study.take_lines());
    assert_eq!(again.ask(Time(4)).unwrap(), study.ask(Time(4)).unwrap());
    assert_eq!(again.running().count(), 1);
}

#[test]
fn a_stopped_trial_goes_on_when_it_is_among_the_best() {
    let mut study = study();
    for number in 0..5u64 {
        let asked = study.ask(Time(1)).unwrap().unwrap();
        assert_eq!((asked.number, asked.origin), (number, number));
        // The second best of all is stopped, because there is one place for the first five.
        let loss = [0.1, 0.2, 0.5, 0.6, 0.7][number as usize];
        assert_eq!(study.report(number, 1, loss).unwrap(), number > 0);
        let ending = if number > 0 { Ending::Stopped } else { Ending::Finished(vec![loss]) };
        study.tell(number, ending, Time(2)).unwrap();
    }
    let asked = study.ask(Time(3)).unwrap().unwrap();
    assert!(study.report(5, 1, 0.9).unwrap());
    study.tell(5, Ending::Stopped, Time(4)).unwrap();
    assert_eq!(asked.origin, 5);
    let promoted = study.ask(Time(5)).unwrap().unwrap();
    assert_eq!((promoted.number, promoted.origin, promoted.attempt), (6, 1, 1));
    assert_eq!(promoted.point, study.trial(1).unwrap().point(&study.definition().space));
    assert_eq!(study.trial(6).unwrap().reports, [(1, 0.2)], "it goes on from there");
    assert!(!study.report(6, 3, 0.15).unwrap(), "the first at the next rung");
    study.tell(6, Ending::Lost("host a is down".into()), Time(6)).unwrap();
    let again = study.ask(Time(7)).unwrap().unwrap();
    assert_eq!((again.number, again.origin, again.attempt), (6, 1, 2));
    study.tell(6, Ending::Finished(vec![0.05]), Time(8)).unwrap();
    let mut again = reopened(&study.take_lines());
    assert_eq!(again.origin(6), 1);
    let mut own = 6;
    while let Some(asked) = again.ask(Time(9)).unwrap() {
        assert_eq!(asked.origin, asked.number, "nobody else deserves it");
        again.tell(asked.number, Ending::Failed(String::new()), Time(9)).unwrap();
        own += 1;
    }
    assert_eq!(own, 20, "what goes on counts once");
}

#[test]
fn enqueued_points_come_first_and_are_completed() {
    let mut study = study();
    let parameters = [("optimizer".into(), Choice::Text("sgd".into())), ("lr".into(), Choice::Number(0.25))];
    assert_eq!(study.enqueue(&parameters).unwrap(), 0);
    let asked = study.ask(Time(1)).unwrap().unwrap();
    assert_eq!((asked.number, asked.point.0[0], asked.point.0[1]), (0, Some(0.0), Some(0.25)));
    assert!(asked.point.0[3].is_some(), "momentum belongs to sgd");
    let refusal = study.enqueue(&[("lr".into(), Choice::Number(7.0))]).unwrap_err().to_string();
    assert_eq!(refusal, "parameter `lr`: 7 is not one of its values, log:1e-5..1.0");
    let refusal = study.enqueue(&[("learning".into(), Choice::Null)]).unwrap_err().to_string();
    assert!(refusal.starts_with("unknown parameter `learning`"), "{refusal}");
}

#[test]
fn a_lost_trial_runs_again_and_at_last_fails() {
    let mut study = study();
    let first = study.ask(Time(1)).unwrap().unwrap();
    for attempt in 2..4 {
        assert_eq!(study.tell(0, Ending::Lost("host a is down".into()), Time(2)).unwrap(), State::Waiting);
        let again = study.ask(Time(3)).unwrap().unwrap();
        assert_eq!(again, Asked { attempt, ..first.clone() });
    }
    assert_eq!(study.tell(0, Ending::Lost("host a is down".into()), Time(4)).unwrap(), State::Failed);
    assert_eq!(study.trial(0).unwrap().reason(), Some("lost 3 times, at last: host a is down"));
}

#[test]
fn interruptions_are_not_counted_against_a_trial() {
    let mut study = study();
    let first = study.ask(Time(1)).unwrap().unwrap();
    for attempt in 2..12 {
        assert_eq!(study.tell(0, Ending::Interrupted("Ctrl-C".into()), Time(2)).unwrap(), State::Waiting);
        assert_eq!(study.ask(Time(3)).unwrap().unwrap(), Asked { attempt, ..first.clone() });
    }
    assert_eq!(study.tell(0, Ending::Lost("host a is down".into()), Time(4)).unwrap(), State::Waiting);
}

#[test]
fn a_changed_space_is_refused_with_the_difference() {
    let mut study = study();
    let study = reopened(&study.take_lines());
    study.check_space(&SPACE.parse().unwrap()).unwrap();
    let refusal = study.check_space(&SPACE.replace("1..6", "1..8").parse().unwrap()).unwrap_err().to_string();
    let expected = "study `s` began in another space:\n  `layers` was layers=int:1..6 and is layers=int:1..8";
    assert_eq!(refusal, expected);
}

#[test]
fn several_objectives_have_a_front() {
    let objectives = vec!["minimize loss".parse().unwrap(), "maximize speed".parse().unwrap()];
    let definition = Definition { objectives, stopper: Stopper::None, ..definition() };
    let mut study = Study::create(definition, Archive::default(), "test").unwrap();
    for (number, values) in [[1.0, 1.0], [2.0, 3.0], [2.0, 2.0], [0.5, 9.0]].into_iter().enumerate() {
        study.ask(Time(1)).unwrap();
        if number == 3 {
            study.constrain(3, "memory", 1.0).unwrap();
        }
        study.tell(number as u64, Ending::Finished(values.to_vec()), Time(2)).unwrap();
    }
    let front: Vec<u64> = study.front().iter().map(|trial| trial.number).collect();
    assert_eq!(front, [0, 1], "the last one breaks a constraint");
    let refusal = study.ask(Time(1)).and_then(|_| study.tell(4, Ending::Finished(vec![1.0]), Time(2)));
    assert_eq!(refusal.unwrap_err().to_string(), "trial 4: it has 1 values for 2 objectives");
}

#[test]
fn an_earlier_study_gives_a_warm_start() {
    let mut earlier = study();
    for number in 0..12 {
        let asked = earlier.ask(Time(1)).unwrap().unwrap();
        earlier.tell(number, Ending::Finished(vec![asked.point.0[1].unwrap()]), Time(2)).unwrap();
    }
    let record = earlier.archive().studies().next().unwrap();
    let definition = Definition { name: "later".into(), ..definition() };
    let mut later = Study::create(definition, Archive::default(), "test").unwrap();
    assert_eq!(later.warm_start(record), 12);
    assert_eq!(later.history().ended().len(), 12);
    let asked: Vec<u64> = std::iter::from_fn(|| later.ask(Time(1)).unwrap()).map(|asked| asked.number).collect();
    assert_eq!(asked, (12..32).collect::<Vec<_>>(), "its own trials count");
}

#[test]
fn parameters_may_come_one_by_one() {
    let mut study = Study::create(Definition::new("s", Space::default()), Archive::default(), "test").unwrap();
    let lr = Domain::Float { low: 1e-5, high: 1.0, log: true, step: None };
    let mut seen = Vec::new();
    for turn in 0..15 {
        let number = study.ask_open(Time(1)).unwrap().unwrap();
        let value = study.suggest(number, "lr", &lr).unwrap();
        assert_eq!(study.suggest(number, "lr", &lr).unwrap(), value, "asked again, it is the same");
        if turn > 5 {
            study.suggest(number, "layers", &Domain::Int { low: 1, high: 6, log: false, step: 1 }).unwrap();
        }
        study.tell(number, Ending::Finished(vec![value]), Time(2)).unwrap();
        seen.push(value);
    }
    assert!(seen.iter().all(|value| lr.contains(*value)));
    let number = study.ask_open(Time(1)).unwrap().unwrap();
    let refusal = study.suggest(number, "lr", &Domain::Choices(vec![Choice::Null])).unwrap_err().to_string();
    assert_eq!(refusal, "trial 15: parameter `lr` was log:1e-5..1.0 before and is none now");
    let mut again = reopened(&study.take_lines());
    assert_eq!(again.definition().space, study.definition().space);
    assert_eq!(again.ask_open(Time(1)).unwrap(), Some(16));
}

/// Two workers of one journal, each of which reads what the other wrote before it acts.
#[test]
fn workers_learn_each_other_s_parameters() {
    let mut first = Study::create(Definition::new("s", Space::default()), Archive::default(), "a").unwrap();
    let mut journal = first.take_lines();
    let mut second = reopened(&journal);
    let unit = Domain::Float { low: 0.0, high: 1.0, log: false, step: None };
    for turn in 0..6 {
        let (own, other) = if turn % 2 == 0 { (&mut first, &mut second) } else { (&mut second, &mut first) };
        let number = own.ask_open(Time(1)).unwrap().unwrap();
        own.suggest(number, if turn % 2 == 0 { "x" } else { "y" }, &unit).unwrap();
        own.set_trials(100 + turn);
        let lines = own.take_lines();
        read(lines.as_bytes()).unwrap().records.into_iter().for_each(|record| other.take_in(record));
        journal += &lines;
        assert_eq!(own.definition(), other.definition());
    }
    assert_eq!(reopened(&journal).definition().space.len(), 2);
}

#[test]
fn unsuitable_definitions_are_refused() {
    let create =
        |definition: Definition| Study::create(definition, Archive::default(), "test").err().unwrap().to_string();
    assert_eq!(create(Definition { objectives: vec![], ..definition() }), "study `s`: it has no objective");
    let wrong = create(Definition { sampler: "tpee".into(), ..definition() });
    assert_eq!(wrong, "unknown sampler `tpee`; did you mean `tpe`?");
    let refusal = "minimise".parse::<Objective>().unwrap_err().to_string();
    assert_eq!(refusal, "parameter `objective`: `minimise` is not a direction and a name, such as `minimize val_loss`");
    let twice = Study::create(definition(), study().archive().clone(), "test").err().unwrap().to_string();
    assert_eq!(twice, "study `s`: it is in the journal already");
}
