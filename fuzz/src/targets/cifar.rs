//! Any bytes are records of CIFAR or none; every image has a label that is a class.

use std::path::Path;

use sirtaki::data::{
    Source,
    cifar::{Variant, parse},
};

pub(crate) fn check(bytes: &[u8]) {
    for kind in [Variant::Cifar10, Variant::Cifar100] {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        let Ok(source) = Source::of_bytes(Path::new("fuzz"), bytes) else { return };
        if parse(source, kind, &mut pixels, &mut labels).is_ok() {
            assert_eq!(pixels.len(), labels.len() * 3072);
            assert!(labels.iter().all(|&label| usize::from(label) < kind.classes()));
        }
    }
}
