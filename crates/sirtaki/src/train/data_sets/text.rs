//! Sequences of characters, from a file, a folder or the grammar.

use std::sync::Arc;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use sha2::{Digest as _, Sha256};
use sirtaki_launch::words::grouped;

use super::{DataSet, Domain, SampleKind, Settings, refuse_others};
use crate::{
    Error, Flow, Result,
    checkpoint::hex,
    data::{Batch, Split, Text, grammar, text},
};

/// What sequences are like: their length, and the number of different characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::train) struct TextKind {
    pub(in crate::train) length: usize,
    pub(in crate::train) characters: usize,
}

/// What can be trained with.
const FORMS: &str = "name a text in UTF-8, or a folder with some, named .txt";

/// Characters of a sequence.
const LENGTH: usize = 64;
/// Characters of the text that the grammar makes.
const MADE: usize = 1 << 18;
/// Sequences of that length that are tested at a time; memory grows with the square of the length.
const TESTED: usize = 500;

impl SampleKind for TextKind {
    const DOMAIN: Domain = Domain::Text;

    fn open(settings: &Settings) -> Result<(DataSet, Self)> {
        let whole = match &settings.data {
            None => grammar::text(MADE),
            Some(path) if !path.exists() => return Err(Error::file(path, "there is no such file or folder", FORMS)),
            Some(path) => {
                refuse_others(settings, path, FORMS)?;
                text::read(path)?
            }
        };
        let length = settings.context.unwrap_or(LENGTH);
        let split = Text::split(&whole, length);
        let Split { train, test } = match &settings.data {
            Some(path) => split.map_err(|error| error.in_file(path))?,
            None => split?,
        };
        let kind = TextKind { length, characters: train.alphabet().len() };
        let digest = hex(&Sha256::digest(&whole));
        let identity =
            vec![("context", length.to_string()), ("data", format!("a text with SHA-256 {}", &digest[..16]))];
        let tested = (TESTED * LENGTH * LENGTH / length.saturating_mul(length)).clamp(1, TESTED);
        let origin = if settings.data.is_some() { "text" } else { "text made by a grammar" };
        let (characters, different) = (whole.chars().count(), kind.characters);
        let data = DataSet {
            train: Arc::new(train),
            test: Arc::new(test),
            domain: Self::DOMAIN,
            tested,
            identity,
            found: format!(
                "{origin}: {} characters, {different} different ones; the last tenth to test with",
                grouped(characters as f64)
            ),
            unreadable: Vec::new(),
            replaced: Vec::new(),
        };
        Ok((data, kind))
    }

    /// What should come out are the characters that follow those of each sequence, one sequence after the other.
    fn tensors(batch: Batch, device: &Device, _: DType) -> Result<(Flow, Tensor<1, Int>)> {
        let (count, length) = (batch.count(), batch.shape().iter().product::<usize>());
        let given: Vec<i64> = batch.values().iter().map(|&number| number as i64).collect();
        let after = |(sequence, &last): (&[i64], &u32)| {
            let rest = sequence[1..].to_vec();
            rest.into_iter().chain([i64::from(last)])
        };
        let wanted: Vec<i64> = given.chunks_exact(length).zip(batch.labels()).flat_map(after).collect();
        let wanted = Tensor::from_data(TensorData::new(wanted, [count * length]), device);
        let given = Tensor::<2, Int>::from_data(TensorData::new(given, [count, length]), device);
        Ok((Flow::new().with(given), wanted))
    }

    fn blank(&self, samples: usize, device: &Device) -> Flow {
        Flow::new().with(Tensor::<2, Int>::zeros([samples, self.length], device))
    }
}
