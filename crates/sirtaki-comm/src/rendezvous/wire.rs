//! What a client and the server of a [`TcpStore`](super::TcpStore) say to each other, as pure functions over bytes.
//!
//! A message is a length (4 bytes, little-endian) and that many bytes of postcard. Lengths are checked before anything
//! is allocated, and every limit of the store is checked here, for all kinds of stores.

use serde::{Deserialize, Serialize};

use crate::CommError;

/// Most bytes of a key.
pub const KEY_LIMIT: usize = 256;
/// Most bytes of a value.
pub const VALUE_LIMIT: usize = 1 << 20;
/// Most bytes of a message: a key, a value and what surrounds them.
pub const MESSAGE_LIMIT: usize = VALUE_LIMIT + KEY_LIMIT + 64;
/// Bytes of the length in front of a message.
pub const PREFIX: usize = 4;

/// What a client asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request<'a> {
    /// Set a key.
    Set {
        /// The key.
        key: &'a str,
        /// Its new value.
        value: &'a [u8],
    },
    /// Answer as soon as the key has a value, or after this many milliseconds.
    Wait {
        /// The key.
        key: &'a str,
        /// How long the server may hold back the answer.
        limit_ms: u32,
    },
    /// Add to a counter.
    Add {
        /// The counter.
        key: &'a str,
        /// What to add.
        amount: i64,
    },
}

/// What the server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response<'a> {
    /// The key is set.
    Done,
    /// The key's value.
    Value(&'a [u8]),
    /// The key has no value yet.
    NotYet,
    /// The counter's new sum.
    Sum(i64),
    /// The request was wrong, in words.
    Problem(&'a str),
}

/// How many bytes follow this prefix; an error if that is more than any message has.
pub fn parse_length(prefix: [u8; PREFIX]) -> Result<usize, CommError> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MESSAGE_LIMIT {
        return invalid(format!("a message of {length} bytes to the store, more than {MESSAGE_LIMIT}"));
    }
    Ok(length)
}

/// The request in these bytes, within all limits.
pub fn parse_request(bytes: &[u8]) -> Result<Request<'_>, CommError> {
    let request = parse(bytes)?;
    match request {
        Request::Set { key, value } => check(key, value)?,
        Request::Wait { key, .. } | Request::Add { key, .. } => check(key, &[])?,
    }
    Ok(request)
}

/// The response in these bytes.
pub fn parse_response(bytes: &[u8]) -> Result<Response<'_>, CommError> {
    parse(bytes)
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CommError> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => invalid(format!("{} bytes too many in a message of the store", rest.len())),
        Err(error) => invalid(format!("a message of the store cannot be read: {error}")),
    }
}

/// A message with its length in front.
pub fn frame(message: &impl Serialize) -> Result<Vec<u8>, CommError> {
    let bytes = postcard::to_extend(message, vec![0; PREFIX])
        .or_else(|error| invalid(format!("a message to the store cannot be written: {error}")))?;
    let length = bytes.len() - PREFIX;
    let mut bytes = bytes;
    bytes[..PREFIX].copy_from_slice(&(length as u32).to_le_bytes());
    parse_length(std::array::from_fn(|i| bytes[i]))?;
    Ok(bytes)
}

/// Whether a store takes this key and value.
pub fn check(key: &str, value: &[u8]) -> Result<(), CommError> {
    if key.is_empty() || key.len() > KEY_LIMIT {
        return invalid(format!("a key of {} bytes in the store, not 1 to {KEY_LIMIT}", key.len()));
    }
    if value.len() > VALUE_LIMIT {
        return invalid(format!("a value of {} bytes for {key:?} in the store, at most {VALUE_LIMIT}", value.len()));
    }
    Ok(())
}

fn invalid<T>(problem: String) -> Result<T, CommError> {
    Err(CommError::Invalid { problem })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn limits_hold() {
        let long = "k".repeat(KEY_LIMIT + 1);
        let request = frame(&Request::Add { key: &long, amount: 1 }).unwrap();
        assert!(parse_request(&request[PREFIX..]).is_err());
        assert!(frame(&Request::Set { key: "k", value: &vec![0; MESSAGE_LIMIT] }).is_err());
        assert!(parse_length(u32::MAX.to_le_bytes()).is_err());
        assert!(parse_length((MESSAGE_LIMIT as u32).to_le_bytes()).is_ok());
        assert!(parse_request(&[]).is_err());
        let mut long = frame(&Request::Wait { key: "k", limit_ms: 3 }).unwrap();
        long.push(0);
        assert!(parse_request(&long[PREFIX..]).is_err(), "bytes after the message");
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse_request(&bytes);
            let _ = parse_response(&bytes);
        }

        #[test]
        fn requests_come_back_as_they_were(key in "[a-z/0-9]{1,40}", value: Vec<u8>, amount: i64, limit_ms: u32) {
            for request in [
                Request::Set { key: &key, value: &value },
                Request::Wait { key: &key, limit_ms },
                Request::Add { key: &key, amount },
            ] {
                let bytes = frame(&request).unwrap();
                let length = parse_length(std::array::from_fn(|i| bytes[i])).unwrap();
                prop_assert_eq!(length, bytes.len() - PREFIX);
                prop_assert_eq!(parse_request(&bytes[PREFIX..]).unwrap(), request);
            }
        }
    }
}
