//! Arrays of NumPy, in one `.npz` file or in `.npy` files of a folder.
//!
//! Two arrays belong together: one of samples, and one with an integer for each, the labels. Which is which, their shapes
//! tell; whether they are to test with, their names.

use std::{path::Path, sync::Arc};

use super::{DataContent, Domain, Format, FoundData, classes, ends, is_to_test, is_to_validate, names};
use crate::{
    Error, Result,
    data::{Array, Memory, Normalise, Samples, Values, npy, npz::Npz},
};

pub(super) const IN_FILE: Format = Format {
    name: "arrays",
    layout: "an .npz file with arrays of samples and of integer labels, such as x_train, y_train, x_test and y_test",
    domain: Domain::Images,
    is_at: |path| ends(path, ".npz") && path.is_file(),
    content: DataContent::Classified(|path, _| read_file(path)),
};

pub(super) const IN_FOLDER: Format = Format {
    name: "arrays",
    layout: "a folder with such arrays as .npy files",
    domain: Domain::Images,
    is_at: |path| names(path).iter().filter(|name| ends(Path::new(name), ".npy")).count() > 1,
    content: DataContent::Classified(|path, _| read_folder(path)),
};

const HINT: &str =
    "save them with np.savez(file, x_train=…, y_train=…, x_test=…, y_test=…), the last two if there are any";

/// An array and its name.
type Named = (String, Array);

fn read_file(path: &Path) -> Result<FoundData> {
    let mut file = Npz::open(path)?;
    let names: Vec<String> = file.names().map(str::to_owned).collect();
    let arrays: Result<Vec<Named>> = names.into_iter().map(|name| Ok((name.clone(), file.read(&name)?))).collect();
    found(path, arrays?)
}

fn read_folder(path: &Path) -> Result<FoundData> {
    let files = names(path).into_iter().filter(|name| ends(Path::new(name), ".npy"));
    let arrays: Result<Vec<Named>> = files.map(|name| Ok((name.clone(), npy::read(&path.join(&name))?))).collect();
    found(path, arrays?)
}

fn found(path: &Path, arrays: Vec<Named>) -> Result<FoundData> {
    let (test, train): (Vec<Named>, Vec<Named>) = arrays.into_iter().partition(|(name, _)| is_to_test(name));
    // With samples to validate with besides those to test with, the latter are those that nothing was chosen by.
    let (mut last, validation): (Vec<Named>, Vec<Named>) =
        test.into_iter().partition(|(name, _)| !is_to_validate(name));
    if last.is_empty() {
        last = validation;
    }
    let train = pair(path, "to train with", train)?;
    let test = if last.is_empty() { None } else { Some(pair(path, "to test with", last)?) };
    let labels = [Some(&train.1), test.as_ref().map(|test| &test.1)].into_iter().flatten();
    let classes = classes(path, labels.flat_map(integers))?;
    let domain = if is_table(&train.0) { Domain::Tables } else { Domain::Images };
    let normalise = Normalise::measured(&train.0).map_err(|error| error.in_file(path))?;
    let memory = |(samples, labels)| {
        Memory::new(samples, labels, classes, &normalise).map_err(|error: Error| error.in_file(path))
    };
    let (train, test) = (memory(train)?, test.map(memory).transpose()?);
    if let Some(test) = test.as_ref().filter(|test| test.shape() != train.shape()) {
        let problem =
            format!("samples to train with are {:?}, and those to test with {:?}", train.shape(), test.shape());
        return Err(Error::file(path, problem, HINT));
    }
    let identity = format!("{} samples of {:?} in {classes} classes", train.count(), train.shape());
    Ok(FoundData {
        train: Arc::new(train),
        test: test.map(|test| Arc::new(test) as Arc<dyn Samples>),
        domain,
        unreadable: Vec::new(),
        identity: Some(identity),
    })
}

/// Samples of two or four dimensions, and labels.
fn pair(path: &Path, purpose: &str, arrays: Vec<Named>) -> Result<(Array, Array)> {
    let described = || {
        let each = arrays.iter().map(|(name, array)| format!("{name} of shape {:?}", array.shape()));
        each.collect::<Vec<_>>().join(", ")
    };
    let labels = arrays.iter().filter(|(_, array)| is_labels(array)).count();
    if arrays.len() != 2 || labels != 1 {
        let problem = match arrays.len() {
            0 => format!("there are no arrays {purpose}"),
            _ => format!("these are not one array of samples and one of integer labels {purpose}: {}", described()),
        };
        return Err(Error::file(path, problem, HINT));
    }
    let (labels, samples): (Vec<Named>, Vec<Named>) = arrays.into_iter().partition(|(_, array)| is_labels(array));
    let missing = || Error::file(path, format!("there are no arrays {purpose}"), HINT);
    let (name, samples) = samples.into_iter().next().ok_or_else(missing)?;
    let (_, labels) = labels.into_iter().next().ok_or_else(missing)?;
    let (shape, values) = labels.into_parts();
    let labels = Array::new(vec![shape[0]], values)?;
    let samples = by_channels(samples).map_err(|shape| {
        let problem = format!("`{name}` has the shape {shape:?}, which is neither that of rows nor that of images");
        Error::file(
            path,
            problem,
            "samples have the shape [n, columns], [n, height, width] or [n, channels, height, width]",
        )
    })?;
    Ok((samples, labels))
}

/// Whether these are numbers of classes, one for each sample.
fn is_labels(array: &Array) -> bool {
    let is_list = matches!(array.shape(), [_] | [_, 1]);
    is_list && matches!(array.values(), Values::U8(_) | Values::I32(_) | Values::I64(_))
}

fn is_table(samples: &Array) -> bool {
    matches!(samples.shape(), [_, _, 1, 1])
}

/// Whether this is how many channels images have.
fn is_channels(dimension: usize) -> bool {
    matches!(dimension, 1 | 3 | 4)
}

/// Samples with channels before height and width: the columns of a table, or those of an image, which NumPy's users often
/// keep behind its pixels. If samples have no such shape, it is returned.
fn by_channels(samples: Array) -> std::result::Result<Array, Vec<usize>> {
    let (shape, values) = samples.into_parts();
    let wrong = |_| shape.clone();
    match *shape.as_slice() {
        [count, columns] => Array::new(vec![count, columns, 1, 1], values).map_err(wrong),
        [_, _, _] => Array::new(shape.clone(), values).map_err(wrong),
        [count, height, width, channels] if is_channels(channels) && !is_channels(height) => {
            let values = match values {
                Values::U8(values) => Values::U8(planes(&values, height * width, channels)),
                Values::I32(values) => Values::I32(planes(&values, height * width, channels)),
                Values::I64(values) => Values::I64(planes(&values, height * width, channels)),
                Values::F32(values) => Values::F32(planes(&values, height * width, channels)),
                Values::F64(values) => Values::F64(planes(&values, height * width, channels)),
            };
            Array::new(vec![count, channels, height, width], values).map_err(wrong)
        }
        [_, _, _, _] => Array::new(shape.clone(), values).map_err(wrong),
        _ => Err(shape),
    }
}

/// The values of images channel by channel, from those that were kept pixel by pixel.
fn planes<T: Copy>(values: &[T], pixels: usize, channels: usize) -> Vec<T> {
    let of_image = |image: &[T]| -> Vec<T> {
        let of_channel = |channel| image.chunks_exact(channels).map(move |pixel: &[T]| pixel[channel]);
        (0..channels).flat_map(of_channel).collect()
    };
    values.chunks_exact((pixels * channels).max(1)).flat_map(of_image).collect()
}

fn integers(labels: &Array) -> Vec<i64> {
    match labels.values() {
        Values::U8(labels) => labels.iter().copied().map(i64::from).collect(),
        Values::I32(labels) => labels.iter().copied().map(i64::from).collect(),
        Values::I64(labels) => labels.clone(),
        Values::F32(_) | Values::F64(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(shape: &[usize], values: Values) -> Array {
        Array::new(shape.to_vec(), values).unwrap()
    }

    fn bytes(shape: &[usize]) -> Array {
        array(shape, Values::U8((0..shape.iter().product::<usize>()).map(|value| value as u8).collect()))
    }

    fn labels(values: &[i64]) -> Array {
        array(&[values.len()], Values::I64(values.to_vec()))
    }

    fn read(arrays: Vec<(&str, Array)>) -> Result<FoundData> {
        found(Path::new("a.npz"), arrays.into_iter().map(|(name, array)| (name.to_owned(), array)).collect())
    }

    #[test]
    fn arrays_find_their_place_by_shape_and_name() {
        let column = array(&[2, 1], Values::U8(vec![0, 4]));
        let all = vec![
            ("y_test", column),
            ("x_test", bytes(&[2, 6, 5, 3])),
            ("x_train", bytes(&[3, 6, 5, 3])),
            ("y_train", labels(&[0, 1, 2])),
            ("x_val", bytes(&[1, 6, 5, 3])),
            ("y_val", labels(&[7])),
        ];
        let found = read(all).unwrap();
        assert_eq!((found.train.shape(), found.domain), ([3, 6, 5].as_slice(), Domain::Images));
        assert_eq!((found.train.count(), found.train.classes(), found.test.unwrap().count()), (3, 5, 2));
        let rows = array(&[2, 4], Values::F64(vec![0.5; 8]));
        let found = read(vec![("values", rows), ("labels", labels(&[1, 0]))]).unwrap();
        assert_eq!((found.train.shape(), found.domain), ([4, 1, 1].as_slice(), Domain::Tables));
        assert!(found.test.is_none());
        let grey = read(vec![("images", bytes(&[2, 6, 5])), ("labels", labels(&[1, 0]))]).unwrap();
        assert_eq!(grey.train.shape(), [1, 6, 5]);
    }

    #[test]
    fn channels_behind_the_pixels_are_put_before_them() {
        let pixels = by_channels(bytes(&[2, 5, 2, 3])).unwrap();
        assert_eq!(pixels.shape(), [2, 3, 5, 2]);
        let Values::U8(values) = pixels.values() else { panic!("they stay bytes") };
        assert_eq!((&values[..3], values[10], values[30]), ([0, 3, 6].as_slice(), 1, 30));
        assert_eq!(by_channels(bytes(&[2, 3, 5, 4])).unwrap().shape(), [2, 3, 5, 4]);
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let says = |arrays| read(arrays).err().unwrap().to_string();
        assert!(says(vec![("x", bytes(&[2, 3]))]).contains("x of shape [2, 3]"));
        assert!(says(vec![("x_test", bytes(&[2, 3]))]).contains("there are no arrays to train with"));
        assert!(says(vec![("a", labels(&[1])), ("b", labels(&[1]))]).contains("not one array of samples"));
        assert!(says(vec![("x", bytes(&[2, 3])), ("y", labels(&[1]))]).contains("2 samples and 1 labels"));
        assert!(says(vec![("x", bytes(&[2, 3])), ("y", labels(&[1, -1]))]).contains("the label of sample 1 is -1"));
        assert!(says(vec![("x", bytes(&[1, 3])), ("y", labels(&[1 << 40]))]).contains("a label is 1099511627776"));
        assert!(says(vec![("x", bytes(&[1, 2, 3, 2, 2])), ("y", labels(&[0]))]).contains("neither that of rows"));
        let wrong = array(&[1, 2], Values::F32(vec![1.0, f32::INFINITY]));
        assert!(says(vec![("x", wrong), ("y", labels(&[0]))]).contains("a value of sample 0 is inf"));
    }
}
