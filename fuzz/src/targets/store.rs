//! Any bytes are a message of the store or none; one that is survives the way there and back.

use sirtaki_comm::rendezvous::wire::{MESSAGE_LIMIT, PREFIX, frame, parse_length, parse_request, parse_response};

pub(crate) fn check(bytes: &[u8]) {
    if let Some((prefix, _)) = bytes.split_first_chunk::<PREFIX>()
        && let Ok(length) = parse_length(*prefix)
    {
        assert!(length <= MESSAGE_LIMIT);
    }
    if let Ok(request) = parse_request(bytes) {
        let framed = frame(&request).expect("a request within limits can be written");
        assert_eq!(parse_request(&framed[PREFIX..]).ok(), Some(request));
    }
    if let Ok(response) = parse_response(bytes) {
        let framed = frame(&response).expect("a short response can be written");
        assert_eq!(parse_response(&framed[PREFIX..]).ok(), Some(response));
    }
}
