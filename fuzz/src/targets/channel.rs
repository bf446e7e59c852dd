//! Whatever one rank's channel says, both halves of another's answer without a panic.

use sirtaki_comm::DType;
use sirtaki_engine::decide::{
    channel::{ChannelFrame, Incoming, MessageForm, Outgoing},
    message::decode,
};

pub(crate) fn check(bytes: &[u8]) {
    let Some(frames) = decode::<Vec<ChannelFrame>>(bytes) else {
        return;
    };
    let form = MessageForm { dtype: DType::F32, shape: vec![1] };
    let mut outgoing = Outgoing::default();
    let mut incoming = Incoming::default();
    for tag in 0..4 {
        outgoing.send(tag, form.clone(), ());
        incoming.ask(&[0, 1], tag % 2 == 0, tag, Some(form.clone()), ());
    }
    for frame in frames {
        if let ChannelFrame::Message(_, form) = &frame {
            let _ = form.bytes();
        }
        let _ = (outgoing.hear(frame.clone()), incoming.hear(1, frame));
    }
}
