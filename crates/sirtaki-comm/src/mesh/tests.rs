//! What can only be tested from inside a mesh.

use std::{
    io,
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use super::{Call, Mesh, Receive, survey::is_later};
use crate::{
    DType, Group, Stopper,
    link::{Link, TcpLink},
    signature::{Kind, Signature},
};

const PATIENCE: Duration = Duration::from_secs(60);

fn sockets() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok((TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0))
}

/// Two ranks whose numbers of calls and payloads are about to wrap round to zero.
fn near_the_end() -> [Mesh; 2] {
    let (one, other) = sockets().expect("a loopback device");
    let mesh = |rank, links| {
        let mesh = Mesh::new(Group::local(rank, 2), links, PATIENCE, Stopper::new());
        let mut mesh = mesh.expect("one link to the other");
        mesh.sequence = Call::POINT - 3;
        for peer in mesh.peers.iter_mut().flatten() {
            (peer.steps, peer.points) = ((u32::MAX - 2, u32::MAX - 2), (u32::MAX - 2, u32::MAX - 2));
        }
        mesh
    };
    let link = |socket| Some(Box::new(TcpLink::new(socket, PATIENCE).expect("a fresh socket")) as Box<dyn Link>);
    [mesh(0, vec![None, link(one)]), mesh(1, vec![link(other), None])]
}

#[test]
fn calls_and_payloads_are_counted_beyond_the_largest_number() {
    let signature = Signature::new(Kind::Barrier, DType::U8, 0);
    thread::scope(|scope| {
        for (rank, mut mesh) in near_the_end().into_iter().enumerate() {
            scope.spawn(move || {
                for round in 0..8 {
                    let call = mesh.begin(signature).unwrap();
                    let mut got = [9; 3];
                    let received = Some((1 - rank, Receive::Fill(&mut got)));
                    mesh.exchange(&call, Some((1 - rank, &[round; 3])), received).unwrap();
                    assert_eq!(got, [round; 3]);
                    let call = mesh.begin_point(signature, 1 - rank, rank == 1).unwrap();
                    let (send, receive) = if rank == 0 { (Some((1, &[99][..])), None) } else { (None, Some(())) };
                    let receive = receive.map(|()| (0, Receive::Fill(&mut got[..1])));
                    mesh.exchange(&call, send, receive).unwrap();
                    assert_eq!(rank == 1, got[0] == 99);
                }
                assert!(mesh.sequence < 8);
            });
        }
    });
}

#[test]
fn a_call_after_the_largest_number_is_later() {
    assert!(is_later(0, Call::POINT - 1) && is_later(3, Call::POINT - 3));
    assert!(!is_later(Call::POINT - 1, 0) && !is_later(5, 5));
}
