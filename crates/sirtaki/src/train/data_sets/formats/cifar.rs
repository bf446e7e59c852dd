//! CIFAR-10 and CIFAR-100.

use std::{path::Path, sync::Arc};

use super::{DataContent, Domain, Format, FoundData};
use crate::{
    Result,
    data::{Normalise, Split, cifar},
};

pub(super) const TEN: Format = Format {
    name: "CIFAR-10",
    layout: "a folder with CIFAR-10's data_batch_1.bin to data_batch_5.bin and test_batch.bin",
    domain: Domain::Images,
    is_at: |path| path.join("data_batch_1.bin").exists(),
    content: DataContent::Classified(|path, _| read(path, cifar::Variant::Cifar10)),
};

pub(super) const HUNDRED: Format = Format {
    name: "CIFAR-100",
    layout: "a folder with CIFAR-100's train.bin and test.bin",
    domain: Domain::Images,
    is_at: |path| path.join("train.bin").exists(),
    content: DataContent::Classified(|path, _| read(path, cifar::Variant::Cifar100)),
};

/// Mean and deviation of the pixels.
const COLOURS: [(f32, f32); 3] = [(0.4914, 0.247), (0.4822, 0.2435), (0.4465, 0.2616)];

fn read(folder: &Path, variant: cifar::Variant) -> Result<FoundData> {
    let Split { train, test } = cifar::load(folder, variant, &Normalise::by(&COLOURS)?)?;
    Ok(FoundData {
        train: Arc::new(train),
        test: Some(Arc::new(test)),
        domain: Domain::Images,
        unreadable: Vec::new(),
        identity: None,
    })
}
