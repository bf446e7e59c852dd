//! The job's secret, and what is computed from it. It never appears in logs, arguments or error texts, and memory that
//! held it is wiped.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use zeroize::{Zeroize, Zeroizing};

use crate::CommError;

/// 32 random bytes that all processes of a job share. Serialized for the pipe to an agent and nothing else.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A fresh one from the system's generator.
    pub fn random() -> Result<Self, CommError> {
        let mut secret = Self([0; 32]);
        getrandom::fill(&mut secret.0)
            .map_err(|error| CommError::io("cannot draw random bytes", std::io::Error::other(error)))?;
        Ok(secret)
    }

    /// The secret from its 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, CommError> {
        let bad = || CommError::Invalid { problem: "the job's secret must be 64 hexadecimal digits".into() };
        let text = text.trim();
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        let mut secret = Self([0; 32]);
        for (byte, digits) in secret.0.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(secret)
    }

    /// Its hexadecimal digits, for a child's environment and nothing else.
    pub fn to_hex(&self) -> Zeroizing<String> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            text.push(DIGITS[usize::from(byte >> 4)].into());
            text.push(DIGITS[usize::from(byte & 15)].into());
        }
        Zeroizing::new(text)
    }

    /// A secret for the group that `parts` identify, which only those who know this one can compute.
    #[must_use]
    pub fn derive(&self, parts: &[&[u8]]) -> Self {
        Self(self.tag("group", parts))
    }

    /// A code that proves that `parts`, in this order and with these boundaries, come from somebody who knows the
    /// secret. Codes for different purposes are unrelated.
    pub fn tag(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(purpose, parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the code for `parts`, in a time that does not depend on the answer.
    pub fn verify(&self, purpose: &str, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac(purpose, parts).verify_slice(tag).is_ok()
    }

    fn mac(&self, purpose: &str, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mac = keyed(&self.0).chain_update(b"sirtaki ");
        [purpose.as_bytes()].iter().chain(parts).fold(mac, |mac, part| {
            // Lengths come first, so that no two lists of parts are the same bytes.
            mac.chain_update((part.len() as u64).to_le_bytes()).chain_update(part)
        })
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// HMAC-SHA256 with this key.
pub(super) fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;

    use super::*;

    fn secret() -> Secret {
        Secret::from_hex(&"5a".repeat(32)).unwrap()
    }

    #[test]
    fn hexadecimal_digits_round_trip() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()).unwrap(), secret);
        assert_eq!(self::secret().to_hex().as_str(), "5a".repeat(32));
        assert!(Secret::from_hex(&"5g".repeat(32)).is_err() && Secret::from_hex("5a").is_err());
    }

    #[test]
    fn a_dropped_secret_is_wiped() {
        let mut secret = ManuallyDrop::new(secret());
        let place: *const [u8; 32] = &raw const secret.0;
        // SAFETY: dropped once, and not used as a secret afterwards.
        unsafe { ManuallyDrop::drop(&mut secret) };
        // SAFETY: the memory is still ours; bytes have no invariant that dropping could have broken.
        assert_eq!(unsafe { place.read_volatile() }, [0; 32]);
    }

    #[test]
    fn debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", secret()), "Secret(…)");
    }

    #[test]
    fn codes_tell_purposes_borders_and_order_apart() {
        let tags = [
            secret().tag("a", &[b"bc"]),
            secret().tag("a", &[b"b", b"c"]),
            secret().tag("a", &[b"c", b"b"]),
            secret().tag("ab", &[b"c"]),
            secret().tag("a", &[b"bc", b""]),
            secret().derive(&[b"bc"]).0,
            Secret::random().unwrap().tag("a", &[b"bc"]),
        ];
        for (at, tag) in tags.iter().enumerate() {
            assert!(!tags[..at].contains(tag), "code {at} is another one's");
        }
        assert!(secret().verify("a", &[b"bc"], &tags[0]));
        assert!(!secret().verify("a", &[b"bc"], &tags[1]) && !secret().verify("a", &[b"bc"], &tags[0][..31]));
    }
}
