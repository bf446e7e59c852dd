use proptest::prelude::*;

use super::{
    Scaling,
    histogram::{Histogram, Kind, Percentile},
    moments::Moments,
};

fn number() -> impl Strategy<Value = f32> {
    prop_oneof![
        4 => -1e3_f32..1e3,
        1 => prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO,
    ]
}

/// The exact value at a place, as two passes over the parts of a volume find it.
fn two_passes(parts: &[Vec<f32>], percent: f64) -> f64 {
    let gather = |empty: Histogram| {
        let mut all = empty.clone();
        for part in parts {
            let mut own = empty.clone();
            own.add(part).unwrap();
            all.merge(&own).unwrap();
        }
        all
    };
    match gather(Histogram::new(Kind::Float)).percentile(percent).unwrap() {
        Percentile::Exact(value) => value,
        Percentile::Inside { bin, place, low, high } => match gather(Histogram::within(bin)).at(place).unwrap() {
            Percentile::Exact(value) => {
                assert!(f64::from(low) <= value && value <= f64::from(high), "{low} {value} {high}");
                value
            }
            inside => panic!("{inside:?}"),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn percentiles_are_those_of_the_sorted_volume(
        parts in prop::collection::vec(prop::collection::vec(number(), 1..30), 1..5), percent in 0.0_f64..100.0
    ) {
        let mut sorted: Vec<f32> = parts.concat();
        sorted.sort_by(f32::total_cmp);
        let place = ((percent / 100.0 * sorted.len() as f64).ceil() as usize).max(1) - 1;
        prop_assert_eq!(two_passes(&parts, percent), f64::from(sorted[place]));
        prop_assert_eq!(two_passes(&parts, 0.0), f64::from(sorted[0]));
        prop_assert_eq!(two_passes(&parts, 100.0), f64::from(sorted[sorted.len() - 1]));
    }

    #[test]
    fn whole_numbers_are_exact_at_once(values in prop::collection::vec(any::<i16>(), 1..200), percent in 0.0_f64..100.0) {
        let mut histogram = Histogram::new(Kind::Signed);
        histogram.add_integers(values.iter().map(|value| i32::from(*value))).unwrap();
        let mut sorted = values;
        sorted.sort_unstable();
        let place = ((percent / 100.0 * sorted.len() as f64).ceil() as usize).max(1) - 1;
        prop_assert_eq!(histogram.percentile(percent).unwrap(), Percentile::Exact(f64::from(sorted[place])));
    }

    #[test]
    fn moments_do_not_depend_on_the_order(values in prop::collection::vec(number(), 1..100), cut in 0.0_f64..1.0) {
        let mut whole = Moments::default();
        whole.add(&values);
        let (one, two) = values.split_at((cut * values.len() as f64) as usize);
        let (mut first, mut second) = (Moments::default(), Moments::default());
        second.add(&one.iter().rev().copied().collect::<Vec<_>>());
        first.add(two);
        first.merge(&second);
        prop_assert_eq!(&first, &whole);
        prop_assert_eq!(first.mean().unwrap().to_bits(), whole.mean().unwrap().to_bits());
    }

    #[test]
    fn moments_are_right(values in prop::collection::vec(-1e3_f32..1e3, 2..100)) {
        let mut moments = Moments::default();
        moments.add(&values);
        let count = values.len() as f64;
        let mean = values.iter().map(|value| f64::from(*value)).sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (f64::from(*value) - mean).powi(2)).sum::<f64>() / count).sqrt();
        prop_assert!((moments.mean().unwrap() - mean).abs() < 1e-9);
        prop_assert!((moments.deviation().unwrap() - deviation).abs() < 1e-6, "{deviation}");
    }
}

#[test]
fn what_is_no_number_is_counted_and_left_out() {
    let mut moments = Moments::default();
    moments.add(&[1.0, f32::NAN, 3.0, f32::INFINITY]);
    assert_eq!((moments.count(), moments.odd(), moments.mean().unwrap()), (2, 2, 2.0));
    let mut histogram = Histogram::new(Kind::Float);
    histogram.add(&[f32::NAN, 1.0]).unwrap();
    assert_eq!((histogram.count(), histogram.odd()), (1, 1));
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(Moments::default().mean().is_err());
    assert!(Histogram::new(Kind::Float).percentile(50.0).is_err());
    assert!(Histogram::new(Kind::Unsigned).add_integers([-1]).is_err());
    assert!(Histogram::new(Kind::Unsigned).add(&[1.0]).is_err());
    assert!(Histogram::new(Kind::Unsigned).merge(&Histogram::new(Kind::Signed)).is_err());
    let mut moments = Moments::default();
    moments.add(&[4.0; 9]);
    assert!(Scaling::standard(&moments).unwrap_err().hint().is_some());
}

#[test]
fn scaling_does_what_it_says() {
    let mut moments = Moments::default();
    moments.add(&[1.0, 3.0]);
    let mut values = [1.0, 2.0, 5.0];
    Scaling::standard(&moments).unwrap().apply(&mut values);
    assert_eq!(values, [-1.0, 0.0, 3.0]);
    let mut values = [0.0, 15.0, 99.0];
    Scaling::between(10.0, 20.0, true).unwrap().apply(&mut values);
    assert_eq!(values, [0.0, 0.5, 1.0]);
}
