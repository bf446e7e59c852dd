//! Images in folders: one folder for each class, named after the class.
//!
//! Only names are read at first; an image is decoded when its sample is asked for, by the thread that asks. Classes and
//! files are numbered in the order of their names, so every worker numbers them alike.

use std::{
    collections::BTreeSet,
    fs,
    io::BufReader,
    path::{Path, PathBuf},
};

use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits, imageops::FilterType};
use sirtaki_engine::files;

use super::{Normalise, Samples};
use crate::{Error, Result};

/// The largest height and width of an image file, before it is made smaller.
const PIXELS: u32 = 16_384;

/// The most memory that decoding one image may take.
const MEMORY: u64 = 512 << 20;

const REPLACE: &str = "replace the image, or remove it from the folder";

/// Which colour channels of an image are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colours {
    /// One channel.
    Grey,
    /// Three channels: red, green, blue.
    Rgb,
}

/// The images of a folder of folders.
#[derive(Debug, Clone)]
pub struct Images {
    root: PathBuf,
    classes: Vec<String>,
    /// Class and file name.
    files: Vec<(u32, String)>,
    shape: [usize; 3],
    normalise: Normalise,
}

impl Images {
    /// Looks through a folder. Every image will be stretched to `height` and `width`; samples have the shape
    /// `[channels, height, width]`.
    ///
    /// Files not named `.png`, `.jpg` or `.jpeg` are skipped, and so is everything whose name begins with a dot.
    pub fn open(root: &Path, size: (u32, u32), colours: Colours, normalise: &Normalise) -> Result<Self> {
        let shape = shape(size, colours, normalise)?;
        let (classes, files) = list(root)?;
        Ok(Self { root: root.to_owned(), classes, files, shape, normalise: normalise.clone() })
    }

    /// The names of the classes; the place of a name is its label.
    pub fn names(&self) -> &[String] {
        &self.classes
    }

    /// The file of a sample.
    pub fn path(&self, index: usize) -> Option<PathBuf> {
        let (class, name) = self.files.get(index)?;
        Some(self.root.join(&self.classes[*class as usize]).join(name))
    }

    fn write(&self, bytes: &[u8], into: &mut [f32]) {
        let channels = self.shape[0];
        let plane = self.shape[1] * self.shape[2];
        for (channel, values) in into.chunks_exact_mut(plane).enumerate() {
            let part = channel.min(self.normalise.parts() - 1);
            for (value, pixel) in values.iter_mut().zip(bytes.chunks_exact(channels)) {
                *value = self.normalise.apply(part, f32::from(pixel[channel]) / 255.0);
            }
        }
    }
}

impl Samples for Images {
    fn count(&self) -> usize {
        self.files.len()
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> usize {
        self.classes.len()
    }

    fn read(&self, index: usize, into: &mut [f32]) -> Result<u32> {
        let (Some(path), true) = (self.path(index), into.len() == self.shape.iter().product::<usize>()) else {
            let problem = format!("image {index} of {} does not fit {} values", self.files.len(), into.len());
            return Err(Error::setting(problem, "ask for samples that there are, with room for exactly one"));
        };
        let image = decode(&path)?;
        let [channels, height, width] = self.shape.map(|dimension| dimension as u32);
        let image = if (image.height(), image.width()) == (height, width) {
            image
        } else {
            image.resize_exact(width, height, FilterType::Triangle)
        };
        if channels == 3 {
            self.write(&image.into_rgb8(), into)
        } else {
            self.write(&image.into_luma8(), into)
        };
        Ok(self.files[index].0)
    }
}

/// The images of a folder of folders, by their headers: enough to choose a shape for all of them.
#[derive(Debug)]
pub struct Survey {
    root: PathBuf,
    classes: Vec<String>,
    files: Vec<(u32, String)>,
    /// Height and width, if all images have the same.
    pub size: Option<(u32, u32)>,
    /// Colours, if an image has some.
    pub colours: Colours,
    /// Files that are left out, because they do not begin as images do.
    pub unreadable: Vec<Error>,
}

impl Survey {
    /// Looks at the headers of all images of a folder. Refused if not a single one can be read.
    pub fn new(root: &Path) -> Result<Self> {
        let (classes, all) = list(root)?;
        let (mut files, mut unreadable) = (Vec::new(), Vec::new());
        let (mut sizes, mut colours) = (BTreeSet::new(), Colours::Grey);
        for (class, name) in all {
            let path = root.join(&classes[class as usize]).join(&name);
            match header(&path) {
                Ok((size, found)) => {
                    sizes.insert(size);
                    colours = if found == Colours::Rgb { found } else { colours };
                    files.push((class, name));
                }
                Err(error) => unreadable.push(error),
            }
        }
        if files.is_empty() && !unreadable.is_empty() {
            return Err(unreadable.swap_remove(0));
        }
        let size = if sizes.len() == 1 { sizes.pop_first() } else { None };
        Ok(Self { root: root.to_owned(), classes, files, size, colours, unreadable })
    }

    /// The names of the classes.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The classes and names of all images that are not left out.
    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(class, name)| (self.classes[*class as usize].as_str(), name.as_str()))
    }

    /// The images, as [`Images::open`] gives them.
    pub fn open(self, size: (u32, u32), colours: Colours, normalise: &Normalise) -> Result<Images> {
        let shape = shape(size, colours, normalise)?;
        let Self { root, classes, files, .. } = self;
        Ok(Images { root, classes, files, shape, normalise: normalise.clone() })
    }
}

/// The shape of all samples, if there can be such samples.
fn shape((height, width): (u32, u32), colours: Colours, normalise: &Normalise) -> Result<[usize; 3]> {
    if !(1..=PIXELS).contains(&height) || !(1..=PIXELS).contains(&width) {
        let problem = format!("images cannot be made {height} high and {width} wide");
        return Err(Error::setting(problem, format!("both must be from 1 to {PIXELS}")));
    }
    let channels = if colours == Colours::Rgb { 3 } else { 1 };
    let shape = [channels, height as usize, width as usize];
    normalise.check(&shape)?;
    Ok(shape)
}

/// The class of an image by its number, and the name of its file.
type Image = (u32, String);

/// The classes of a folder, and all images.
fn list(root: &Path) -> Result<(Vec<String>, Vec<Image>)> {
    let classes = names(root, fs::FileType::is_dir)?;
    if classes.is_empty() {
        let hint = "put the images of each class into a folder of its own, named as the class";
        return Err(Error::file(root, "there is no folder in it, so there are no classes", hint));
    }
    let mut files = Vec::new();
    for (class, name) in classes.iter().enumerate() {
        let folder = root.join(name);
        let mut images = names(&folder, |kind| !kind.is_dir())?;
        images.retain(|name| is_image(name));
        if images.is_empty() {
            let hint = "put PNG or JPEG files into it, or remove it if it is not a class";
            return Err(Error::file(&folder, "there is no image in it", hint));
        }
        files.extend(images.into_iter().map(|name| (class as u32, name)));
    }
    Ok((classes, files))
}

/// Whether a folder has folders with images in it.
#[cfg(feature = "burn")]
pub(crate) fn has_classes(root: &Path) -> bool {
    let holds_image = |name: &String| {
        names(&root.join(name), |kind| !kind.is_dir()).is_ok_and(|names| names.iter().any(|name| is_image(name)))
    };
    names(root, fs::FileType::is_dir).is_ok_and(|folders| folders.iter().any(holds_image))
}

/// Height, width and colours of an image.
fn header(path: &Path) -> Result<((u32, u32), Colours)> {
    let decoder = reader(path)?.into_decoder().map_err(|error| undecodable(path, &error))?;
    let (width, height) = decoder.dimensions();
    let colours = if decoder.color_type().has_color() { Colours::Rgb } else { Colours::Grey };
    Ok(((height, width), colours))
}

fn undecodable(path: &Path, error: &ImageError) -> Error {
    Error::file(path, format!("content: the image cannot be decoded ({error})"), REPLACE)
}

/// Decodes a file by its content, whatever its name, within limits.
fn decode(path: &Path) -> Result<DynamicImage> {
    reader(path)?.decode().map_err(|error| undecodable(path, &error))
}

fn reader(path: &Path) -> Result<ImageReader<BufReader<fs::File>>> {
    let file = files::open(path).map_err(Error::io("open", path))?;
    let reader = ImageReader::new(BufReader::new(file)).with_guessed_format();
    let mut reader = reader.map_err(Error::io("read", path))?;
    if reader.format().is_none() {
        return Err(Error::file(path, "content: this is neither a PNG nor a JPEG image", REPLACE));
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(PIXELS);
    limits.max_image_height = Some(PIXELS);
    limits.max_alloc = Some(MEMORY);
    reader.limits(limits);
    Ok(reader)
}

fn is_image(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".png", ".jpg", ".jpeg"].iter().any(|end| name.ends_with(end))
}

/// The sorted names of the entries of a folder that are of the wanted kind. Links count as what they point to.
fn names(folder: &Path, wanted: fn(&fs::FileType) -> bool) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Error::file(&path, "name: it is not valid UTF-8", "rename it"));
        };
        if name.starts_with('.') {
            continue;
        }
        let kind = fs::metadata(&path).map_err(Error::io("read", &path))?.file_type();
        if wanted(&kind) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::*;

    fn open(root: &Path) -> Result<Images> {
        Images::open(root, (4, 6), Colours::Rgb, &Normalise::none())
    }

    fn example() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for class in ["zebra", "ape", ".hidden"] {
            fs::create_dir(root.path().join(class)).unwrap();
        }
        let image = |red| RgbImage::from_pixel(12, 8, Rgb([red, 51, 255]));
        image(255).save(root.path().join("zebra/b.png")).unwrap();
        image(0).save(root.path().join("zebra/a.PNG")).unwrap();
        image(102).save(root.path().join("ape/one.jpg")).unwrap();
        fs::write(root.path().join("ape/notes.txt"), "no image").unwrap();
        fs::write(root.path().join("readme"), "no class").unwrap();
        root
    }

    #[test]
    fn classes_and_files_are_in_order_of_names() {
        let root = example();
        let images = open(root.path()).unwrap();
        assert_eq!(images.names(), ["ape", "zebra"]);
        assert_eq!((images.count(), images.classes()), (3, 2));
        let ends: Vec<bool> = ["ape/one.jpg", "zebra/a.PNG", "zebra/b.png"]
            .iter()
            .enumerate()
            .map(|(n, end)| images.path(n).unwrap().ends_with(end))
            .collect();
        assert_eq!(ends, [true; 3]);
    }

    #[test]
    fn images_are_resized_and_channels_come_first() {
        let root = example();
        let images = open(root.path()).unwrap();
        let mut values = vec![-1.0; 3 * 4 * 6];
        assert_eq!(images.read(2, &mut values).unwrap(), 1);
        let expected: Vec<f32> = [1.0_f32, 0.2, 1.0].iter().flat_map(|&value| [value; 24]).collect();
        assert_eq!(values, expected);
        assert_eq!(images.read(0, &mut values).unwrap(), 0);
        assert!((values[0] - 0.4).abs() < 0.03, "{}", values[0]);
        assert!(images.read(3, &mut values).is_err());
        let normalise = Normalise::by(&[(0.5, 0.5)]).unwrap();
        let grey = Images::open(root.path(), (8, 12), Colours::Grey, &normalise).unwrap();
        let mut values = vec![9.0; 96];
        grey.read(2, &mut values).unwrap();
        assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
    }

    #[test]
    fn a_survey_finds_the_common_shape_and_leaves_out_what_is_no_image() {
        let root = example();
        let survey = Survey::new(root.path()).unwrap();
        assert_eq!((survey.size, survey.colours, survey.unreadable.len()), (Some((8, 12)), Colours::Rgb, 0));
        fs::write(root.path().join("zebra/c.png"), "no image").unwrap();
        image::GrayImage::new(3, 3).save(root.path().join("ape/grey.png")).unwrap();
        let survey = Survey::new(root.path()).unwrap();
        assert_eq!((survey.size, survey.files().count()), (None, 4));
        assert!(survey.unreadable[0].to_string().contains("zebra/c.png`: content"), "{:?}", survey.unreadable);
        let images = survey.open((4, 4), Colours::Grey, &Normalise::none()).unwrap();
        assert_eq!((images.count(), images.shape()), (4, [1, 4, 4].as_slice()));
        assert!(has_classes(root.path()) && !has_classes(&root.path().join("ape")));
        let bad = tempfile::tempdir().unwrap();
        fs::create_dir(bad.path().join("a")).unwrap();
        fs::write(bad.path().join("a/b.jpg"), "no image").unwrap();
        assert!(Survey::new(bad.path()).unwrap_err().to_string().contains("a/b.jpg"));
    }

    #[test]
    fn damaged_images_and_empty_folders_are_named() {
        let root = example();
        let path = root.path().join("ape/one.jpg");
        let good = fs::read(&path).unwrap();
        let images = open(root.path()).unwrap();
        let mut values = vec![0.0; 72];
        for bad in [b"no image at all".as_slice(), &good[..good.len() / 4], &[]] {
            fs::write(&path, bad).unwrap();
            let error = images.read(0, &mut values).unwrap_err();
            assert!(error.to_string().contains("one.jpg`: content:"), "{error}");
            assert!(error.hint().is_some());
        }
        fs::remove_file(&path).unwrap();
        assert!(images.read(0, &mut values).unwrap_err().to_string().contains("one.jpg"));
        assert!(open(root.path()).unwrap_err().to_string().ends_with("ape`: there is no image in it"));
        let empty = tempfile::tempdir().unwrap();
        assert!(open(empty.path()).unwrap_err().to_string().contains("there are no classes"));
        assert!(open(&empty.path().join("gone")).unwrap_err().to_string().starts_with("cannot list"));
        assert!(Images::open(root.path(), (0, 5), Colours::Rgb, &Normalise::none()).is_err());
    }
}
