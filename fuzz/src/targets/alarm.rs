//! Any bytes are an alarm or none; one that is survives the way there and back.

use sirtaki_comm::{Alarm, CommError};

pub(crate) fn check(bytes: &[u8]) {
    let Some(alarm) = Alarm::decode(bytes) else { return };
    let encoded = alarm.encode();
    assert!(encoded.len() <= Alarm::LIMIT);
    assert_eq!(Alarm::decode(&encoded).as_ref(), Some(&alarm));
    let error = CommError::from(alarm.clone());
    assert!(!error.to_string().is_empty());
    assert_eq!(error.to_alarm(), alarm);
}
