//! The communicator of one process passes all checks.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use sirtaki_comm::{Communicator, Group, communicator::Solo};

fn make(size: usize) -> Vec<Box<dyn Communicator>> {
    vec![Box::new(Solo::new(Group::local(0, size)).unwrap())]
}

sirtaki_tests::conformance!(solo, make, [1]);

#[test]
fn two_are_not_solo() {
    assert!(Solo::new(Group::local(0, 2)).is_err());
}
