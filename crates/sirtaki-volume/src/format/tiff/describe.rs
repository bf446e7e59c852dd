//! What the pages of a stack are: the order of their axes and the size of a voxel.
//!
//! TIFF itself knows only pages. OME-XML, ImageJ's lines and the JSON of tifffile say more, all of them in the
//! description of the first page. OME-XML is searched for the attributes of one element rather than parsed: nothing
//! else in it matters here. It is what is written, wherever it has names for axes and type.

use serde_json::{Value, json};

use crate::format::{
    dtype::Dtype,
    layout::{Axis, AxisKind, VolumeLayout},
};

/// Symbols of lengths in OME-XML, and their names.
const UNITS: [(&str, &str); 9] = [
    ("µm", "micrometer"),
    ("nm", "nanometer"),
    ("mm", "millimeter"),
    ("Å", "angstrom"),
    ("pm", "picometer"),
    ("cm", "centimeter"),
    ("m", "meter"),
    ("um", "micrometer"),
    ("micron", "micrometer"),
];
const TYPES: [(&str, Dtype); 8] = [
    ("int8", Dtype::Int8),
    ("int16", Dtype::Int16),
    ("int32", Dtype::Int32),
    ("uint8", Dtype::UInt8),
    ("uint16", Dtype::UInt16),
    ("uint32", Dtype::UInt32),
    ("float", Dtype::Float32),
    ("double", Dtype::Float64),
];

/// Before the letters of a volume's axes, in the comment of an image.
const AXES: &str = "axes ";

/// What a description says about a stack: its axes before those of a page, with their sizes, and those of a page.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Described {
    pub(crate) leading: Vec<(Axis, u64)>,
    pub(crate) y: Axis,
    pub(crate) x: Axis,
}

impl Described {
    /// Pages about which nothing is said are slices.
    pub(crate) fn plain(pages: u64) -> Self {
        let leading = if pages > 1 { vec![(Axis::named("z"), pages)] } else { vec![] };
        Self { leading, y: Axis::named("y"), x: Axis::named("x") }
    }

    /// How many pages the description asks for.
    pub(crate) fn pages(&self) -> u64 {
        self.leading.iter().fold(1, |product: u64, (_, size)| product.saturating_mul(*size))
    }
}

/// Reads a description; nothing if it says nothing about axes.
pub(crate) fn parse(text: &str, samples: u64, resolution: (Option<f64>, Option<f64>)) -> Option<Described> {
    if text.contains("<Pixels") || text.contains(":Pixels") {
        return parse_ome(text, samples);
    }
    if text.starts_with("ImageJ=") {
        return Some(parse_imagej(text, resolution));
    }
    let shape = serde_json::from_str::<Value>(text).ok()?;
    let sizes: Option<Vec<u64>> = shape.get("shape")?.as_array()?.iter().map(Value::as_u64).collect();
    let own = if samples > 1 { 3 } else { 2 };
    let sizes = sizes?;
    let leading = sizes.get(..sizes.len().checked_sub(own)?)?;
    let names = Axis::usual(leading.len() + 2);
    Some(Described { leading: names.into_iter().zip(leading.iter().copied()).collect(), ..Described::plain(1) })
}

/// The value of an attribute in the tag that starts with `tag`.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let at = tag.match_indices(name).find(|(at, _)| {
        let (before, behind) = (&tag[..*at], &tag[at + name.len()..]);
        before.ends_with(char::is_whitespace) && behind.trim_start().starts_with('=')
    })?;
    let value = tag[at.0 + name.len()..].trim_start()[1..].trim_start();
    let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    value[1..].split(quote).next()
}

fn parse_ome(text: &str, samples: u64) -> Option<Described> {
    let at = text.find("<Pixels").or_else(|| text.find(":Pixels"))?;
    let tag = &text[at..];
    let tag = &tag[..tag.find('>')?];
    let size = |axis: char| attribute(tag, &format!("Size{axis}"))?.parse::<u64>().ok();
    let order = attribute(tag, "DimensionOrder")?.strip_prefix("XY")?;
    let axis = |letter: char| {
        let mut axis = Axis::named(&letter.to_lowercase().to_string());
        if let Some(scale) = attribute(tag, &format!("PhysicalSize{letter}")).and_then(|size| size.parse().ok()) {
            let symbol = attribute(tag, &format!("PhysicalSize{letter}Unit")).unwrap_or("µm");
            let symbol = symbol.replace("&#181;", "µ").replace("&#xB5;", "µ").replace('μ', "µ");
            axis.scale = scale;
            axis.unit = Some(unit_name(&symbol));
        }
        axis
    };
    // OME-XML has all axes, and those of one page need not have been axes of the volume.
    let written = text.split_once(AXES).and_then(|(_, rest)| rest.split('<').next()).unwrap_or_default();
    let mut leading = Vec::new();
    for letter in order.chars().rev() {
        // Channels that lie side by side are no pages.
        let count = size(letter)?;
        let count = if letter == 'C' { count.checked_div(samples)? } else { count };
        if count > 1 || written.contains(letter) {
            leading.push((axis(letter), count));
        }
    }
    Some(Described { leading, y: axis('Y'), x: axis('X') })
}

fn parse_imagej(text: &str, resolution: (Option<f64>, Option<f64>)) -> Described {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let count = |name: &str| field(name).and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(1);
    let unit = field("unit").map(|unit| unit.trim().replace("\\u00B5", "µ")).filter(|unit| unit != "pixel");
    let axis = |name: &str, scale: Option<f64>| {
        let mut axis = Axis::named(name);
        if let (Some(unit), Some(scale)) = (&unit, scale) {
            axis.scale = scale;
            axis.unit = Some(unit_name(unit));
        }
        axis
    };
    let spacing = field("spacing").and_then(|value| value.trim().parse().ok());
    let axes = [("t", count("frames"), None), ("z", count("slices"), spacing), ("c", count("channels"), None)];
    let leading = axes.into_iter().filter(|(_, count, _)| *count > 1);
    let mut leading: Vec<(Axis, u64)> = leading.map(|(name, count, scale)| (axis(name, scale), count)).collect();
    if leading.is_empty() && count("images") > 1 {
        leading.push((axis("z", spacing), count("images")));
    }
    let step = |per_unit: Option<f64>| per_unit.map(f64::recip);
    Described { leading, y: axis("y", step(resolution.1)), x: axis("x", step(resolution.0)) }
}

fn unit_name(symbol: &str) -> String {
    UNITS.iter().find(|(known, _)| *known == symbol).map_or(symbol, |(_, name)| name).to_owned()
}

/// The description of a new stack. `samples` is whether the last axis lies side by side in pages.
pub(crate) fn write(layout: &VolumeLayout, samples: bool) -> String {
    write_ome(layout, samples).unwrap_or_else(|| json!({ "shape": layout.shape }).to_string())
}

fn write_ome(layout: &VolumeLayout, samples: bool) -> Option<String> {
    let (type_name, _) = TYPES.iter().find(|(_, dtype)| *dtype == layout.dtype)?;
    let letter = |axis: &Axis| axis.name.to_uppercase();
    let letters: Vec<String> = layout.axes.iter().map(letter).collect();
    let known = ["T", "C", "Z", "Y", "X"];
    let fits =
        |letter: &String| known.contains(&letter.as_str()) && letters.iter().filter(|l| *l == letter).count() == 1;
    if samples || !letters.iter().all(fits) || !letters.ends_with(&["Y".to_owned(), "X".to_owned()]) {
        return None;
    }
    let size = |name: &str| {
        let axis = letters.iter().position(|letter| letter == name);
        axis.map_or(1, |axis| layout.shape.sizes()[axis])
    };
    // The fastest axis comes first, and those of one page come last.
    let mut order: String = letters.iter().rev().map(String::as_str).collect();
    for name in known.iter().rev() {
        if !order.contains(name) {
            order.push_str(name);
        }
    }
    let sizes: Vec<String> = known.iter().rev().map(|name| format!("Size{name}=\"{}\"", size(name))).collect();
    let mut physical = String::new();
    for axis in layout.axes.iter().filter(|axis| axis.kind == AxisKind::Space) {
        let symbol = axis.unit.as_ref().and_then(|unit| UNITS.iter().find(|(_, name)| name == unit));
        if let Some((symbol, _)) = symbol {
            let letter = letter(axis);
            physical += &format!(" PhysicalSize{letter}=\"{}\" PhysicalSize{letter}Unit=\"{symbol}\"", axis.scale);
        }
    }
    let channels: String =
        (0..size("C")).map(|channel| format!("<Channel ID=\"Channel:0:{channel}\" SamplesPerPixel=\"1\"/>")).collect();
    let pages = size("T").saturating_mul(size("C")).saturating_mul(size("Z"));
    let axes = letters.concat();
    Some(format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <OME xmlns=\"http://www.openmicroscopy.org/Schemas/OME/2016-06\" \
         xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" \
         xsi:schemaLocation=\"http://www.openmicroscopy.org/Schemas/OME/2016-06 \
         http://www.openmicroscopy.org/Schemas/OME/2016-06/ome.xsd\">\
         <Image ID=\"Image:0\"><Description>{AXES}{axes}</Description><Pixels ID=\"Pixels:0\" DimensionOrder=\"{order}\" Type=\"{type_name}\" {}{physical}>\
         {channels}<TiffData IFD=\"0\" PlaneCount=\"{pages}\"/></Pixels></Image></OME>",
        sizes.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Extent;

    #[test]
    fn what_is_written_is_read() {
        let mut layout = VolumeLayout::new(Extent::new([2, 3, 4, 5]).unwrap(), Dtype::UInt16);
        layout.axes[1].scale = 2.5;
        layout.axes[1].unit = Some("micrometer".to_owned());
        let read = parse(&write(&layout, false), 1, (None, None)).unwrap();
        assert_eq!(read.leading, [(layout.axes[0].clone(), 2), (layout.axes[1].clone(), 3)]);
        assert_eq!(read.pages(), 6);
        // OME-XML has no name for this type.
        let read = parse(&write(&layout.with_dtype(Dtype::Float16), false), 1, (None, None)).unwrap();
        assert_eq!(read.pages(), 6);
    }

    #[test]
    fn lines_of_imagej_are_read() {
        let text = "ImageJ=1.54f\nimages=12\nchannels=2\nslices=6\nhyperstack=true\nunit=micron\nspacing=2.0\n";
        let read = parse(text, 1, (Some(4.0), Some(2.0))).unwrap();
        let found: Vec<_> = read.leading.iter().map(|(axis, size)| (axis.name.as_str(), *size, axis.scale)).collect();
        assert_eq!(found, [("z", 6, 2.0), ("c", 2, 1.0)]);
        assert_eq!((read.y.scale, read.x.scale), (0.5, 0.25));
        assert_eq!(read.x.unit.as_deref(), Some("micrometer"));
    }

    #[test]
    fn nonsense_is_no_description() {
        for text in ["", "<Pixels", "<Pixels SizeX=>", "{\"shape\": [1]}", "{\"shape\": [[]]}", "Pixels"] {
            assert_eq!(parse(text, 1, (None, None)), None, "{text}");
        }
    }
}
