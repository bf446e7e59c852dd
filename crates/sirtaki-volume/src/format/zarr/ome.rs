//! OME-Zarr: a group whose attributes say that its arrays are levels of one image, with axes and voxel sizes.
//!
//! Versions 0.1 to 0.5 are read; 0.4 is written for zarr v2 and 0.5 for v3, because the versions belong together.

use std::path::{Component, Path};

use serde_json::{Map, Value, json};

use crate::format::layout::{Axis, AxisKind, VolumeLayout};

/// A level of an image: where its array is, and its axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Level {
    pub(crate) path: String,
    /// Nothing in versions that did not have them.
    axes: Option<Vec<Axis>>,
    scale: Vec<f64>,
    offset: Vec<f64>,
}

impl Level {
    /// Puts what the image says about the axes of this level into the layout of its array.
    pub(crate) fn describe(&self, layout: &mut VolumeLayout) {
        if let Some(axes) = self.axes.as_ref().filter(|axes| axes.len() == layout.axes.len()) {
            layout.axes.clone_from(axes);
        }
        for (axis, known) in layout.axes.iter_mut().enumerate() {
            known.scale *= self.scale.get(axis).copied().unwrap_or(1.0);
            known.offset += self.offset.get(axis).copied().unwrap_or(0.0);
        }
    }
}

/// The levels of an image, from the finest; nothing if these are not the attributes of one.
pub(crate) fn parse(attributes: &Value) -> Option<Vec<Level>> {
    let holder = attributes.get("ome").unwrap_or(attributes);
    let image = holder.get("multiscales")?.as_array()?.first()?;
    let axes = image.get("axes").and_then(Value::as_array).map(|axes| axes.iter().map(parse_axis).collect::<Vec<_>>());
    let mut levels = Vec::new();
    for dataset in image.get("datasets")?.as_array()? {
        let path = dataset.get("path")?.as_str()?;
        // A path that leads out of the image is not followed.
        if !Path::new(path).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return None;
        }
        let (mut scale, mut offset) = (Vec::new(), Vec::new());
        for source in [dataset, image] {
            for step in source.get("coordinateTransformations").and_then(Value::as_array).into_iter().flatten() {
                let numbers = |name: &str| -> Vec<f64> {
                    let list = step.get(name).and_then(Value::as_array).into_iter().flatten();
                    list.map(|number| number.as_f64().unwrap_or(f64::NAN)).collect()
                };
                combine(&mut scale, &numbers("scale"), 1.0, |a, b| a * b);
                combine(&mut offset, &numbers("scale"), 0.0, |a, b| a * b);
                combine(&mut offset, &numbers("translation"), 0.0, |a, b| a + b);
            }
        }
        levels.push(Level { path: path.to_owned(), axes: axes.clone(), scale, offset });
    }
    (!levels.is_empty()).then_some(levels)
}

fn combine(into: &mut Vec<f64>, with: &[f64], neutral: f64, how: fn(f64, f64) -> f64) {
    into.resize(into.len().max(with.len()), neutral);
    for (value, with) in into.iter_mut().zip(with) {
        *value = how(*value, *with);
    }
}

fn parse_axis(axis: &Value) -> Axis {
    let text = |name: &str| axis.get(name).and_then(Value::as_str);
    let mut known = Axis::named(axis.as_str().or_else(|| text("name")).unwrap_or("?"));
    known.kind = match text("type") {
        Some("space") => AxisKind::Space,
        Some("channel") => AxisKind::Channel,
        Some("time") => AxisKind::Time,
        _ => known.kind,
    };
    known.unit = text("unit").map(str::to_owned);
    known
}

/// Whether OME-Zarr has a place for volumes with these axes: time, channels, then two or three of space.
pub(crate) fn allows(axes: &[Axis]) -> bool {
    let rank = |axis: &Axis| match axis.kind {
        AxisKind::Time => 0,
        AxisKind::Channel => 1,
        AxisKind::Space => 2,
    };
    let count = |kind: AxisKind| axes.iter().filter(|axis| axis.kind == kind).count();
    axes.is_sorted_by_key(rank)
        && (2..=3).contains(&count(AxisKind::Space))
        && count(AxisKind::Time) <= 1
        && count(AxisKind::Channel) <= 1
}

/// Takes away what belongs to an image as a whole and is written anew, or was true of the input alone.
pub(crate) fn strip(attributes: &mut Map<String, Value>) {
    for name in ["ome", "multiscales", "omero"] {
        attributes.remove(name);
    }
}

/// The files that describe the group of an image whose levels have these axes, the finest first.
pub(crate) fn files(version: u8, attributes: &Map<String, Value>, levels: &[Vec<Axis>]) -> Vec<(&'static str, Value)> {
    let axes: Vec<Value> = levels.first().into_iter().flatten().map(describe_axis).collect();
    let dataset = |(number, axes): (usize, &Vec<Axis>)| {
        let scale: Vec<f64> = axes.iter().map(|axis| axis.scale).collect();
        let offset: Vec<f64> = axes.iter().map(|axis| axis.offset).collect();
        let steps = json!([{ "type": "scale", "scale": scale }, { "type": "translation", "translation": offset }]);
        json!({ "path": number.to_string(), "coordinateTransformations": steps })
    };
    let datasets: Vec<Value> = levels.iter().enumerate().map(dataset).collect();
    let mut attributes = attributes.clone();
    if version == 2 {
        attributes.insert("multiscales".to_owned(), json!([{ "version": "0.4", "axes": axes, "datasets": datasets }]));
        return vec![(".zgroup", json!({ "zarr_format": 2 })), (".zattrs", Value::Object(attributes))];
    }
    let image = json!({ "version": "0.5", "multiscales": [{ "axes": axes, "datasets": datasets }] });
    attributes.insert("ome".to_owned(), image);
    vec![("zarr.json", json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes }))]
}

fn describe_axis(axis: &Axis) -> Value {
    let mut described = json!({ "name": axis.name, "type": axis.kind });
    if let Some(unit) = &axis.unit {
        described["unit"] = json!(unit);
    }
    described
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_return() {
        let mut axes = Axis::usual(4);
        axes[1].scale = 0.5;
        axes[1].unit = Some("micrometer".to_owned());
        let mut coarse = axes.clone();
        coarse[1].scale = 1.0;
        coarse[1].offset = 0.25;
        for version in [2, 3] {
            let files = files(version, &Map::new(), &[axes.clone(), coarse.clone()]);
            let attributes = &files.last().unwrap().1;
            let levels = parse(attributes.get("attributes").unwrap_or(attributes)).unwrap();
            assert_eq!(levels.len(), 2);
            for (level, expected) in levels.iter().zip([&axes, &coarse]) {
                let shape = crate::Extent::new([2, 3, 4, 5]).unwrap();
                let mut layout = VolumeLayout::new(shape, crate::format::Dtype::UInt8);
                level.describe(&mut layout);
                assert_eq!(layout.axes, *expected);
            }
        }
    }

    #[test]
    fn scales_of_level_and_image_multiply() {
        let image = json!({ "multiscales": [{
            "axes": ["y", "x"],
            "coordinateTransformations": [{ "type": "scale", "scale": [2.0, 3.0] }],
            "datasets": [{ "path": "0", "coordinateTransformations": [
                { "type": "scale", "scale": [0.5, 0.5] }, { "type": "translation", "translation": [1.0, 1.0] },
            ] }],
        }] });
        let level = &parse(&image).unwrap()[0];
        assert_eq!((level.scale.as_slice(), level.offset.as_slice()), ([1.0, 1.5].as_slice(), [2.0, 3.0].as_slice()));
    }

    #[test]
    fn a_path_out_of_the_image_is_not_followed() {
        for path in ["../other", "/etc", "a/../../b"] {
            assert_eq!(parse(&json!({ "multiscales": [{ "datasets": [{ "path": path }] }] })), None, "{path}");
        }
    }

    #[test]
    fn axes_must_have_their_order() {
        assert!(allows(&Axis::usual(2)) && allows(&Axis::usual(5)));
        assert!(!allows(&Axis::usual(6)) && !allows(&[Axis::named("y"), Axis::named("x"), Axis::named("c")]));
    }
}
