//! The job's secret. It never appears in logs, arguments or error texts.

use std::fmt;

use crate::CommError;

/// 32 random bytes that all processes of a job share.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A fresh one from the system's generator.
    pub fn random() -> Result<Self, CommError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)
            .map_err(|error| CommError::io("cannot draw random bytes", std::io::Error::other(error)))?;
        Ok(Self(bytes))
    }

    /// The secret from its 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, CommError> {
        let bad = || CommError::Invalid { problem: "the job's secret must be 64 hexadecimal digits".into() };
        let text = text.trim();
        if text.len() != 64 || !text.is_ascii() {
            return Err(bad());
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| bad())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }

    /// Its hexadecimal digits, for a child's environment and nothing else.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
