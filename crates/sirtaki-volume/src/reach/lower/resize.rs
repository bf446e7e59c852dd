//! Enlarging and reducing by interpolation.

use super::{
    super::{
        along::{Along, Centres, Ratio, Sampling},
        onnx::{Numbers, OnnxAttribute, OnnxNode},
    },
    Lowered, Lowering, Spread, Value, axis_of, field, ratio, refuse, settings,
};
use crate::VolumeError;

/// The largest number below the line of a scale that is written as a decimal number.
const FINEST: u64 = 64;

/// What an axis is changed to.
enum Target {
    Scale(f64),
    Size(u64),
}

impl Lowering<'_> {
    pub(super) fn resize(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let targets = targets(node, inputs, from)?;
        let (mut along, mut shape) = (self.unchanged(), from.shape.clone());
        for (axis, target) in targets.iter().enumerate() {
            let size = from.shape[axis];
            let by = match target {
                Target::Size(to) => ratio(node, *to, size)?,
                Target::Scale(scale) => fraction(node, *scale)?,
            };
            match from.space[axis] {
                // Nothing moves, whatever the mode.
                _ if by == Ratio::ONE => {}
                Some(space) => along[space] = self.rule(node, by, size)?,
                None => shape[axis] = size.saturating_mul(by.over()) / by.under(),
            }
        }
        self.step(node, from, &along, shape)
    }

    fn rule(&self, node: &OnnxNode, by: Ratio, size: u64) -> Lowered<Along> {
        // Before version 11 there was no choice.
        let old = node.operator == "Upsample" || self.model.opset < 11;
        let transformation = node.text("coordinate_transformation_mode");
        let mode = if old { "asymmetric" } else { transformation.unwrap_or("half_pixel") };
        let centres = match mode {
            "half_pixel" | "pytorch_half_pixel" => Centres::HalfPixel,
            "half_pixel_symmetric" if size.saturating_mul(by.over()).is_multiple_of(by.under()) => Centres::HalfPixel,
            "asymmetric" => Centres::Asymmetric,
            other => return Err(refuse::corners(node, other)),
        };
        let rounding = if old { "floor" } else { node.text("nearest_mode").unwrap_or("round_prefer_floor") };
        let sampling = match (node.text("mode").unwrap_or("nearest"), rounding) {
            ("nearest", "floor") => Sampling::Floor,
            ("nearest", "ceil") => Sampling::Ceil,
            ("nearest", "round_prefer_floor") => Sampling::RoundDown,
            ("nearest", "round_prefer_ceil") => Sampling::RoundUp,
            ("linear" | "bilinear" | "trilinear", _) => Sampling::Linear,
            ("cubic", _) => Sampling::Cubic,
            _ => return Err(refuse::unknown(node)),
        };
        // It widens the neighbourhood when it reduces.
        if node.int("antialias").unwrap_or(0) != 0 && by.over() < by.under() {
            return Err(refuse::unknown(node));
        }
        Ok(Along::Resample { by, centres, sampling })
    }
}

/// What each axis of the input is changed to.
fn targets(node: &OnnxNode, inputs: &[Option<Value>], from: &Spread) -> Lowered<Vec<Target>> {
    let attribute = match node.attributes.get("scales") {
        Some(OnnxAttribute::Floats(scales)) => Some(Numbers::Floats(scales.clone())),
        _ => None,
    };
    // Resize has a region of interest as its second input from version 11 on, and then three or four inputs.
    let place = if inputs.len() > 2 { 2 } else { 1 };
    let scales = match attribute {
        Some(scales) => Some(scales),
        None => settings(node, inputs, place)?,
    };
    let scales = scales.filter(|scales| !scales.is_empty());
    let sizes = settings(node, inputs, 3)?.filter(|sizes| !sizes.is_empty());
    let axes: Vec<usize> = match node.ints("axes") {
        Some(axes) => axes.iter().map(|axis| axis_of(node, *axis, from.shape.len())).collect::<Lowered<_>>()?,
        None => (0..from.shape.len()).collect(),
    };
    let mut targets: Vec<Target> = from.shape.iter().map(|size| Target::Size(*size)).collect();
    let count = scales.as_ref().or(sizes.as_ref()).map_or(0, Numbers::len);
    if count != axes.len() || node.text("keep_aspect_ratio_policy").is_some_and(|policy| policy != "stretch") {
        return Err(refuse::unknown(node));
    }
    for (number, axis) in axes.into_iter().enumerate() {
        targets[axis] = match (&scales, &sizes) {
            (Some(scales), _) => Target::Scale(scales.floats()[number]),
            (None, Some(sizes)) => Target::Size(u64::try_from(sizes.ints()[number]).unwrap_or(0)),
            (None, None) => return Err(refuse::unknown(node)),
        };
    }
    Ok(targets)
}

/// A scale as a fraction.
fn fraction(node: &OnnxNode, scale: f64) -> Lowered<Ratio> {
    let near = |under: &u64| {
        let over = scale * *under as f64;
        over.is_finite() && over >= 0.5 && (over - over.round()).abs() < 1e-5 * over
    };
    let found = (1..=FINEST).find(near).and_then(|under| Ratio::new((scale * under as f64).round() as u64, under));
    found.ok_or_else(|| VolumeError::Inexact {
        problem: format!("{} enlarges by {scale}, so tiles and whole have no grid in common", refuse::said(node)),
        hint: "use a network that enlarges by whole numbers or simple fractions".to_owned(),
    })
}
