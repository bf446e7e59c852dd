//! The lines of a ledger: a checksum in hexadecimal digits, a space, and JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::checksum;

/// The format of all lines.
pub(super) const VERSION: u32 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    #[serde(rename = "sirtaki-ledger")]
    pub(super) version: u32,
    pub(super) plan: String,
    pub(super) facts: BTreeMap<String, String>,
}

/// Every other line. Unknown ones are skipped, so their names are part of the format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub(super) enum Record {
    Done {
        done: u64,
        sum: String,
        plan: String,
        by: String,
    },
    Lease {
        lease: Vec<u64>,
        until: u64,
        by: String,
    },
    Free {
        free: Vec<u64>,
        by: String,
    },
    Redo {
        redo: u64,
        by: String,
    },
    /// All leases are void: nobody who had one is left.
    AllFree {},
}

impl Header {
    pub(super) fn to_line(&self) -> Vec<u8> {
        line(self)
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        parse(line)
    }
}

impl Record {
    pub(super) fn to_line(&self) -> Vec<u8> {
        line(self)
    }

    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        parse(line)
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Names and numbers always have a form in JSON.
    let json = serde_json::to_string(value).unwrap_or_default();
    format!("{:016x} {json}\n", checksum::of(json.as_bytes())).into_bytes()
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    let (sum, rest) = line.split_at_checked(16)?;
    let json = rest.strip_prefix(b" ")?;
    let sum = u64::from_str_radix(str::from_utf8(sum).ok()?, 16).ok()?;
    (sum == checksum::of(json)).then(|| serde_json::from_slice(json).ok()).flatten()
}
