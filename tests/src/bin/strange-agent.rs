//! An agent that behaves like an agent until ranks are to start, and then mentions a rank that does not exist, in the
//! way that TEST_EVENT names.

use std::{
    error::Error,
    io::{self, Write},
    net::SocketAddr,
};

use sirtaki_launch::{
    ended::Ended,
    protocol::{self, Checked, Event, Hello, MARK, Order, Stream, VERSION},
};

/// A rank that no job of these tests has.
const RANK: usize = 99;

fn strange(kind: &str) -> Option<Event> {
    Some(match kind {
        "started" => Event::Started { rank: RANK, pid: 1 },
        "output" => Event::Output { rank: RANK, stream: Stream::Out, bytes: b"text\n".to_vec() },
        "ended" => Event::Ended { rank: RANK, how: Ended::Code(0), culprit: None, engine: false },
        "closed" => Event::Closed { rank: RANK },
        "doing" => Event::Doing { rank: RANK, what: None, counts: None, meeting: true, stopped: true },
        _ => return None,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut input, mut output) = (io::stdin(), io::stdout());
    output.write_all(MARK)?;
    let hello = Hello { version: VERSION.into(), host: "strange".into(), cores: vec![0], gpus: Vec::new() };
    protocol::write(&mut output, &Event::Hello(hello))?;
    let store: SocketAddr = ([127, 0, 0, 1], 1).into();
    while let Some(order) = protocol::read(&mut input)? {
        let event = match order {
            Order::Serve { .. } => Some(Event::Serving { stores: vec![store], master_port: 1 }),
            Order::Check(_) => Some(Event::Checked(Checked { store, network: None, ports: Vec::new() })),
            Order::Start(_) => strange(&std::env::var("TEST_EVENT")?),
            Order::Greeting { .. } => Some(Event::Greeting),
            _ => None,
        };
        event.map(|event| protocol::write(&mut output, &event)).transpose()?;
    }
    Ok(())
}
