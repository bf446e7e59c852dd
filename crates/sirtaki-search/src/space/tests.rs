//! Random spaces, here and for the tests of other modules, and what holds for all of them.

use proptest::prelude::*;

use super::*;

fn any_domain() -> impl Strategy<Value = Domain> {
    let float = (-50.0..50.0f64, 0.0..20.0f64, any::<bool>(), proptest::option::of(0.1..3.0f64)).prop_map(
        |(low, width, log, step)| {
            let (low, step) = if log { (low.abs() + 1e-4, None) } else { (low, step) };
            Domain::Float { low, high: low + width, log, step }
        },
    );
    let int = (-20..20i64, 0..40i64, any::<bool>(), 1..5i64).prop_map(|(low, width, log, step)| {
        let (low, step) = if log { (low.abs() + 1, 1) } else { (low, step) };
        Domain::Int { low, high: low + width, log, step }
    });
    let words =
        prop::sample::subsequence(vec!["sgd", "adam", "none", "1", "a,b", "x|y", "it's", "0..1", " ", " when "], 1..6);
    let choices = (words, any::<bool>()).prop_map(|(words, number)| {
        let mut choices: Vec<Choice> = words.into_iter().map(|word| Choice::Text(word.into())).collect();
        choices.extend(
            number
                .then_some([Choice::Integer(1), Choice::Number(0.5), Choice::Null, Choice::Flag(true)])
                .into_iter()
                .flatten(),
        );
        Domain::Choices(choices)
    });
    prop_oneof![float, int, choices]
}

/// A condition that `parent` can satisfy.
fn condition(parent: &Parameter, unit: f64) -> String {
    let name = format!("`{}`", parent.name);
    let value = parent.domain.from_unit(unit);
    match &parent.domain {
        Domain::Choices(choices) => match &choices[value as usize] {
            Choice::Text(text) => format!("{name} in [\"{text}\"]"),
            other => format!("not ({name} != {other})"),
        },
        _ if unit < 0.5 => format!("{name} >= {value:?}"),
        _ => format!("{name} <= {value:?} and not {name} > {value:?}"),
    }
}

/// Spaces of one to six parameters, some of them conditional.
pub(crate) fn any_space() -> impl Strategy<Value = Space> {
    let one = (any_domain(), proptest::option::weighted(0.4, (any::<prop::sample::Index>(), 0.0..1.0f64)));
    prop::collection::vec(one, 1..7).prop_map(|parts| {
        let mut parameters: Vec<Parameter> = Vec::new();
        for (index, (domain, when)) in parts.into_iter().enumerate() {
            let name = ["p0", "p1", "p2", "a =,b", "batch-size", "é"][index];
            let parameter = Parameter::new(name, domain.checked("p").unwrap());
            let condition = when.filter(|_| index > 0).map(|(parent, unit)| condition(parent.get(&parameters), unit));
            parameters.push(condition.map_or(Ok(parameter.clone()), |text| parameter.when(&text)).unwrap());
        }
        Space::new(parameters).unwrap()
    })
}

/// A space and some points of it.
pub(crate) fn any_points(count: usize) -> impl Strategy<Value = (Space, Vec<Point>)> {
    let units = prop::collection::vec(prop::collection::vec(0.0..=1.0f64, 6), count);
    (any_space(), units).prop_map(|(space, units)| {
        let points = units.iter().map(|unit| space.from_unit(unit)).collect();
        (space, points)
    })
}

fn close(a: &Point, b: &Point) -> bool {
    let same = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * a.abs().max(1.0),
        (a, b) => a == b,
    };
    a.0.len() == b.0.len() && a.0.iter().zip(&b.0).all(same)
}

proptest! {
    #[test]
    fn points_survive_the_unit_cube_and_the_encoding((space, points) in any_points(3)) {
        for point in points {
            prop_assert!(space.contains(&point), "{point:?} in {space}");
            let unit: Vec<f64> = space.to_unit(&point).into_iter().map(|unit| unit.unwrap_or(0.3)).collect();
            prop_assert!(unit.iter().all(|unit| (0.0..=1.0).contains(unit)));
            prop_assert!(close(&space.from_unit(&unit), &point), "{:?} {point:?} {space}", space.from_unit(&unit));
            let encoded = space.encode(&point);
            prop_assert_eq!(encoded.len(), space.layout().width());
            prop_assert!(close(&space.decode(&encoded), &point));
        }
    }

    #[test]
    fn any_place_is_a_point(space in any_space(), unit in prop::collection::vec(any::<f64>(), 6)) {
        prop_assert!(space.contains(&space.from_unit(&unit)));
        prop_assert!(space.contains(&space.fill(|index, _| unit[index])));
    }

    #[test]
    fn text_and_table_are_read_as_they_were_written(space in any_space()) {
        let text = space.to_string();
        prop_assert_eq!(&text.parse::<Space>().unwrap(), &space, "{}", text);
        let read = Space::from_lines(space.lines().iter().map(String::as_str)).unwrap();
        prop_assert!(read.differences(&space).is_empty());
        prop_assert_eq!(read, space);
    }

    #[test]
    fn no_text_panics(text in "[a-c=:.|,'\"\\[\\] 0-9e-]{0,40}") {
        if let Ok(space) = text.parse::<Space>() {
            prop_assert!(space.contains(&space.fill(|_, _| 0.5)));
        }
        let _ = serde_json::from_str::<Space>(&text);
    }
}

#[test]
fn tables_of_a_study_file_are_read() {
    let space: Space = serde_json::from_value(serde_json::json!({
        "optimizer": ["sgd", "adam"],
        "lr": {"log": [1e-5, 1.0]},
        "layers": {"int": [1, 6]},
        "width": {"int": [8, 1024], "log": true},
        "momentum": {"float": [0, 0.99], "when": "optimizer == 'sgd'"},
        "dropout": "float:0..0.5:0.2",
    }))
    .unwrap();
    let line = "dropout=float:0.0..0.4:0.2,layers=int:1..6,lr=log:1e-5..1.0,momentum=float:0.0..0.99 when optimizer == \
                'sgd',optimizer=sgd|adam,width=logint:8..1024";
    assert_eq!(space.to_string(), line);
    let point = space.fill(|index, _| if space.parameters()[index].name == "optimizer" { 1.0 } else { 0.2 });
    assert_eq!(point.0[space.index("momentum").unwrap()], None);
}

#[test]
fn bad_spaces_are_refused_with_the_reason() {
    for (text, reason) in [
        ("lr=log:0..1", "parameter `lr`: a logarithmic range starts above 0, not at 0"),
        ("n=int:3..1", "parameter `n`: the range 3 .. 1 is empty; the smaller number comes first"),
        ("n=logint:0..1", "parameter `n`: a logarithmic range of integers starts at 1 or above, not at 0"),
        ("n=float:0..1:0", "parameter `n`: the step is 0, but must be above 0"),
        ("n=flaot:0..1", "parameter `n`: unknown kind of range `flaot`; did you mean `float`?"),
        ("n=float:0..inf", "parameter `n`: the range 0 .. inf is not finite"),
        ("n=a|b|a", "parameter `n`: the choice `a` is there twice"),
        ("n=1..2,n=1..3", "parameter `n`: it is there twice"),
        ("n", "the space has the part `n`, which is not NAME=VALUES"),
        (
            "a=1..2 when b == 1,b=1..2 when a == 1",
            "the space has conditions that wait for each other: a needs b needs a",
        ),
        ("a=1..2,b=1..2 when a > 2", "parameter `b`: its condition `a > 2` never holds"),
        (
            "o=x|y,a=1..2 when o=='x',b=1..2 when a > 0 and o == 'y'",
            "parameter `b`: its condition `a > 0 and o == 'y'` never holds",
        ),
        (
            "o=sgd|adam,m=0..1 when o=='sdg'",
            "parameter `m`: its condition has an unknown choice `sdg`; did you mean `sgd`? (`o` is one of sgd, adam)",
        ),
        (
            "optimizer=sgd|adam,m=0..1 when optimiser=='sgd'",
            "parameter `m`: its condition has an unknown parameter `optimiser`; did you mean `optimizer`?",
        ),
        (
            "o=sgd|adam,m=0..1 when o < 'sgd'",
            "parameter `m`: its condition asks which of the choices of `o` is larger, but they have no order",
        ),
        (
            "o=1..4,m=0..1 when o == 'sgd'",
            "parameter `m`: its condition compares the number `o` with `sgd`, which is none",
        ),
        (
            "o=1..4,m=0..1 when o = 2",
            "parameter `m`: in its condition `o = 2`, a single `=` compares nothing; write `==`",
        ),
    ] {
        assert_eq!(text.parse::<Space>().unwrap_err().to_string(), reason, "{text}");
    }
    let table = serde_json::json!({"lr": {"lgo": [0, 1]}});
    let refusal = serde_json::from_value::<Space>(table).unwrap_err().to_string();
    assert_eq!(refusal, "parameter `lr`: unknown key `lgo`; did you mean `log`?");
}

#[test]
fn quotes_survive() {
    let choices = ["'\"`", "''", "", " when ", "true"].map(|text| Choice::Text(text.into()));
    let space = Space::new(vec![Parameter::new("`'", Domain::Choices(choices.into()))]).unwrap();
    assert_eq!(space.to_string().parse::<Space>().unwrap(), space);
}

#[test]
fn a_changed_space_is_described() {
    let old: Space = "a=1..2,b=x|y,c=0..1".parse().unwrap();
    let new: Space = "c=0..1,b=x|z,d=log:1..2".parse().unwrap();
    assert_eq!(
        old.differences(&new),
        ["`a` is gone; it was a=int:1..2", "`b` was b=x|y and is b=x|z", "`d` is new: d=log:1.0..2.0"]
    );
    let turned: Space = "c=0..1,b=x|y,a=1..2".parse().unwrap();
    assert!(old.differences(&turned).is_empty());
}
