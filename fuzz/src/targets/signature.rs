//! Any bytes are a signature that can be put into words, compared and encoded again.

use sirtaki_comm::{Group, signature::Signature};

const SIZE: usize = Signature::SIZE;

pub(crate) fn check(bytes: &[u8]) {
    let Some((&one, rest)) = bytes.split_first_chunk() else { return };
    let Some(&other) = rest.first_chunk() else { return };
    let bytes: [[u8; SIZE]; 2] = [one, other];
    let [one, other] = bytes.map(|bytes| Signature::decode(&bytes));
    assert_eq!(one.encode(), bytes[0]);
    assert!(!one.describe().is_empty());
    let group = Group::local(0, 3);
    let forth = Signature::compare(&group, (0, one), (1, other));
    let back = Signature::compare(&group, (1, other), (0, one));
    assert_eq!(forth.is_ok(), bytes[0] == bytes[1]);
    assert_eq!(forth.map_err(|error| error.to_string()), back.map_err(|error| error.to_string()));
    assert_eq!(Signature::compare_all(&group, &[one, other, one]).is_ok(), bytes[0] == bytes[1]);
}
