//! Percentiles of a whole volume.
//!
//! Numbers are sorted into bins by their leading bits, after a change of form that puts all of them, negative ones too, in
//! ascending order. For whole numbers of up to 16 bits each bin is one value, so one pass is exact. For 32-bit numbers a bin
//! of the first pass holds those that agree in 16 bits; a second pass over the volume counts the values of that bin
//! alone and is exact. Histograms of parts are added.

use serde::{Deserialize, Serialize};

use crate::VolumeError;

const BINS: usize = 1 << 16;

/// What the values of a histogram are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Whole numbers from 0 to 65535.
    Unsigned,
    /// Whole numbers from −32768 to 32767.
    Signed,
    /// Floating-point numbers of 32 bits.
    Float,
}

/// How many voxels have which value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    kind: Kind,
    /// The leading 16 bits that all counted values share, in a second pass.
    within: Option<u16>,
    counts: Vec<u64>,
    /// Values that are not numbers; they have no place.
    odd: u64,
}

/// A percentile, or what is known of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Percentile {
    /// Its value.
    Exact(f64),
    /// It is one of the values in this bin, which has so many smaller values before it: look once more, with
    /// [`Histogram::within`].
    Inside {
        /// The bin.
        bin: u16,
        /// The place of the percentile among the bin's values, from 0 on.
        place: u64,
        /// The smallest value that it can be.
        low: f32,
        /// The largest one.
        high: f32,
    },
}

impl Histogram {
    /// An empty one.
    pub fn new(kind: Kind) -> Self {
        Self { kind, within: None, counts: vec![0; BINS], odd: 0 }
    }

    /// An empty one for the second pass, which counts the values of one bin.
    pub fn within(bin: u16) -> Self {
        Self { within: Some(bin), ..Self::new(Kind::Float) }
    }

    /// Adds whole numbers; those that its kind does not have are an error.
    pub fn add_integers(&mut self, values: impl IntoIterator<Item = i32>) -> Result<(), VolumeError> {
        let first = match self.kind {
            Kind::Unsigned => 0,
            Kind::Signed => i32::from(i16::MIN),
            Kind::Float => {
                return Err(VolumeError::Invalid("whole numbers in a histogram of floating-point ones".to_owned()));
            }
        };
        for value in values {
            let bin = value.checked_sub(first).and_then(|bin| usize::try_from(bin).ok()).filter(|bin| *bin < BINS);
            let Some(bin) = bin else {
                return Err(VolumeError::Invalid(format!(
                    "{value} in a histogram of {:?} numbers of 16 bits",
                    self.kind
                )));
            };
            self.counts[bin] += 1;
        }
        Ok(())
    }

    /// Adds floating-point numbers; in a second pass, those outside its bin are passed over.
    pub fn add(&mut self, values: &[f32]) -> Result<(), VolumeError> {
        if self.kind != Kind::Float {
            return Err(VolumeError::Invalid("floating-point numbers in a histogram of whole ones".to_owned()));
        }
        for value in values {
            if value.is_nan() {
                self.odd += 1;
                continue;
            }
            let order = ascending(*value);
            let (leading, rest) = ((order >> 16) as u16, order as u16);
            match self.within {
                None => self.counts[usize::from(leading)] += 1,
                Some(bin) if bin == leading => self.counts[usize::from(rest)] += 1,
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Adds what somebody else has counted.
    pub fn merge(&mut self, other: &Histogram) -> Result<(), VolumeError> {
        if (self.kind, self.within, self.counts.len()) != (other.kind, other.within, other.counts.len()) {
            return Err(VolumeError::Invalid("histograms of different things cannot be added".to_owned()));
        }
        self.odd += other.odd;
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, other)| *count += other);
        Ok(())
    }

    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How many voxels are not numbers.
    pub fn odd(&self) -> u64 {
        self.odd
    }

    /// The value that so many percent of all values do not exceed: one of the volume's own values, the first of those for
    /// which that is true.
    pub fn percentile(&self, percent: f64) -> Result<Percentile, VolumeError> {
        let count = self.count();
        if count == 0 || !(0.0..=100.0).contains(&percent) {
            return Err(VolumeError::Invalid(format!("there is no percentile {percent} of {count} values")));
        }
        let place = ((percent / 100.0 * count as f64).ceil() as u64).clamp(1, count) - 1;
        self.at(place)
    }

    /// The value at this place when all are in ascending order; places count from 0 on.
    pub fn at(&self, place: u64) -> Result<Percentile, VolumeError> {
        let mut before = 0;
        for (bin, count) in self.counts.iter().enumerate() {
            if place < before + count {
                return Ok(self.bin(bin as u32, place - before));
            }
            before += count;
        }
        Err(VolumeError::Invalid(format!("there is no value {place} among {before}")))
    }

    fn bin(&self, bin: u32, place: u64) -> Percentile {
        match (self.kind, self.within) {
            (Kind::Unsigned, _) => Percentile::Exact(f64::from(bin)),
            (Kind::Signed, _) => Percentile::Exact(f64::from(bin) + f64::from(i16::MIN)),
            (Kind::Float, Some(leading)) => Percentile::Exact(from_ascending(u32::from(leading) << 16 | bin).into()),
            (Kind::Float, None) => Percentile::Inside {
                bin: bin as u16,
                place,
                low: from_ascending(bin << 16),
                high: from_ascending(bin << 16 | 0xffff),
            },
        }
    }
}

/// A number of 32 bits that is the larger the larger the value is.
fn ascending(value: f32) -> u32 {
    let bits = value.to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn from_ascending(order: u32) -> f32 {
    f32::from_bits(if order >> 31 == 1 { order & !(1 << 31) } else { !order })
}
