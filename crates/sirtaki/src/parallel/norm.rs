//! Sums of squares that do not depend on the order of the summands.
//!
//! The norm of all gradients decides how far they are clipped. Ranks that have different parts of them have to find the
//! same number as one that has them all, to the last bit, so squares are added exactly: as whole numbers, one sum for
//! each exponent. Rejected: adding `f64` in a fixed order, for which parts would have to be summed one after the other.

use burn::tensor::TensorData;
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Operation, Request, Tensor};

use crate::{Result, World, world::elements};

/// How many exponents `f64` has.
const EXPONENTS: usize = 2048;
/// Bits of a digit of [`Squares::digits`]; sums of very many of them fit into an `i64`.
const DIGIT: usize = 32;
/// Digits that hold the largest sum: all exponents, the bits of a number, and of how many there are.
pub(super) const DIGITS: usize = (EXPONENTS + 128) / DIGIT + 2;

/// A sum of squares.
pub(super) struct Squares {
    /// For each exponent, the sum of the significands.
    sums: Vec<u128>,
}

impl Squares {
    pub(super) fn new() -> Self {
        Self { sums: vec![0; EXPONENTS] }
    }

    /// Adds the squares of these elements.
    pub(super) fn add(&mut self, data: &TensorData) {
        match data.as_slice::<f32>() {
            Ok(elements) => elements.iter().for_each(|&element| self.add_square(element.into())),
            Err(_) => data.iter::<f64>().for_each(|element| self.add_square(element)),
        }
    }

    fn add_square(&mut self, element: f64) {
        let bits = (element * element).to_bits();
        // The sign is not set, as squares have none, except where the element is not a number.
        let exponent = (bits >> 52) as usize & (EXPONENTS - 1);
        let fraction = bits & ((1 << 52) - 1);
        let significand = if exponent == 0 { fraction } else { fraction | 1 << 52 };
        self.sums[exponent] += u128::from(significand);
    }

    /// The sum as a number in base 2³², the lowest digit first, and then how many summands were not finite. Digits of
    /// several sums can be added.
    pub(super) fn digits(&self) -> Vec<i64> {
        let mut digits = vec![0_i64; DIGITS + 1];
        for (exponent, &sum) in self.sums.iter().enumerate().take(EXPONENTS - 1) {
            if sum == 0 {
                continue;
            }
            // Subnormal numbers have the exponent of the smallest normal ones.
            let (place, shift) = (exponent.max(1) / DIGIT, exponent.max(1) % DIGIT);
            let (mut rest, mut at) = (sum, place);
            let mut carried = 0_u64;
            while rest > 0 || carried > 0 {
                let digit = ((rest as u32 as u64) << shift) + carried;
                digits[at] += i64::from(digit as u32);
                (rest, carried, at) = (rest >> DIGIT, digit >> DIGIT, at + 1);
            }
        }
        digits[DIGITS] = i64::from(self.sums[EXPONENTS - 1] > 0);
        digits
    }
}

/// The digits of the sum over all ranks of some worlds, each of which has every combination of the others' ranks.
pub(super) fn over(worlds: &[&World], name: &str, mut digits: Vec<i64>) -> Result<Vec<i64>> {
    for world in worlds.iter().filter(|world| world.size() > 1) {
        let operation = Operation::AllReduce(Reduction::SUM);
        let request = Request::new(name, operation, DType::I64, &[digits.len()]).of_all();
        digits = elements(name, world.engine().submit(request, Tensor::from_vec(digits)).wait_one()?)?;
    }
    Ok(digits)
}

/// The root of the sum that these digits are, whichever digits it was added from.
pub(super) fn root(digits: &[i64]) -> f64 {
    if digits[DIGITS] > 0 {
        return f64::INFINITY;
    }
    let (mut carried, mut normal) = (0, Vec::with_capacity(DIGITS + 1));
    for &digit in &digits[..DIGITS] {
        let sum = digit + carried;
        normal.push((sum & ((1 << DIGIT) - 1)) as f64);
        carried = sum >> DIGIT;
    }
    normal.push(carried as f64);
    let Some(top) = normal.iter().rposition(|&digit| digit > 0.0) else { return 0.0 };
    // Three digits have more bits than the result; an even number of places can be halved by the root.
    let low = top.saturating_sub(2) / 2 * 2;
    let base = (1_u64 << DIGIT) as f64;
    let leading = normal[low..=top].iter().rev().fold(0.0, |number, digit| number * base + digit);
    // The lowest digit counts multiples of 2^-1075.
    let exponent = (low * DIGIT) as i32 - 1075;
    let (leading, exponent) = if exponent % 2 == 0 { (leading, exponent) } else { (leading * 2.0, exponent - 1) };
    leading.sqrt() * 2_f64.powi(exponent / 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digits(elements: &[f32]) -> Vec<i64> {
        let mut squares = Squares::new();
        squares.add(&TensorData::new(elements.to_vec(), [elements.len()]));
        squares.digits()
    }

    #[test]
    fn norms_by_hand() {
        assert_eq!(root(&digits(&[])), 0.0);
        assert_eq!(root(&digits(&[3.0, -4.0])), 5.0);
        assert_eq!(root(&digits(&[1e-30, 0.0])), f64::from(1e-30_f32));
        assert_eq!(root(&digits(&[3e38])), f64::from(3e38_f32));
        assert_eq!(root(&digits(&[f32::MIN_POSITIVE / 8.0; 4])), f64::from(f32::MIN_POSITIVE / 4.0));
        assert_eq!(root(&digits(&[1.0, f32::INFINITY])), f64::INFINITY);
        assert_eq!(root(&digits(&[1.0, f32::NAN])), f64::INFINITY);
        let mut doubles = Squares::new();
        doubles.add(&TensorData::new(vec![3e150_f64, 4e150], [2]));
        assert!((root(&doubles.digits()) / 5e150 - 1.0).abs() < 1e-15);
    }

    proptest! {
        #[test]
        fn the_order_does_not_matter(elements in prop::collection::vec(any::<f32>(), 0..200), cut in 0_usize..200) {
            let finite: Vec<f32> = elements.into_iter().filter(|element| element.is_finite()).collect();
            let whole = root(&digits(&finite));
            let (left, right) = finite.split_at(cut.min(finite.len()));
            let parts: Vec<i64> = digits(right).iter().zip(digits(left)).map(|(one, other)| one + other).collect();
            prop_assert_eq!(root(&parts).to_bits(), whole.to_bits());
            let plain = finite.iter().map(|&element| f64::from(element).powi(2)).sum::<f64>().sqrt();
            prop_assert!((whole - plain).abs() <= 1e-12 * plain, "{} and {}", whole, plain);
        }
    }
}
