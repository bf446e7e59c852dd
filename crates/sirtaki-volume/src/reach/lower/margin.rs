//! Padding and cutting.

use super::{
    super::{
        along::{Along, Fill, Window},
        onnx::OnnxNode,
    },
    Lowered, Lowering, Value, axis_of, field, refuse, settings,
};
use crate::VolumeError;

impl Lowering<'_> {
    pub(super) fn pad(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let rank = from.shape.len();
        let pads = match node.ints("pads").or_else(|| node.ints("paddings")) {
            Some(pads) => pads.to_vec(),
            None => settings(node, inputs, 1)?.ok_or_else(|| refuse::dynamic(node, 1))?.ints(),
        };
        let axes: Vec<usize> = match settings(node, inputs, 3)? {
            Some(axes) => axes.ints().iter().map(|axis| axis_of(node, *axis, rank)).collect::<Lowered<_>>()?,
            None => (0..rank).collect(),
        };
        let fill = match node.text("mode").unwrap_or("constant") {
            "constant" => Fill::Constant,
            "edge" => Fill::Edge,
            "reflect" => Fill::Mirror,
            // What is wrapped around comes from the other end of the volume.
            _ => return Err(refuse::everything(node)),
        };
        if pads.len() != 2 * axes.len() {
            let problem = format!("{} pads {} axes with {pads:?}", refuse::said(node), axes.len());
            return Err(VolumeError::Invalid(problem));
        }
        let (mut along, mut shape) = (self.unchanged(), from.shape.clone());
        for (number, axis) in axes.iter().enumerate() {
            let (before, after) = (pads[number], pads[axes.len() + number]);
            match from.space[*axis] {
                _ if before == 0 && after == 0 => {}
                Some(space) => along[space] = Along::Margin { before, after, fill },
                None => shape[*axis] = shape[*axis].saturating_add_signed(before).saturating_add_signed(after),
            }
        }
        self.step(node, from, &along, shape)
    }

    pub(super) fn slice(&mut self, node: &OnnxNode, inputs: &[Option<Value>]) -> Lowered<Vec<Value>> {
        let from = field(node, inputs)?;
        let rank = from.shape.len();
        let list = |name: &str, number: usize| match node.ints(name) {
            Some(values) => Ok(Some(values.to_vec())),
            None => settings(node, inputs, number).map(|values| values.map(|values| values.ints())),
        };
        let starts = list("starts", 1)?.ok_or_else(|| refuse::dynamic(node, 1))?;
        let ends = list("ends", 2)?.ok_or_else(|| refuse::dynamic(node, 2))?;
        let axes: Vec<usize> = match list("axes", 3)? {
            Some(axes) => axes.iter().map(|axis| axis_of(node, *axis, rank)).collect::<Lowered<_>>()?,
            None => (0..starts.len().min(rank)).collect(),
        };
        let steps = list("steps", 4)?.unwrap_or_else(|| vec![1; axes.len()]);
        if [starts.len(), ends.len(), steps.len()] != [axes.len(); 3] {
            return Err(VolumeError::Invalid(format!("{} has lists of different lengths", refuse::said(node))));
        }
        let (mut along, mut shape) = (self.unchanged(), from.shape.clone());
        for (number, axis) in axes.into_iter().enumerate() {
            let size = i64::try_from(from.shape[axis]).unwrap_or(i64::MAX);
            let inside = |at: i64| if at < 0 { at.saturating_add(size) } else { at }.clamp(0, size);
            let (start, end) = (inside(starts[number]), inside(ends[number]));
            // Backwards, the first voxel depends on the last.
            let step = u64::try_from(steps[number]).ok().filter(|step| *step > 0);
            let step = step.ok_or_else(|| refuse::everything(node))?;
            match from.space[axis] {
                Some(_) if start == 0 && end == size && step == 1 => {}
                Some(space) => {
                    let window = Window { kernel: 1, dilation: 1, stride: step, before: -start, after: end - size };
                    along[space] = Along::Window { window, ceil: false };
                }
                None => shape[axis] = u64::try_from(end - start).unwrap_or(0).div_ceil(step),
            }
        }
        self.step(node, from, &along, shape)
    }
}
