//! Journals there and back, torn ones, and lines as Optuna writes them.

use proptest::prelude::*;

use super::*;
use crate::space::tests::any_points;

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![-1e6..1e6f64, any::<i32>().prop_map(f64::from), Just(f64::INFINITY)]
}

fn any_state() -> impl Strategy<Value = OptunaState> {
    (0..5i64).prop_map(|number| OptunaState::new(number).unwrap())
}

fn any_time() -> impl Strategy<Value = Option<Time>> {
    proptest::option::of((0..4_000_000_000_000_000i64).prop_map(Time))
}

fn any_attribute() -> impl Strategy<Value = (Owner, String, Json)> {
    let value =
        prop_oneof![any::<i64>().prop_map(Json::Integer), "[a-zé\"]{0,8}".prop_map(Json::Text), Just(Json::Null)];
    (any::<bool>(), "[a-z:]{1,8}", value)
        .prop_map(|(user, key, value)| (if user { Owner::User } else { Owner::System }, key, value))
}

fn any_settings() -> impl Strategy<Value = Vec<Setting>> {
    any_points(1).prop_map(|(space, points)| {
        let value = |(index, value): (usize, &Option<f64>)| {
            let parameter = &space.parameters()[index];
            value.map(|value| Setting { name: parameter.name.clone(), value, domain: parameter.domain.clone() })
        };
        points[0].0.iter().enumerate().filter_map(value).collect()
    })
}

fn any_trial() -> impl Strategy<Value = NewTrial> {
    let values = proptest::option::of(prop::collection::vec(any_value(), 1..4));
    let reports = prop::collection::btree_map(any::<i32>().prop_map(i64::from), any_value(), 0..4);
    let attributes = prop::collection::vec(any_attribute(), 0..4);
    (any_state(), any_time(), any_time(), values, any_settings(), attributes, reports).prop_map(
        |(state, start, end, values, settings, mut attributes, reports)| {
            // Objects have the user's first, and every key once.
            attributes.sort_by(|a, b| (a.0 == Owner::System, &a.1).cmp(&(b.0 == Owner::System, &b.1)));
            attributes.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
            NewTrial { state, start, end, values, settings, attributes, reports: reports.into_iter().collect() }
        },
    )
}

fn any_operation() -> impl Strategy<Value = Operation> {
    let directions = prop::collection::vec(prop_oneof![Just(Direction::Minimize), Just(Direction::Maximize)], 1..3);
    let id = 0..50u64;
    prop_oneof![
        ("[a-zé ]{0,9}", directions).prop_map(|(name, directions)| Operation::CreateStudy { name, directions }),
        id.clone().prop_map(|study| Operation::DeleteStudy { study }),
        (id.clone(), any_attribute()).prop_map(|(study, (owner, key, value))| Operation::SetStudyAttribute {
            study,
            owner,
            key,
            value
        }),
        (id.clone(), any_trial()).prop_map(|(study, trial)| Operation::CreateTrial { study, trial: Box::new(trial) }),
        (id.clone(), any_settings()).prop_filter_map("a setting", |(trial, settings)| {
            settings.into_iter().next().map(|setting| Operation::SetParameter { trial, setting })
        }),
        (id.clone(), any_state(), proptest::option::of(prop::collection::vec(any_value(), 0..3)), any_time())
            .prop_map(|(trial, state, values, time)| Operation::SetState { trial, state, values, time }),
        (id.clone(), any::<i32>(), any_value()).prop_map(|(trial, step, value)| Operation::Report {
            trial,
            step: step.into(),
            value
        }),
        (id, any_attribute()).prop_map(|(trial, (owner, key, value))| Operation::SetTrialAttribute {
            trial,
            owner,
            key,
            value
        }),
    ]
}

fn any_record() -> impl Strategy<Value = Record> {
    ("[a-z0-9-]{1,9}", any_operation()).prop_map(|(worker, operation)| Record { worker, operation })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(any_record(), 0..6)) {
        let text: String = records.iter().map(Record::line).collect();
        let reading = read(text.as_bytes()).unwrap();
        prop_assert_eq!(reading, Reading { records, length: text.len(), torn: None });
    }

    /// Cut anywhere, a journal keeps all whole lines and tells what is left of the last one.
    #[test]
    fn a_torn_line_is_dropped_and_told(records in prop::collection::vec(any_record(), 1..5), cut in any::<prop::sample::Index>()) {
        let text: String = records.iter().map(Record::line).collect();
        let cut = cut.index(text.len() + 1);
        let reading = read(&text.as_bytes()[..cut]).unwrap();
        let whole = text.as_bytes()[..cut].iter().filter(|byte| **byte == b'\n').count();
        prop_assert_eq!(&reading.records[..], &records[..whole]);
        prop_assert_eq!(reading.torn.is_some(), reading.length < cut);
    }

    #[test]
    fn no_bytes_panic(line in prop::collection::vec(any::<u8>(), 0..60), record in any_record(), at in any::<prop::sample::Index>()) {
        let _ = read(&line);
        let mut bytes = record.line().into_bytes();
        let place = at.index(bytes.len());
        bytes.splice(place..place, line);
        let _ = read(&bytes);
    }
}

#[test]
fn lines_of_optuna_are_understood() {
    let text = concat!(
        r#"{"op_code":0,"worker_id":"w","study_name":"s","directions":[1]}"#,
        "\n",
        r#"{"op_code":4,"worker_id":"w","study_id":0,"datetime_start":"2026-11-16T14:26:11.518556+00:00"}"#,
        "\n",
        r#"{"op_code":5,"worker_id":"w","trial_id":0,"param_name":"c","param_value_internal":2,"distribution":"{\"name\": \"CategoricalDistribution\", \"attributes\": {\"choices\": [\"a\", null, true]}}"}"#,
        "\n",
        r#"{"op_code":7,"worker_id":"w","trial_id":0,"step":2,"intermediate_value":NaN}"#,
        "\n",
        r#"{"op_code":6,"worker_id":"w","trial_id":0,"state":2,"values":[Infinity],"datetime_complete":"2026-11-16T14:26:11.630467+00:00"}"#,
        "\n",
        r#"{"op_code":10,"worker_id":"w","anything":[]}"#,
        "\n",
    );
    let reading = read(text.as_bytes()).unwrap();
    assert_eq!(reading.records.len(), 6);
    assert!(matches!(reading.records[3].operation, Operation::Report { value, .. } if value.is_nan()));
    assert_eq!(reading.records[0].line(), text.lines().next().unwrap().to_owned() + "\n");
}

#[test]
fn a_broken_line_in_the_middle_is_refused_with_its_number() {
    let text = "{\"op_code\":1,\"worker_id\":\"w\",\"study_id\":0}\n{\"op_code\":7,\"worker_id\":\"w\"}\n\n";
    let refusal = read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(refusal, "line 2 of the journal: operation 7: `trial_id` is missing");
}

#[test]
fn a_whole_line_that_nobody_here_knows_is_no_torn_one() {
    let text = "{\"op_code\":1,\"worker_id\":\"w\",\"study_id\":0}\n{\"op_code\":99,\"worker_id\":\"w\"}\n";
    let refusal = read(text.as_bytes()).unwrap_err().to_string();
    assert_eq!(refusal, "line 2 of the journal: operation 99: this code is unknown");
}
