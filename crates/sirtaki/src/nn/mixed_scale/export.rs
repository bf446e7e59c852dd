//! The network as an ONNX file, with what its input is scaled by inside, so that whoever computes it gives it the voxels
//! as they are.

use burn::tensor::Tensor;
use sirtaki_volume::reach::onnx::write::{OnnxWriter, Setting};

use super::{MixedScaleDense, MixedScaleLayer, dilation};

impl MixedScaleDense {
    /// The bytes of the file. From each channel of the input its first number is subtracted, and the difference divided by
    /// its second one, before the network sees it.
    pub fn to_onnx(&self, scaling: &[(f32, f32)]) -> Vec<u8> {
        let config = self.config;
        let mut file = OnnxWriter::new("volume", config.channels, config.axes);
        let each = [1, config.channels].into_iter().chain(vec![1; config.axes]).collect::<Vec<_>>();
        let numbers = |number: fn(&(f32, f32)) -> f32| scaling.iter().map(number).collect::<Vec<f32>>();
        file.constant("shift", &each, &numbers(|channel| channel.0));
        file.constant("scale", &each, &numbers(|channel| channel.1));
        file.node("Sub", &["volume", "shift"], "centred", &[]);
        file.node("Div", &["centred", "scale"], "maps0", &[]);
        for (number, layer) in self.layers.iter().enumerate() {
            let name = |what: &str| format!("{what}{number}");
            let (maps, seen, map, more) = (name("maps"), name("seen"), name("map"), format!("maps{}", number + 1));
            self.write(&mut file, layer, &name("layer"), (&maps, &seen), dilation(number));
            file.node("Relu", &[&seen], &map, &[]);
            file.node("Concat", &[&maps, &map], &more, &[("axis", Setting::Int(1))]);
        }
        self.write(&mut file, &self.scores, "scores", (&format!("maps{}", config.depth), "score"), 1);
        file.finish("mixed-scale dense network", "score", config.classes)
    }

    /// Adds a convolution; a plane has no first axis here.
    fn write(
        &self,
        file: &mut OnnxWriter,
        layer: &MixedScaleLayer,
        name: &str,
        (from, to): (&str, &str),
        dilation: usize,
    ) {
        let axes = self.config.axes;
        let dims = layer.weight.dims();
        let edges: Vec<i64> = dims[5 - axes..].iter().map(|edge| *edge as i64).collect();
        let shape: Vec<usize> = dims[..2].iter().chain(&dims[5 - axes..]).copied().collect();
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        file.constant(&weight, &shape, &numbers(layer.weight.val()));
        file.constant(&bias, &shape[..1], &numbers(layer.bias.val()));
        let pads: Vec<i64> = edges.iter().chain(&edges).map(|edge| edge / 2 * dilation as i64).collect();
        let settings = [
            ("dilations", Setting::Ints(vec![dilation as i64; axes])),
            ("kernel_shape", Setting::Ints(edges)),
            ("pads", Setting::Ints(pads)),
        ];
        file.node("Conv", &[from, &weight, &bias], to, &settings);
    }
}

/// The elements of a tensor.
fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
