use super::super::{
    Layout, Reach, of_onnx,
    onnx::{
        OnnxAttribute, OnnxModel,
        tests::{Graph, list},
    },
};
use crate::{Extent, VolumeError, grid::halo::Halo};

fn reach(model: &OnnxModel, sizes: &[u64]) -> Result<Reach, VolumeError> {
    of_onnx(model, &Layout::channels_first(1, &Extent::new(sizes).unwrap()))
}

fn text(value: &str) -> OnnxAttribute {
    OnnxAttribute::Text(value.to_owned())
}

fn halo(before: i64, after: i64, stride: u64) -> Halo {
    Halo { before, after, input: stride, output: stride }
}

fn plane() -> Graph {
    Graph::new(&[1, 1, 0, 0]).weight("w", &[1, 1, 3, 3]).weight("d", &[1, 2, 2, 2])
}

const SAME: [i64; 4] = [1, 1, 1, 1];

/// A U-Net of one level whose upsampling is `up`.
fn unet(up: impl FnOnce(Graph) -> Graph) -> OnnxModel {
    let down = plane()
        .node("Conv(x, w) a", &[("pads", list(&SAME))])
        .node("Relu(a) b", &[])
        .node("MaxPool(b) c", &[("kernel_shape", list(&[2, 2])), ("strides", list(&[2, 2]))])
        .node("Conv(c, w) e", &[("pads", list(&SAME))]);
    up(down).node("Concat(u, b) j", &[("axis", OnnxAttribute::Int(1))]).model("j")
}

#[test]
fn a_unet_with_a_transposed_convolution() {
    let model = unet(|graph| graph.node("ConvTranspose(e, d) u", &[("strides", list(&[2, 2]))]));
    let found = reach(&model, &[64, 32]).unwrap();
    assert_eq!((found.halos, found.channels), (vec![halo(3, 3, 2); 2], 3));
    assert_eq!(found.output, [64, 32]);
    let problem = reach(&model, &[63, 32]).unwrap_err();
    assert!(problem.to_string().contains("`j` (Concat) joins 62 × 32 and 63 × 32"), "{problem}");
}

#[test]
fn upsampling_by_scales_and_by_the_size_of_the_skip_are_the_same() {
    let linear = ("mode", text("linear"));
    let scales =
        unet(|graph| graph.floats("s", &[1.0, 1.0, 2.0, 2.0]).node("Resize(e, , s) u", std::slice::from_ref(&linear)));
    let sizes = unet(|graph| graph.node("Shape(b) n", &[]).node("Resize(e, , , n) u", std::slice::from_ref(&linear)));
    let want = vec![halo(5, 5, 2); 2];
    assert_eq!(reach(&scales, &[64, 32]).unwrap().halos, want);
    assert_eq!(reach(&sizes, &[64, 32]).unwrap().halos, want);
    // From 31 to 63 is no scale that a tile has.
    let problem = reach(&sizes, &[63, 32]).unwrap_err();
    assert!(problem.hint().unwrap().contains("pad the volume"), "{problem}");
}

#[test]
fn sizes_may_be_computed() {
    let floor = ("nearest_mode", text("floor"));
    let first = ("coordinate_transformation_mode", text("asymmetric"));
    let model = unet(|graph| {
        graph
            .ints("zero", &[0])
            .ints("two", &[2])
            .ints("four", &[4])
            .ints("doubled", &[2, 2])
            .node("Shape(e) n", &[])
            .node("Slice(n, zero, two) batch", &[])
            .node("Slice(n, two, four) space", &[])
            .node("Mul(space, doubled) larger", &[])
            .node("Concat(batch, larger) target", &[("axis", OnnxAttribute::Int(0))])
            .node("Resize(e, , , target) u", &[floor, first])
    });
    assert_eq!(reach(&model, &[64, 32]).unwrap().halos, vec![halo(3, 3, 2); 2]);
}

#[test]
fn automatic_padding_is_that_of_the_volume() {
    let stride = ("strides", list(&[2, 2]));
    let model = plane().node("Conv(x, w) y", &[("auto_pad", text("SAME_UPPER")), stride]).model("y");
    let found = |size| reach(&model, &[size, 64]).unwrap().halos[0];
    assert_eq!(found(64), Halo { before: 0, after: 1, input: 2, output: 1 });
    assert_eq!(found(63), Halo { before: 1, after: 0, input: 2, output: 1 });
}

#[test]
fn cut_and_padded_by_hand() {
    let model = plane()
        .ints("starts", &[2, 2])
        .ints("ends", &[-2, -2])
        .ints("axes", &[2, 3])
        .ints("pads", &[0, 0, 2, 2, 0, 0, 2, 2])
        .node("Slice(x, starts, ends, axes) s", &[])
        .node("Pad(s, pads) p", &[("mode", text("reflect"))])
        .node("Conv(p, w) y", &[("pads", list(&SAME))])
        .model("y");
    let found = reach(&model, &[64, 64]).unwrap();
    assert_eq!(found.output, [64, 64]);
    // The middle looks one voxel far, but a tile loses two voxels at its ends and gets others instead.
    assert!(found.halos[0].before >= 3, "{:?}", found.halos);
}

#[test]
fn channels_last_are_followed() {
    let model = Graph::new(&[1, 0, 0, 1])
        .weight("w", &[4, 1, 3, 3])
        .weight("m", &[4, 2])
        .node("Transpose(x) a", &[("perm", list(&[0, 3, 1, 2]))])
        .node("Conv(a, w) b", &[("pads", list(&SAME))])
        .node("Transpose(b) c", &[("perm", list(&[0, 2, 3, 1]))])
        .node("LayerNormalization(c, s) n", &[("axis", OnnxAttribute::Int(-1))])
        .weight("s", &[4])
        .node("MatMul(n, m) y", &[])
        .model("y");
    let layout = Layout { shape: vec![1, 30, 20, 1], spatial: vec![1, 2] };
    let found = of_onnx(&model, &layout).unwrap();
    assert_eq!((found.halos, found.output, found.channels), (vec![halo(1, 1, 1); 2], vec![30, 20], 2));
}

#[test]
fn what_looks_at_everything_is_refused_with_the_ways_out() {
    let all = [
        ("InstanceNormalization(x, w, w) y", "statistics", "--inexact"),
        ("GlobalAveragePool(x) y", "whole volume", "a neighbourhood"),
        ("ReduceMean(x, space) y", "whole volume", "a neighbourhood"),
        ("Softmax(x) y", "statistics", "a neighbourhood"),
        ("MatMul(x, x) y", "whole volume", "a neighbourhood"),
        ("Add(x, map) y", "differs from place to place", "a neighbourhood"),
        ("Reshape(x, flat) y", "whole volume", "a neighbourhood"),
        ("Wonder(x) y", "not known", "operators of ONNX's own"),
    ];
    for (call, why, way_out) in all {
        let graph = plane().ints("space", &[2, 3]).ints("flat", &[1, -1]).weight("map", &[64, 64]);
        let problem = reach(&graph.node(call, &[]).model("y"), &[64, 64]).unwrap_err();
        assert!(matches!(problem, VolumeError::Inexact { .. }), "{call}: {problem}");
        assert!(problem.to_string().contains(why), "{call}: {problem}");
        assert!(problem.hint().unwrap().contains(way_out), "{call}");
    }
    let corners = [("mode", text("linear")), ("coordinate_transformation_mode", text("align_corners"))];
    let model = plane().floats("s", &[1.0, 1.0, 2.0, 2.0]).node("Resize(x, , s) y", &corners).model("y");
    let problem = reach(&model, &[64, 64]).unwrap_err();
    assert!(problem.to_string().contains("align_corners") && problem.hint().unwrap().contains("align_corners=False"));
    // The channels are an axis like any other, and normalising over them is local.
    let channel = [("axis", OnnxAttribute::Int(1))];
    assert_eq!(reach(&plane().node("Softmax(x) y", &channel).model("y"), &[64, 64]).unwrap().halos, [Halo::NONE; 2]);
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    let graph = || Graph::new(&[1, 3, 32, 0]).weight("w", &[1, 3, 3, 3]).node("Conv(x, w) y", &[]);
    let refused = |channels: u64, sizes: &[u64]| {
        let layout = Layout::channels_first(channels, &Extent::new(sizes).unwrap());
        of_onnx(&graph().model("y"), &layout).unwrap_err()
    };
    assert!(refused(1, &[32, 32]).hint().unwrap().contains("--channels"));
    assert!(refused(3, &[64, 32]).hint().unwrap().contains("dynamic axes"));
    assert!(refused(3, &[32, 32, 32]).to_string().contains("has 4 axes"));
    let small = Graph::new(&[1, 1, 0]).weight("w", &[1, 1, 9]).node("Conv(x, w) y", &[]).model("y");
    assert!(reach(&small, &[8]).unwrap_err().to_string().contains("too few"));
}

#[test]
fn a_scale_that_is_no_power_of_two_is_noted() {
    let graph = |scale: f32| plane().floats("s", &[1.0, 1.0, scale, scale]);
    let notes = |scale| reach(&graph(scale).node("Resize(x, , s) y", &[]).model("y"), &[64, 64]).unwrap().notes;
    assert!(notes(2.0).is_empty() && notes(4.0).is_empty());
    assert!(notes(3.0)[0].contains("no power of 2"));
    assert_eq!(notes(1.5).len(), 1);
}

#[test]
fn no_damaged_file_is_a_panic() {
    let file = plane()
        .node("Conv(x, w) a", &[("pads", list(&SAME)), ("strides", list(&[2, 2]))])
        .node("ConvTranspose(a, d) u", &[("strides", list(&[2, 2]))])
        .file("u");
    for at in 0..file.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[at] = byte;
            if let Ok(model) = OnnxModel::parse(&damaged) {
                let _ = reach(&model, &[16, 16]);
            }
        }
    }
}
