//! Sums of values and of their squares, without any rounding.
//!
//! A 32-bit floating-point number is a whole number of up to 24 bits times a power of 2. For each of the 254 powers, those
//! whole numbers and their squares are added up in 128 bits, which never overflow. Rounding happens at the end alone, so mean
//! and standard deviation do not depend on the order of anything.

use serde::{Deserialize, Serialize};

use crate::VolumeError;

/// The possible exponents of a finite 32-bit number: 0 for those close to zero, up to 254.
const POWERS: usize = 255;

/// Sums over voxels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments {
    count: u64,
    /// Values that are not numbers, or infinite. They are in no sum.
    odd: u64,
    sums: Vec<i128>,
    squares: Vec<u128>,
}

impl Default for Moments {
    fn default() -> Self {
        Self { count: 0, odd: 0, sums: vec![0; POWERS], squares: vec![0; POWERS] }
    }
}

impl Moments {
    /// Adds voxels.
    pub fn add(&mut self, values: &[f32]) {
        for value in values {
            let bits = value.to_bits();
            let power = (bits >> 23 & 0xff) as usize;
            if power >= POWERS {
                self.odd += 1;
                continue;
            }
            let fraction = i64::from(bits & 0x7f_ffff);
            let whole = if power == 0 { fraction } else { fraction | 1 << 23 };
            // Numbers close to zero have the power of those just above.
            let power = power.max(1);
            self.count += 1;
            self.sums[power] += i128::from(if bits >> 31 == 1 { -whole } else { whole });
            self.squares[power] += u128::from(whole.unsigned_abs().pow(2));
        }
    }

    /// Adds what somebody else has gathered.
    pub fn merge(&mut self, other: &Moments) {
        self.count += other.count;
        self.odd += other.odd;
        self.sums.iter_mut().zip(&other.sums).for_each(|(sum, other)| *sum += other);
        self.squares.iter_mut().zip(&other.squares).for_each(|(sum, other)| *sum += other);
    }

    /// How many voxels are in the sums.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many voxels are not numbers, or infinite.
    pub fn odd(&self) -> u64 {
        self.odd
    }

    /// The mean.
    pub fn mean(&self) -> Result<f64, VolumeError> {
        if self.count == 0 {
            return Err(VolumeError::Invalid("there is no voxel to take the mean of".to_owned()));
        }
        let sum: f64 = self.sums.iter().enumerate().map(|(power, sum)| *sum as f64 * unit(power)).sum();
        Ok(sum / self.count as f64)
    }

    /// The standard deviation of all voxels.
    pub fn deviation(&self) -> Result<f64, VolumeError> {
        let mean = self.mean()?;
        let about = |power: usize| {
            let (sum, square) =
                (self.sums[power] as f64 * unit(power), self.squares[power] as f64 * unit(power) * unit(power));
            square - 2.0 * mean * sum
        };
        let sum: f64 = (0..POWERS).map(about).sum();
        Ok((sum / self.count as f64 + mean * mean).max(0.0).sqrt())
    }
}

/// What a whole number of this power stands for.
fn unit(power: usize) -> f64 {
    2_f64.powi(power as i32 - 150)
}
