//! Images in a folder for each class.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{DataContent, Domain, Format, FoundData};
use crate::{
    Error, Result,
    checkpoint::hex,
    data::{
        Normalise, Samples,
        folder::{Colours, Survey, has_classes},
    },
};

pub(super) const FORMAT: Format = Format {
    name: "image folder",
    layout: "a folder with a folder of PNG or JPEG images for each class, or with such folders in train and test (or val)",
    domain: Domain::Images,
    is_at: |path| has_classes(path) || has_classes(&path.join(TRAIN)),
    content: DataContent::Classified(read),
};

const TRAIN: &str = "train";
const TEST: [&str; 4] = ["test", "val", "valid", "validation"];

/// Height and width if images differ, and the largest ones that are kept if they do not.
const SIDE: u32 = 64;
const LARGEST: u32 = 224;

/// Mean and deviation of the colours of photographs, those of ImageNet, and of greys.
const PHOTOGRAPHS: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];
const GREYS: [(f32, f32); 1] = [(0.45, 0.226)];

fn read(path: &Path, side: Option<u32>) -> Result<FoundData> {
    let parts = path.join(TRAIN).is_dir() && has_classes(&path.join(TRAIN));
    let train = Survey::new(&if parts { path.join(TRAIN) } else { path.to_owned() })?;
    let test: Option<PathBuf> = TEST.iter().map(|name| path.join(name)).find(|folder| parts && folder.is_dir());
    let test = test.map(|folder| Survey::new(&folder).map(|survey| (survey, folder))).transpose()?;
    if let Some((survey, folder)) = test.as_ref().filter(|(test, _)| test.classes() != train.classes()) {
        let (there, here) = (survey.classes().join(", "), train.classes().join(", "));
        let problem = format!("its classes are {there}, and those to train with {here}");
        return Err(Error::file(folder, problem, "give both folders a folder for each class"));
    }
    let all: Vec<&Survey> = [Some(&train), test.as_ref().map(|(test, _)| test)].into_iter().flatten().collect();
    let size = match (side, all[0].size) {
        (Some(side), _) => (side, side),
        (None, Some(size)) if all.iter().all(|part| part.size == Some(size)) && size.0.max(size.1) <= LARGEST => size,
        _ => (SIDE, SIDE),
    };
    let colours = all.iter().map(|part| part.colours).find(|&found| found == Colours::Rgb).unwrap_or(Colours::Grey);
    let normalise = Normalise::by(if colours == Colours::Rgb { &PHOTOGRAPHS } else { &GREYS })?;
    let unreadable = all.iter().flat_map(|part| &part.unreadable).map(ToString::to_string).collect();
    let identity = Some(digest(&train, size));
    let open = |part: Survey| part.open(size, colours, &normalise).map(|images| Arc::new(images) as Arc<dyn Samples>);
    let test = test.map(|(test, _)| open(test)).transpose()?;
    Ok(FoundData { train: open(train)?, test, domain: Domain::Images, unreadable, identity })
}

fn digest(images: &Survey, (height, width): (u32, u32)) -> String {
    let mut digest = Sha256::new();
    for (class, name) in images.files() {
        digest.update(format!("{class}/{name}\n"));
    }
    format!("images of {height} by {width} pixels whose names have SHA-256 {}", &hex(&digest.finalize())[..16])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use image::{GrayImage, RgbImage};

    use super::*;

    #[test]
    fn sizes_colours_and_parts_are_found() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str, side: u32, colours: bool| {
            let path = place.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if colours { RgbImage::new(side, side + 1).save(path) } else { GrayImage::new(side, side + 1).save(path) }
                .unwrap();
        };
        make("ape/1.png", 20, false);
        make("zebra/1.png", 20, false);
        let found = read(place.path(), None).unwrap();
        assert_eq!((found.train.shape(), found.train.classes()), ([1, 21, 20].as_slice(), 2));
        assert!(found.test.is_none());
        let before = found.identity;
        make("zebra/2.png", 20, true);
        let found = read(place.path(), None).unwrap();
        assert_eq!(found.train.shape(), [3, 21, 20]);
        assert_ne!(found.identity, before);
        make("zebra/3.png", 30, true);
        assert_eq!(read(place.path(), None).unwrap().train.shape(), [3, 64, 64]);
        assert_eq!(read(place.path(), Some(17)).unwrap().train.shape(), [3, 17, 17]);
        make("parts/train/ape/1.png", 400, false);
        make("parts/val/ape/1.png", 400, false);
        let found = read(&place.path().join("parts"), None).unwrap();
        assert_eq!((found.train.shape(), found.test.unwrap().count()), ([1, 64, 64].as_slice(), 1));
        make("parts/val/bee/1.png", 400, false);
        let error = read(&place.path().join("parts"), None).err().unwrap().to_string();
        assert!(error.ends_with("its classes are ape, bee, and those to train with ape"), "{error}");
    }
}
