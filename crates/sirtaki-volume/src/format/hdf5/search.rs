//! Which dataset of a file is meant.

use std::{
    collections::{HashSet, VecDeque},
    path::Path,
};

use super::{
    element::Element,
    name::with_dataset,
    newer,
    object::{Object, ObjectKind},
};
use crate::{
    VolumeError,
    format::{DAMAGED, unknown_dtype},
};

/// Groups inside groups that are looked into.
const DEPTH: usize = 8;
/// Objects that are looked at.
const OBJECTS: usize = 10_000;
/// Volumes that are shown where there are several.
const SHOWN: usize = 12;
/// Axes of what can be meant without being named.
const AXES: std::ops::RangeInclusive<usize> = 2..=4;

/// A dataset that can be read.
#[derive(Debug)]
pub(super) struct Found {
    /// Its place in the file.
    pub(super) path: String,
    pub(super) dataset: Object,
    pub(super) element: Element,
    pub(super) shape: Vec<u64>,
    /// Whether it was chosen here because it is the only one.
    pub(super) chosen: bool,
}

/// The dataset with this name; without a name, or with that of a group, the only one there that could be a volume.
pub(super) fn find(root: &Object, file: &Path, asked: Option<String>) -> Result<Found, VolumeError> {
    let asked = asked.map(|name| format!("/{}", name.trim_matches('/')));
    let (place, group) = match asked.as_deref() {
        None | Some("/") => (String::new(), None),
        Some(name) => {
            let object = root.open(name).map_err(|problem| absent(root, file, name, &problem))?;
            match object.kind() {
                ObjectKind::Dataset => return named(object, file, name),
                ObjectKind::Group => (name.to_owned(), Some(object)),
                ObjectKind::Other => {
                    let problem = "this is neither a dataset nor a group";
                    return Err(VolumeError::format(&with_dataset(file, name), problem, others(root, file)));
                }
            }
        }
    };
    let Volumes { found: mut there, problem } = volumes(group.as_ref().unwrap_or(root), &place);
    let whole = if place.is_empty() { file.to_owned() } else { with_dataset(file, &place) };
    match (there.len(), there.pop()) {
        (1, Some(only)) => Ok(Found { chosen: true, ..only }),
        (0, _) | (_, None) => {
            let hint = "name a dataset, as in `scan.h5:/entry/data`; `h5ls -r` or h5py show which there are";
            let hint = problem.as_deref().and_then(newer).unwrap_or(hint);
            let problem = problem.map(|problem| format!("; {problem}")).unwrap_or_default();
            let problem = format!("there is no dataset of numbers with 2 to 4 axes in it{problem}");
            Err(VolumeError::format(&whole, problem, hint))
        }
        (count, Some(last)) => {
            there.push(last);
            let problem = format!("there are {count} datasets that could be meant: {}", list(&there));
            let hint = format!("name one of them, as in `{}`", with_dataset(file, &there[0].path).display());
            Err(VolumeError::format(&whole, problem, hint))
        }
    }
}

/// The dataset that was asked for.
fn named(dataset: Object, file: &Path, path: &str) -> Result<Found, VolumeError> {
    let name = with_dataset(file, path);
    let damaged = |problem: String| VolumeError::format(&name, problem, DAMAGED);
    let shape = dataset.shape().map_err(damaged)?;
    let stored = dataset.type_of_dataset().map_err(damaged)?;
    let element = Element::of(&stored).map_err(damaged)?.map_err(|other| unknown_dtype(&name, &other))?;
    if shape.is_empty() {
        return Err(VolumeError::format(&name, "this is a single value and no volume", DAMAGED));
    }
    Ok(Found { path: path.to_owned(), dataset, element, shape, chosen: false })
}

/// What is below a group.
#[derive(Default)]
struct Volumes {
    found: Vec<Found>,
    /// The first thing that could not be opened, and why.
    problem: Option<String>,
}

impl Volumes {
    fn trouble(&mut self, path: &str, problem: &str) {
        self.problem.get_or_insert_with(|| format!("{path} cannot be opened: {problem}"));
    }
}

/// Everything below a group that could be a volume, once each, whatever links lead to it.
fn volumes(root: &Object, place: &str) -> Volumes {
    let (mut there, mut known) = (Volumes::default(), HashSet::new());
    let mut left = OBJECTS;
    let mut groups = VecDeque::from([(place.to_owned(), 0)]);
    known.extend(root.identity());
    while let Some((path, depth)) = groups.pop_front() {
        let inside = path[place.len()..].trim_start_matches('/');
        let opened = if inside.is_empty() { None } else { root.open(inside).ok() };
        let group = match (&opened, inside.is_empty()) {
            (Some(group), _) => group,
            (None, true) => root,
            (None, false) => continue,
        };
        let place_of = if path.is_empty() { "/" } else { &path };
        let links = group.links().unwrap_or_else(|problem| {
            there.trouble(place_of, &problem);
            0
        });
        for number in 0..links {
            if left == 0 {
                return there;
            }
            left -= 1;
            let link = match group.link(number) {
                Ok(link) => link,
                Err(problem) => {
                    there.trouble(place_of, &problem);
                    continue;
                }
            };
            let path = format!("{path}/{link}");
            let object = match group.open(&link) {
                Ok(object) => object,
                // It may just lead nowhere, as to a file that was left behind.
                Err(problem) => {
                    there.trouble(&path, &problem);
                    continue;
                }
            };
            if object.identity().is_some_and(|identity| !known.insert(identity)) {
                continue;
            }
            match object.kind() {
                ObjectKind::Group if depth < DEPTH => groups.push_back((path, depth + 1)),
                ObjectKind::Dataset => there.found.extend(named(object, Path::new(""), &path).ok().filter(is_volume)),
                _ => {}
            }
        }
    }
    there
}

fn is_volume(found: &Found) -> bool {
    AXES.contains(&found.shape.len()) && found.shape.iter().all(|size| *size > 0)
}

fn absent(root: &Object, file: &Path, name: &str, problem: &str) -> VolumeError {
    let hint = newer(problem).map_or_else(|| others(root, file), str::to_owned);
    VolumeError::format(&with_dataset(file, name), format!("this cannot be opened: {problem}"), hint)
}

/// What could have been meant.
fn others(root: &Object, file: &Path) -> String {
    match volumes(root, "").found.as_slice() {
        [] => "`h5ls -r` or h5py show what is in the file".to_owned(),
        there => format!("the volumes in {} are {}", file.display(), list(there)),
    }
}

/// Datasets with their shapes.
fn list(there: &[Found]) -> String {
    let show = |found: &Found| {
        let sizes: Vec<String> = found.shape.iter().map(u64::to_string).collect();
        format!("{} ({} {})", found.path, sizes.join(" × "), found.element.dtype)
    };
    let mut shown: Vec<String> = there.iter().take(SHOWN).map(show).collect();
    if there.len() > SHOWN {
        shown.push(format!("and {} more", there.len() - SHOWN));
    }
    shown.join(", ")
}
