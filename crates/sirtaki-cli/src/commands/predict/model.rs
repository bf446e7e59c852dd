//! A network that was not recorded, described in a small file: how long it computes, and its gradients in the order in
//! which the backward pass produces them.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use sirtaki_engine::files;

use super::work::{Sample, Tensor, Work};
use crate::printer::Advice;

/// Bytes of a description at most.
const LARGEST: u64 = 64 << 20;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    name: String,
    /// Where the numbers are from; shown with every prediction.
    #[serde(default)]
    sources: Vec<String>,
    /// Samples per worker and step.
    batch: Option<usize>,
    forward_seconds: f64,
    backward_seconds: f64,
    #[serde(default)]
    optimizer_seconds: f64,
    /// Standard deviation of a worker's computing time, divided by its mean.
    #[serde(default)]
    variation: f64,
    tensors: Vec<Gradient>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Gradient {
    name: String,
    bytes: usize,
    /// How much of the backward pass is done when the gradient is ready, from 0 to 1.
    ready: Option<f64>,
}

/// The network in this file.
pub(super) fn read(path: &Path) -> Result<Work> {
    let text = files::read(path, LARGEST).map_err(|error| {
        Advice::new(
            format!("cannot read {}: {error}", path.display()),
            "docs/predict.md says what belongs in such a file",
        )
    })?;
    let work = serde_json::from_slice(&text).map_err(|error| error.to_string()).and_then(work);
    work.map_err(|problem| {
        let message = format!("{} does not describe a network: {problem}", path.display());
        Advice::new(message, "docs/predict.md says what belongs there, and docs/predict/vgg16.json is an example")
            .into()
    })
}

fn work(model: Model) -> Result<Work, String> {
    let times = [
        ("forward_seconds", model.forward_seconds),
        ("backward_seconds", model.backward_seconds),
        ("optimizer_seconds", model.optimizer_seconds),
    ];
    if let Some((name, value)) = times.into_iter().find(|(_, value)| !(0.0..1e6).contains(value)) {
        return Err(format!("{name} is {value}, but must be seconds from 0 to a million"));
    }
    if times.iter().all(|(_, value)| *value == 0.0) {
        return Err("it computes nothing: all of its seconds are 0".into());
    }
    if !(0.0..1.0).contains(&model.variation) {
        return Err(format!("variation is {}, but must be from 0 to 1", model.variation));
    }
    let count = model.tensors.len();
    if count == 0 {
        return Err("it has no tensors".into());
    }
    let mut ready = Vec::with_capacity(count);
    for (at, tensor) in model.tensors.iter().enumerate() {
        let share = tensor.ready.unwrap_or((at + 1) as f64 / count as f64);
        if !(0.0..=1.0).contains(&share) {
            return Err(format!("`ready` of tensor `{}` is {share}, but must be from 0 to 1", tensor.name));
        }
        ready.push(model.optimizer_seconds + model.forward_seconds + share * model.backward_seconds);
    }
    let computed = model.optimizer_seconds + model.forward_seconds + model.backward_seconds;
    let bytes = model.tensors.iter().fold(0_usize, |sum, tensor| sum.saturating_add(tensor.bytes));
    if bytes > 1 << 50 {
        return Err("its tensors have more than 1 PiB".into());
    }
    Ok(Work {
        title: model.name,
        tensors: model.tensors.into_iter().map(|Gradient { name, bytes, .. }| Tensor { name, bytes }).collect(),
        samples: vec![Sample { ready, computed }],
        workers: 1,
        batch: model.batch,
        fixed: model.optimizer_seconds,
        local: None,
        copy: 0.0,
        noise: (model.variation > 0.0).then_some(model.variation),
        recorded_step: None,
        notes: model.sources,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Work, String> {
        serde_json::from_str(text).map_err(|error| error.to_string()).and_then(work)
    }

    const SMALL: &str = r#"{"name": "small", "forward_seconds": 1, "backward_seconds": 2, "optimizer_seconds": 0.5,
        "tensors": [{"name": "b", "bytes": 8}, {"name": "a", "bytes": 16}]}"#;

    #[test]
    fn gradients_come_evenly_unless_it_is_said() {
        let small = parse(SMALL).unwrap();
        assert_eq!(small.samples, [Sample { ready: vec![2.5, 3.5], computed: 3.5 }]);
        assert_eq!((small.bytes(), small.workers, small.fixed), (24, 1, 0.5));
        let said = parse(&SMALL.replace(r#""bytes": 8"#, r#""bytes": 8, "ready": 0.25"#)).unwrap();
        assert_eq!(said.samples[0].ready, [2.0, 3.5]);
    }

    #[test]
    fn variation_is_noise_around_the_mean() {
        let varied = parse(&SMALL.replace(r#""name": "small","#, r#""name": "s", "variation": 0.05,"#)).unwrap();
        assert_eq!((varied.samples.len(), varied.computing(), varied.variation()), (1, 3.5, 0.05));
        assert_eq!(parse(SMALL).unwrap().noise, None);
    }

    #[test]
    fn mistakes_are_named() {
        for (from, to, expected) in [
            (r#""forward_seconds": 1"#, r#""forward_seconds": -1"#, "forward_seconds is -1"),
            (r#""backward_seconds": 2,"#, "", "backward_seconds"),
            (r#""bytes": 8"#, r#""bytes": 8, "ready": 2"#, "tensor `b` is 2"),
            (r#""name": "small""#, r#""name": "small", "variation": 3"#, "variation is 3"),
            (r#""name": "small""#, r#""name": "small", "layers": 3"#, "layers"),
        ] {
            let error = parse(&SMALL.replace(from, to)).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let empty = r#"{"name": "x", "forward_seconds": 1, "backward_seconds": 1, "tensors": []}"#;
        assert_eq!(parse(empty).unwrap_err(), "it has no tensors");
    }
}
