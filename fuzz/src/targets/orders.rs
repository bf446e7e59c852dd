//! Frames between launcher and agents, in both directions.

use sirtaki_launch::protocol::{Event, Order, find_mark, read};

pub(crate) fn check(bytes: &[u8]) {
    let mut orders = bytes;
    while let Ok(Some(_)) = read::<Order>(&mut orders) {}
    let mut events = bytes;
    if find_mark(&mut events).is_ok() {
        while let Ok(Some(_)) = read::<Event>(&mut events) {}
    }
}
