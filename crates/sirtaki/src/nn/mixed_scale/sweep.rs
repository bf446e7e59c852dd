//! The arithmetic of the network, row by row along the last axis.
//!
//! What a voxel gets is added up map by map and, within a map, in the order of the kernel. Where the kernel lies outside the
//! volume nothing is added. So the order depends on nothing but what is around the voxel.

use std::ops::Range;

use super::{MixedScaleConfig, dilation};

/// A network, and the sizes of the volumes that it is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) config: MixedScaleConfig,
    pub(super) sizes: [usize; 3],
}

/// A layer, or the scores: maps that are made of those before them.
struct Step {
    /// Maps before.
    before: usize,
    /// Maps that are made.
    made: usize,
    kernel: [usize; 3],
    dilation: usize,
    /// Where its weights and biases are among those of all.
    weights: Range<usize>,
    biases: Range<usize>,
}

impl Shape {
    pub(super) fn voxels(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Maps of the buffer: the input and those of all layers.
    pub(super) fn maps(&self) -> usize {
        self.config.maps_before(self.config.depth)
    }

    /// All layers, and the scores.
    fn steps(&self) -> Vec<Step> {
        let Self { config, .. } = self;
        let (mut weights, mut biases) = (0, 0);
        let mut step = |number: usize, made: usize, kernel: [usize; 3]| {
            let before = config.maps_before(number);
            let (first, bias) = (weights, biases);
            weights += made * before * kernel.iter().product::<usize>();
            biases += made;
            Step { before, made, kernel, dilation: dilation(number), weights: first..weights, biases: bias..biases }
        };
        let mut steps: Vec<Step> = (0..config.depth).map(|layer| step(layer, config.width, config.kernel())).collect();
        steps.push(step(config.depth, config.classes, [1; 3]));
        steps
    }
}

/// Where one voxel of a kernel lies along an axis, for all places at once.
#[derive(Clone, Copy)]
struct Span {
    /// The first place for which it lies in the volume.
    place: usize,
    /// What it lies on there.
    under: usize,
    /// For how many places it does.
    count: usize,
}

impl Step {
    fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// The spans of the kernel's voxels along an axis of this size.
    fn spans(&self, axis: usize, size: usize) -> Vec<Span> {
        let span = |voxel: usize| {
            let (middle, here) = (self.kernel[axis] / 2 * self.dilation, voxel * self.dilation);
            let (place, under) = (middle.saturating_sub(here), here.saturating_sub(middle));
            match size.saturating_sub(place + under) {
                0 => Span { place: 0, under: 0, count: 0 },
                count => Span { place, under, count },
            }
        };
        (0..self.kernel[axis]).map(span).collect()
    }

    /// Calls `visit` with every row of places, and with the rows that lie under it: of each, the number of the first of the
    /// kernel's voxels there, and where it begins in a map.
    fn rows(&self, [depth, height, width]: [usize; 3], mut visit: impl FnMut(Range<usize>, &[(usize, usize)])) {
        let (planes, lines) = (self.spans(0, depth), self.spans(1, height));
        let on = |spans: &[Span], place: usize| -> Vec<(usize, usize)> {
            let lies = |(voxel, span): (usize, &Span)| {
                let on = place.checked_sub(span.place).filter(|place| *place < span.count);
                on.map(|place| (voxel, span.under + place))
            };
            spans.iter().enumerate().filter_map(lies).collect()
        };
        let mut under = Vec::new();
        for (place, z) in (0..depth).map(|z| (z, on(&planes, z))) {
            for y in 0..height {
                under.clear();
                for (plane, z) in &z {
                    let lines = on(&lines, y).into_iter();
                    under.extend(
                        lines.map(|(line, y)| {
                            ((plane * self.kernel[1] + line) * self.kernel[2], (z * height + y) * width)
                        }),
                    );
                }
                let begin = (place * height + y) * width;
                visit(begin..begin + width, &under);
            }
        }
    }
}

/// Fills the buffer of a sample, and gives its scores.
pub(super) fn forward(
    shape: Shape,
    volume: &[f32],
    (weights, biases): (&[f32], &[f32]),
    maps: &mut [f32],
    scores: &mut [f32],
) {
    let voxels = shape.voxels();
    maps[..volume.len()].copy_from_slice(volume);
    for (number, step) in shape.steps().iter().enumerate() {
        let (before, behind) = maps.split_at_mut(step.before * voxels);
        let is_layer = number < shape.config.depth;
        let made = if is_layer { &mut behind[..step.made * voxels] } else { &mut *scores };
        let each = weights[step.weights.clone()].chunks_exact(step.before * step.taps());
        for ((made, weights), bias) in made.chunks_exact_mut(voxels).zip(each).zip(&biases[step.biases.clone()]) {
            made.fill(*bias);
            see(shape, step, before, weights, made);
            if is_layer {
                made.iter_mut().for_each(|value| *value = value.max(0.0));
            }
        }
    }
}

/// Adds what a map sees of those before it.
fn see(shape: Shape, step: &Step, before: &[f32], weights: &[f32], made: &mut [f32]) {
    let columns = step.spans(2, shape.sizes[2]);
    step.rows(shape.sizes, |places, under| {
        let row = &mut made[places];
        for (map, weights) in before.chunks_exact(shape.voxels()).zip(weights.chunks_exact(step.taps())) {
            for (first, begin) in under {
                let source = &map[*begin..begin + row.len()];
                for (span, weight) in columns.iter().zip(&weights[*first..]) {
                    let places = &mut row[span.place..][..span.count];
                    add(places, &source[span.under..], *weight);
                }
            }
        }
    });
}

/// The gradients of weights and biases, added up over samples.
pub(super) struct WeightSums {
    pub(super) weights: Vec<f64>,
    pub(super) biases: Vec<f64>,
}

impl WeightSums {
    pub(super) fn new(shape: Shape) -> Self {
        let end = shape.steps().last().map_or((0, 0), |step| (step.weights.end, step.biases.end));
        Self { weights: vec![0.0; end.0], biases: vec![0.0; end.1] }
    }
}

/// From the gradients of a sample's scores to those of all its maps, whose buffer need not be empty, and of all weights.
pub(super) fn backward(
    shape: Shape,
    (maps, weights): (&[f32], &[f32]),
    scores: &[f32],
    gradients: &mut [f32],
    sums: &mut WeightSums,
) {
    let voxels = shape.voxels();
    gradients.fill(0.0);
    for (number, step) in shape.steps().iter().enumerate().rev() {
        let (before, behind) = gradients.split_at_mut(step.before * voxels);
        let own = step.before * voxels..(step.before + step.made) * voxels;
        let made: &[f32] = if number < shape.config.depth {
            let made = &mut behind[..own.len()];
            // Nothing goes back through what was cut off at zero.
            made.iter_mut().zip(&maps[own]).for_each(|(gradient, map)| *gradient *= f32::from(u8::from(*map > 0.0)));
            made
        } else {
            scores
        };
        let each = step.before * step.taps();
        let weights = weights[step.weights.clone()].chunks_exact(each);
        let weight_sums = sums.weights[step.weights.clone()].chunks_exact_mut(each);
        let bias_sums = &mut sums.biases[step.biases.clone()];
        for (((made, weights), weight_sums), bias) in
            made.chunks_exact(voxels).zip(weights).zip(weight_sums).zip(bias_sums)
        {
            *bias += made.iter().map(|gradient| f64::from(*gradient)).sum::<f64>();
            hand_back(shape, step, (maps, weights, made), before, weight_sums);
        }
    }
}

/// Adds what a map hands back to those before it, and to its weights.
fn hand_back(
    shape: Shape,
    step: &Step,
    (maps, weights, made): (&[f32], &[f32], &[f32]),
    before: &mut [f32],
    sums: &mut [f64],
) {
    let columns = step.spans(2, shape.sizes[2]);
    step.rows(shape.sizes, |places, under| {
        let row = &made[places];
        let each = before.chunks_exact_mut(shape.voxels()).zip(maps.chunks_exact(shape.voxels()));
        let each = each.zip(weights.chunks_exact(step.taps()).zip(sums.chunks_exact_mut(step.taps())));
        for ((gradients, map), (weights, sums)) in each {
            for (first, begin) in under {
                let (gradients, map) = (&mut gradients[*begin..][..row.len()], &map[*begin..][..row.len()]);
                for ((span, weight), sum) in columns.iter().zip(&weights[*first..]).zip(&mut sums[*first..]) {
                    let places = &row[span.place..][..span.count];
                    add(&mut gradients[span.under..][..span.count], places, *weight);
                    *sum += dot(places, &map[span.under..]);
                }
            }
        }
    });
}

fn add(to: &mut [f32], values: &[f32], weight: f32) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to += weight * value);
}

/// The sum of products, in lanes, so that it need not wait for one addition after the other.
fn dot(one: &[f32], two: &[f32]) -> f64 {
    const LANES: usize = 8;
    let two = &two[..one.len()];
    let ((one, one_rest), (two, two_rest)) = (one.as_chunks::<LANES>(), two.as_chunks::<LANES>());
    let mut sums = [0.0_f32; LANES];
    for (one, two) in one.iter().zip(two) {
        sums.iter_mut().zip(one.iter().zip(two)).for_each(|(sum, (one, two))| *sum += one * two);
    }
    let rest: f32 = one_rest.iter().zip(two_rest).map(|(one, two)| one * two).sum();
    sums.iter().map(|sum| f64::from(*sum)).sum::<f64>() + f64::from(rest)
}
