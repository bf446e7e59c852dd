use proptest::prelude::*;

use super::{
    Layout, Reach,
    along::{Along, Centres, Fill, Ratio, Sampling, Window},
    network::Network,
    probe::{Probe, Sample},
};
use crate::{VolumeError, grid::halo::Halo};

fn conv(kernel: u64, dilation: u64, stride: u64, padding: i64) -> Along {
    Along::Window { window: Window { kernel, dilation, stride, before: padding, after: padding }, ceil: false }
}

fn transposed(kernel: u64, stride: u64) -> Along {
    Along::Transposed { window: Window { kernel, dilation: 1, stride, before: 0, after: 0 }, extra: 0 }
}

fn up(over: u64, under: u64, centres: Centres, sampling: Sampling) -> Along {
    Along::Resample { by: Ratio::new(over, under).unwrap(), centres, sampling }
}

/// The reach of operators one after the other, along one axis.
fn chain(size: u64, operators: &[Along]) -> Result<Reach, VolumeError> {
    let (mut network, mut place) = Network::new(&[size], 1);
    for operator in operators {
        place = network.add(("Op", "op"), &[place], &[*operator], 1)?;
    }
    network.reach()
}

fn halo(before: i64, after: i64, stride: u64) -> Halo {
    Halo { before, after, input: stride, output: stride }
}

#[test]
fn convolutions_add_their_radii() {
    assert_eq!(chain(64, &[conv(3, 1, 1, 1); 4]).unwrap().halos, [halo(4, 4, 1)]);
    assert_eq!(chain(64, &[conv(3, 5, 1, 5), conv(5, 2, 1, 4)]).unwrap().halos, [halo(9, 9, 1)]);
    let valid = chain(64, &[conv(3, 1, 1, 0); 2]).unwrap();
    assert_eq!((valid.halos, valid.output), (vec![halo(0, 4, 1)], vec![60]));
    // An even window looks further to one side.
    let window = Window { kernel: 4, dilation: 1, stride: 1, before: 1, after: 2 };
    assert_eq!(chain(64, &[Along::Window { window, ceil: false }]).unwrap().halos, [halo(1, 2, 1)]);
}

#[test]
fn pooling_and_enlarging_keep_to_their_grid() {
    let pool = conv(2, 1, 2, 0);
    assert_eq!(chain(64, &[pool, transposed(2, 2)]).unwrap().halos, [halo(0, 0, 2)]);
    let linear = up(2, 1, Centres::HalfPixel, Sampling::Linear);
    assert_eq!(chain(64, &[pool, linear]).unwrap().halos, [halo(2, 2, 2)]);
    assert_eq!(chain(64, &[pool, conv(3, 1, 1, 1), transposed(2, 2)]).unwrap().halos, [halo(2, 2, 2)]);
    let half = chain(64, &[pool]).unwrap();
    assert_eq!(half.halos, [Halo { before: 0, after: 0, input: 2, output: 1 }]);
    assert_eq!(chain(64, &[up(3, 2, Centres::Asymmetric, Sampling::Floor)]).unwrap().halos[0].input, 2);
}

#[test]
fn a_skip_that_does_not_fit_is_refused_by_name() {
    let (mut network, x) = Network::new(&[101], 1);
    let a = network.add(("MaxPool", "p"), &[x], &[conv(2, 1, 2, 0)], 1).unwrap();
    let b = network.add(("ConvTranspose", "u"), &[a], &[transposed(2, 2)], 1).unwrap();
    let problem = network.add(("Concat", "join"), &[b, x], &[Along::Same], 2).unwrap_err();
    assert!(problem.to_string().starts_with("`join` (Concat) joins 100 and 101"), "{problem}");
}

#[test]
fn values_are_kept_until_their_last_use() {
    let (mut network, x) = Network::new(&[10], 1);
    let a = network.add(("Conv", "a"), &[x], &[conv(3, 1, 1, 1)], 8).unwrap();
    let b = network.add(("Conv", "b"), &[a], &[conv(3, 1, 1, 1)], 4).unwrap();
    network.add(("Concat", "c"), &[b, x], &[Along::Same], 5).unwrap();
    assert_eq!(network.values_at_once(&[10]), Some((1 + 8 + 4) * 10));
    assert_eq!(network.values_at_once(&[20]), Some((1 + 8 + 4) * 20));
}

/// A chain of operators, computed by the definition: each with a sum of its own, so that no two inputs are alike.
fn compute(operators: &[Along], values: &[f32]) -> Option<Vec<f32>> {
    let mut values = values.to_vec();
    for operator in operators {
        let size = operator.size(values.len() as u64)?;
        let all = values.len() as i128;
        values = (0..i128::from(size)).map(|at| one(operator, &values, at, all)).collect();
    }
    Some(values)
}

fn one(operator: &Along, values: &[f32], at: i128, all: i128) -> f32 {
    let padded = |place: i128| if (0..all).contains(&place) { values[place as usize] } else { 0.0 };
    let weight = |tap: i128| 0.3 + 0.1 * tap as f32;
    match *operator {
        Along::Same => padded(at),
        Along::Window { window, .. } => (0..i128::from(window.kernel))
            .map(|tap| {
                let place =
                    at * i128::from(window.stride) - i128::from(window.before) + tap * i128::from(window.dilation);
                weight(tap) * padded(place)
            })
            .sum(),
        Along::Transposed { window, .. } => (0..i128::from(window.kernel))
            .map(|tap| {
                let from = at + i128::from(window.before) - tap * i128::from(window.dilation);
                let hit = from.rem_euclid(i128::from(window.stride)) == 0;
                if hit { weight(tap) * padded(from.div_euclid(i128::from(window.stride))) } else { 0.0 }
            })
            .sum(),
        Along::Resample { .. } => {
            let (first, last) = operator.needs(at, at);
            (first..=last).map(|place| weight(place - first) * values[place.clamp(0, all - 1) as usize]).sum()
        }
        Along::Margin { before, fill, .. } => {
            let place = at - i128::from(before);
            match fill {
                Fill::Constant => padded(place),
                Fill::Edge => values[place.clamp(0, all - 1) as usize],
                Fill::Mirror => {
                    let place = if place < 0 {
                        -place
                    } else if place >= all {
                        2 * (all - 1) - place
                    } else {
                        place
                    };
                    values[place.clamp(0, all - 1) as usize]
                }
            }
        }
    }
}

fn operator() -> impl Strategy<Value = Along> {
    let window = (1_u64..5, 1_u64..4, 1_u64..4, 0_i64..4, 0_i64..4)
        .prop_map(|(kernel, dilation, stride, before, after)| Window { kernel, dilation, stride, before, after });
    let sampling = prop::sample::select(vec![
        Sampling::Floor,
        Sampling::Ceil,
        Sampling::RoundDown,
        Sampling::RoundUp,
        Sampling::Linear,
        Sampling::Cubic,
    ]);
    let centres = prop::sample::select(vec![Centres::HalfPixel, Centres::Asymmetric]);
    let fill = prop::sample::select(vec![Fill::Constant, Fill::Edge, Fill::Mirror]);
    prop_oneof![
        (window.clone(), any::<bool>()).prop_map(|(window, ceil)| Along::Window { window, ceil }),
        (window, 0_u64..2).prop_map(|(window, extra)| Along::Transposed { window, extra }),
        (1_u64..4, 1_u64..4, centres, sampling)
            .prop_map(|(over, under, centres, sampling)| up(over, under, centres, sampling)),
        (-2_i64..4, -2_i64..4, fill).prop_map(|(before, after, fill)| Along::Margin { before, after, fill }),
    ]
}

proptest! {
    /// Whatever the operators: a tile that is read as the plan says gives the bits of the whole, wherever it is.
    #[test]
    fn a_tile_equals_the_whole(
        operators in prop::collection::vec(operator(), 1..5), size in 80_u64..140, at in 0.0..1.0, part in 0.0..1.0
    ) {
        let Ok(reach) = chain(size, &operators) else { return Ok(()) };
        let values: Vec<f32> = (0..size).map(|at| ((at * 7919 + 13) % 1009) as f32 / 500.0 - 1.0).collect();
        let whole = compute(&operators, &values).unwrap();
        let all = whole.len() as u64;
        let begin = (at * all as f64) as u64;
        let core = begin..begin + 1 + (part * (all - begin - 1) as f64) as u64;
        let halo = reach.halos[0];
        let read = halo.read(core.clone(), size);
        let tile = compute(&operators, &values[read.start as usize..read.end as usize]);
        // A mirror needs as many voxels as it shows, and a crop some that are left over.
        prop_assume!(tile.is_some() && read.end - read.start > 16);
        let tile = tile.unwrap();
        let first = halo.position(core.start, read.start) as usize;
        let got = &tile[first..first + (core.end - core.start) as usize];
        prop_assert_eq!(got, &whole[core.start as usize..core.end as usize], "{:?} read {:?}", halo, read);
    }
}

/// A chain as something that a probe can run: one axis of space, one channel.
fn run(operators: &[Along], sizes: &[u64], values: &[f32]) -> Result<Sample, VolumeError> {
    let values = compute(operators, values).ok_or_else(|| VolumeError::Invalid(format!("{sizes:?} is too small")))?;
    Ok((vec![values.len() as u64], values))
}

#[test]
fn a_probe_notices_one_voxel_too_few() {
    let operators =
        [conv(3, 2, 1, 2), conv(2, 1, 2, 0), conv(3, 1, 1, 1), up(2, 1, Centres::HalfPixel, Sampling::Linear)];
    let reach = chain(40, &operators).unwrap();
    assert_eq!(reach.halos, [halo(6, 6, 2)]);
    let probe = Probe { channels: 1, seed: 7, sizes: vec![40] };
    let mut network = |sizes: &[u64], values: &[f32]| run(&operators, sizes, values);
    assert!(probe.check(&reach, &mut network).unwrap()[0].equal);
    for less in [Halo { before: 4, ..reach.halos[0] }, Halo { after: 4, ..reach.halos[0] }] {
        let seen = probe.along(&reach, 0, less, &mut network).unwrap();
        assert!(!seen.equal && seen.error > 0.01 * seen.deviation, "{seen:?}");
    }
}

#[test]
fn a_tolerance_takes_the_smallest_halo_that_keeps_it() {
    let operators = [conv(3, 1, 1, 1); 12];
    let reach = chain(40, &operators).unwrap();
    let probe = Probe { channels: 1, seed: 7, sizes: vec![40] };
    let mut network = |sizes: &[u64], values: &[f32]| run(&operators, sizes, values);
    let (exact, seen) = probe.tolerate(&reach, 0.0, &mut network).unwrap()[0];
    assert_eq!((exact, seen.equal), (reach.halos[0], true));
    let (small, seen) = probe.tolerate(&reach, 0.05, &mut network).unwrap()[0];
    assert!((1..12).contains(&small.before) && seen.error <= 0.05 * seen.deviation, "{small:?} {seen:?}");
    let less = Halo { before: small.before - 1, after: small.after - 1, ..small };
    let seen = probe.along(&reach, 0, less, &mut network).unwrap();
    assert!(seen.error > 0.05 * seen.deviation, "{seen:?}");
}

#[test]
fn a_halo_found_in_a_thin_volume_is_confirmed_in_a_thick_one() {
    // Each pixel looks four rows and four columns away: in a volume of three rows or columns, at nothing.
    let mut network = |sizes: &[u64], values: &[f32]| {
        let (height, width) = (sizes[0] as usize, sizes[1] as usize);
        let at = |y: usize, x: usize| if y < height && x < width { values[y * width + x] } else { 0.0 };
        let sum = |place: usize| at(place / width, place % width) + at(place / width + 4, place % width + 4);
        Ok((sizes.to_vec(), (0..height * width).map(sum).collect()))
    };
    let reach = Reach { halos: vec![halo(4, 4, 1); 2], output: vec![96, 96], channels: 1, notes: Vec::new() };
    let probe = Probe { channels: 1, seed: 7, sizes: vec![3, 3] };
    let mut found = probe.tolerate(&reach, 0.02, &mut network).unwrap();
    assert!(found.iter().all(|(thin, seen)| thin.before == 0 && seen.error == 0.0), "{found:?}");
    probe.confirm(&reach, 0.02, &mut found, &[96, 96], &mut network).unwrap();
    assert!(found.iter().all(|(thick, seen)| thick.before == 4 && seen.error == 0.0), "{found:?}");
}

#[test]
fn a_layout_has_batch_and_channels_first() {
    let layout = Layout::channels_first(2, &crate::Extent::new([5, 6, 7]).unwrap());
    assert_eq!((layout.shape, layout.spatial), (vec![1, 2, 5, 6, 7], vec![2, 3, 4]));
}
