//! Any header is a frame or none, and any tail has a farewell or none; what is one survives the way there and back.

use sirtaki_comm::mesh::frame::{FAREWELL_LIMIT, Farewell, Frame, HEADER, MARKER, Marker};

pub(crate) fn check(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk::<HEADER>()
        && let Ok(frame) = Frame::parse(header)
    {
        assert_eq!(Frame::parse(&frame.encode()), Ok(frame));
    }
    // The marker is random in real life; taken from the bytes, it lets the fuzzer get past it.
    let Some((tail, marker)) = bytes.split_last_chunk::<MARKER>() else { return };
    let marker: Marker = *marker;
    let _ = Farewell::find(tail, &marker);
    if let Some(farewell) = Farewell::find(bytes, &marker) {
        let encoded = farewell.encode(&marker);
        assert!(encoded.len() <= FAREWELL_LIMIT);
        assert_eq!(Farewell::find(&encoded, &marker), Some(farewell));
    }
}
