//! Any bytes are a signature that can be put into words, compared and encoded again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sirtaki_comm::{Group, signature::Signature};

const SIZE: usize = Signature::SIZE;

fuzz_target!(|bytes: [[u8; SIZE]; 2]| {
    let [one, other] = bytes.map(|bytes| Signature::decode(&bytes));
    assert_eq!(one.encode(), bytes[0]);
    assert!(!one.describe().is_empty());
    let group = Group::local(0, 3);
    let forth = Signature::compare(&group, (0, one), (1, other));
    let back = Signature::compare(&group, (1, other), (0, one));
    assert_eq!(forth.is_ok(), bytes[0] == bytes[1]);
    assert_eq!(forth.map_err(|error| error.to_string()), back.map_err(|error| error.to_string()));
    assert_eq!(Signature::compare_all(&group, &[one, other, one]).is_ok(), bytes[0] == bytes[1]);
});
