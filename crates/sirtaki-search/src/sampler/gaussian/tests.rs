//! Gradients against differences, and the sampler as a whole.

use super::{
    coding::Coding,
    fit::Distances,
    kernel::{Alike, Cloud, Hyper},
    model::Model,
    *,
};
use crate::{
    sampler::{
        Outcome,
        tests::{cube, finish_all, values},
    },
    space::{Choice, Domain, Parameter},
};

fn cloud(points: usize, dimensions: usize) -> (Cloud, Vec<f64>) {
    let mut random = Random::new(9, &[]);
    let points: Vec<Vec<f64>> =
        (0..points).map(|_| (0..dimensions).map(|_| random.uniform() - 0.5).collect()).collect();
    let values = points.iter().map(|x| (5.0 * x[0]).sin() + x[1] * x[2] + 0.01 * random.normal()).collect();
    (Cloud::new((0..dimensions).collect(), &points), values)
}

#[test]
fn the_gradient_of_the_likelihood_is_that_of_differences() {
    let (cloud, values) = cloud(14, 3);
    let distances = Distances::new(&cloud, 3);
    let at = vec![0.3, -0.8, 1.1, 0.2, -0.7, 0.9, -4.0];
    let mut gradient = vec![0.0; at.len()];
    distances.evaluate(&values, &at, &mut gradient).unwrap();
    let mut unused = gradient.clone();
    for i in 0..at.len() {
        let mut moved = |step: f64| {
            let mut at = at.clone();
            at[i] += step;
            distances.evaluate(&values, &at, &mut unused).unwrap()
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((slope + gradient[i]).abs() < 1e-5 * (1.0 + slope.abs()), "{i}: {} instead of {slope}", -gradient[i]);
    }
}

#[test]
fn the_gradient_of_a_prediction_is_that_of_differences() {
    let (cloud, values) = cloud(14, 3);
    let model = Model::new(Hyper(vec![0.3, -0.8, 1.1, 0.2, -0.7, 0.9, -4.0]), cloud, values);
    let judge = |at: model::Expected| (2.0 * at.mean + 3.0 * at.deviation, 2.0, 3.0);
    let at = vec![0.1, -0.2, 0.3];
    let (value, gradient) = model.slope(&mut Alike::default(), &at, judge);
    assert!((judge(model.predict(std::slice::from_ref(&at))[0]).0 - value).abs() < 1e-12);
    for i in 0..3 {
        let moved = |step: f64| {
            let mut at = at.clone();
            at[i] += step;
            judge(model.predict(&[at])[0]).0
        };
        let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((slope - gradient[i]).abs() < 1e-7, "{i}: {} instead of {slope}", gradient[i]);
    }
}

#[test]
fn a_model_knows_what_it_was_told_and_believes_itself() {
    let (cloud, values) = cloud(14, 3);
    let mut hyper = Hyper::start(3);
    hyper.0[6] = -16.0;
    let told: Vec<Vec<f64>> = (0..14).map(|i| cloud.columns.iter().map(|column| column[i]).collect()).collect();
    let model = Model::new(hyper, cloud, values.clone());
    for (expected, value) in model.predict(&told).iter().zip(&values) {
        assert!((expected.mean - value).abs() < 1e-3 && expected.deviation < 0.01);
    }
    let (here, there) = (vec![0.4, 0.4, -0.4], vec![0.35, 0.4, -0.4]);
    let points = [here.clone(), there];
    let (before, after) = (model.predict(&points), model.clone().believing(&[here]).predict(&points));
    assert!((before[0].mean - after[0].mean).abs() < 1e-6 && after[0].deviation < 1e-3);
    assert!((before[1].mean - after[1].mean).abs() < 1e-6 && after[1].deviation < 0.5 * before[1].deviation);
}

#[test]
fn coordinates_of_what_is_off_and_of_choices_are_apart() {
    let letters = ["a", "b", "c"].map(|text| Choice::Text(text.into())).to_vec();
    let unit = Domain::Float { low: 0.0, high: 1.0, log: false, step: None };
    let inner = Parameter::new("inner", unit).when("letter == 'a'").unwrap();
    let space = Space::new(vec![Parameter::new("letter", Domain::Choices(letters)), inner]).unwrap();
    let coding = Coding::new(&space);
    let encode = |letter: f64, inner: Option<f64>| coding.encode(&space, &Point(vec![Some(letter), inner]));
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let (b, c) = (encode(1.0, None), encode(2.0, None));
    assert!((distance(&b, &c) - 1.0).abs() < 1e-12);
    assert!((distance(&encode(0.0, Some(0.2)), &encode(0.0, Some(0.7))) - 0.25).abs() < 1e-12);
    assert!(distance(&encode(0.0, Some(0.5)), &b) > 1.2);
}

/// A history of so many trials, asked for one at a time and, from the second on, told one late.
fn study(space: &Space, trials: u64, evaluate: impl Fn(&Point) -> (Vec<f64>, f64)) -> History {
    let (mut history, mut sampler) = (History::default(), GaussianSampler::default());
    let mut waiting: Option<Observation> = None;
    for number in 0..trials {
        let question = Question { seed: 4, space, history: &history, number };
        let point = sampler.suggest(&question);
        assert!(space.contains(&point), "{point:?}");
        if number % 16 == 15 {
            assert_eq!(point, GaussianSampler::default().suggest(&question), "a new sampler answers the same");
        }
        let (losses, violation) = evaluate(&point);
        let ended = Observation { violation, ..finish_all(number, point, losses) };
        history.put(Observation { outcome: Outcome::Running, losses: Vec::new(), ..ended.clone() });
        if let Some(ended) = waiting.replace(ended) {
            history.put(ended);
        }
    }
    history
}

fn best(history: &History) -> f64 {
    history.finished().filter(|o| o.violation <= 0.0).map(|o| o.losses[0]).fold(f64::INFINITY, f64::min)
}

#[test]
fn finds_a_minimum_in_a_few_trials() {
    let history = study(&cube(3, -1.0, 1.0), 40, |point| {
        (vec![values(point).iter().zip([0.3, -0.6, 0.1]).map(|(x, at)| (x - at).powi(2)).sum()], 0.0)
    });
    assert!(best(&history) < 1e-5, "{}", best(&history));
}

#[test]
fn choices_integers_and_conditions() {
    let letters = ["a", "b", "c"].map(|text| Choice::Text(text.into())).to_vec();
    let rate = Domain::Float { low: 1e-5, high: 1.0, log: true, step: None };
    let momentum = Domain::Float { low: 0.0, high: 1.0, log: false, step: None };
    let space = Space::new(vec![
        Parameter::new("letter", Domain::Choices(letters)),
        Parameter::new("layers", Domain::Int { low: 1, high: 9, log: false, step: 2 }),
        Parameter::new("rate", rate),
        Parameter::new("momentum", momentum).when("letter == 'b'").unwrap(),
    ])
    .unwrap();
    let history = study(&space, 50, |point| {
        let x = &point.0;
        let letter = x[3].map_or(0.5, |momentum| (momentum - 0.8).powi(2));
        let rate = x[2].unwrap().log10() + 3.0;
        (vec![letter + 0.1 * (x[1].unwrap() - 5.0).abs() + 0.1 * rate * rate], 0.0)
    });
    assert!(best(&history) < 0.01, "{}", best(&history));
}

#[test]
fn nothing_is_tried_twice_while_there_is_something_new() {
    let space = Space::new(vec![
        Parameter::new("a", Domain::Int { low: 0, high: 4, log: false, step: 1 }),
        Parameter::new("b", Domain::Int { low: 0, high: 3, log: false, step: 1 }),
    ])
    .unwrap();
    let history = study(&space, 19, |point| (vec![values(point).iter().sum()], 0.0));
    // What spreads the first points knows nothing of each other.
    let points: Vec<&Point> = history.ended().iter().map(|observation| &observation.point).collect();
    for (place, point) in points.iter().enumerate().skip(START) {
        assert!(!points[..place].contains(point), "{point:?} again");
    }
}

#[test]
fn constraints_are_kept() {
    // Without its constraint the best point would be at −1, −1.
    let history = study(&cube(2, -1.0, 1.0), 40, |point| {
        let x = values(point);
        (vec![x[0] + x[1]], (0.5 - x[0]).max(0.0))
    });
    assert!((-0.5..-0.4).contains(&best(&history)), "{}", best(&history));
}

#[test]
fn several_objectives_give_a_front() {
    let history = study(&cube(2, 0.0, 1.0), 40, |point| {
        let x = values(point);
        (vec![x[0] * x[0] + x[1] * x[1], (x[0] - 1.0).powi(2) + x[1] * x[1]], 0.0)
    });
    let on_front = |o: &&Observation| o.point.0[1].is_some_and(|y| y < 0.1);
    let mut places: Vec<f64> = history.finished().filter(on_front).map(|o| o.point.0[0].unwrap()).collect();
    places.sort_by(f64::total_cmp);
    assert!(places.len() >= 15, "{} points near the front", places.len());
    assert!(places[0] < 0.2 && places[places.len() - 1] > 0.8, "{places:?}");
}
