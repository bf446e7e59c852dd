//! What rank 0 makes of bytes that a rank reports about itself, for fuzzing: nothing else lies between the two.

use sirtaki_comm::Group;

use super::{Said, profile::Profile, text::Texts, trace_events::TraceEvents};
use crate::decide::message::decode;

/// The JSON that would be written, if the bytes are a message that leads to any.
pub fn written(bytes: &[u8]) -> Option<String> {
    match decode::<Said>(bytes)? {
        Said::Chunk(_, chunk) => {
            let mut chrome = TraceEvents::new(Group::local(0, 2), 0);
            let mut texts = Texts::default();
            chunk.records.iter().for_each(|record| chrome.events(&mut texts, 1, record, chunk.offset));
            Some(format!("[{}]", texts.iter().collect::<Vec<_>>().join(",")))
        }
        Said::Counts(counts, _) => {
            let profile = Profile::new(vec!["a".into(), "b".into()], vec![None, Some(counts)]);
            let _page = profile.to_string();
            Some(profile.to_json())
        }
        _ => None,
    }
}
