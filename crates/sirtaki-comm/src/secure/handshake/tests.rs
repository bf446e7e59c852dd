use std::{
    io::{self, Cursor, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::*;
use crate::{
    Settings,
    secure::{Access, Gate, SecureStream, Tls},
};

const CLAIM: Claim = Claim { purpose: Purpose::Link, rank: 3, group: [9; 16], to: 1 };
const ACCEPTOR: Acceptor = Acceptor { purpose: Purpose::Link, group: [9; 16], rank: 1 };

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn secret() -> Secret {
    Secret::from_hex(&"5a".repeat(32)).unwrap()
}

/// A gate and the proven callers that came through it.
fn gate(access: Access) -> (Gate, mpsc::Receiver<(SecureStream, Claim)>) {
    let (listener, _) = Gate::bind(Ipv4Addr::LOCALHOST.into()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let gate = Gate::open(listener, access, ACCEPTOR, move |stream, claim| {
        sender.send((stream, claim)).unwrap();
    });
    (gate.unwrap(), receiver)
}

fn refusal(gate: &Gate) -> String {
    let end = soon();
    while gate.refusals().is_empty() {
        assert!(Instant::now() < end, "nobody was refused");
        thread::sleep(Duration::from_millis(5));
    }
    gate.refusals().join("\n")
}

fn both_ends_agree(tls: bool) {
    let tls = || tls.then(|| Tls::new().unwrap());
    let (gate, arrivals) = gate(Access::new(secret(), tls()));
    let mut here = Access::new(secret(), tls()).call(gate.address(), &CLAIM, soon()).unwrap();
    let (mut there, claim) = arrivals.recv().unwrap();
    drop(gate);
    assert_eq!(claim, CLAIM);
    assert_eq!(here.binding().unwrap(), there.binding().unwrap());
    here.write_all(b"after the gate is gone").unwrap();
    let mut got = [0; 22];
    there.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"after the gate is gone");
}

#[test]
fn both_ends_agree_plain() {
    both_ends_agree(false);
}

#[test]
fn both_ends_agree_over_tls() {
    both_ends_agree(true);
}

#[test]
fn a_wrong_secret_is_told_to_both_and_shown_to_nobody() {
    for tls in [false, true] {
        let tls = || tls.then(|| Tls::new().unwrap());
        let (gate, arrivals) = gate(Access::new(secret(), tls()));
        let stranger = Secret::random().unwrap();
        let Err(error) = Access::new(stranger.clone(), tls()).call(gate.address(), &CLAIM, soon()) else {
            panic!("a stranger was let in");
        };
        let (there, here) = (refusal(&gate), error.to_string());
        assert!(matches!(error, CommError::Refused { .. }));
        assert!(here.contains("wrong secret") && here.contains(&gate.address().to_string()), "{here}");
        assert!(there.contains("does not know the job's secret"), "{there}");
        for text in [here, there] {
            assert!(!text.contains(stranger.to_hex().as_str()) && !text.contains(secret().to_hex().as_str()));
        }
        assert!(arrivals.try_recv().is_err());
    }
}

#[test]
fn an_impostor_server_learns_nothing_useful_and_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        stream.read_exact(&mut [0; HELLO_SIZE]).unwrap();
        stream.write_all(&challenge(WELCOME, CLAIM.to, &[1; 32])).unwrap();
        let mut proof = [0; 32];
        stream.read_exact(&mut proof).unwrap();
        stream.write_all(&verdict(WELCOME, &proof)).unwrap();
    });
    let outcome = Access::new(secret(), None).call(address, &CLAIM, soon());
    server.join().unwrap();
    assert!(outcome.err().unwrap().to_string().contains("does not know the job's secret"));
}

#[test]
fn another_version_is_named_on_both_sides() {
    let (gate, _arrivals) = gate(Access::new(secret(), None));
    let mut caller = TcpStream::connect(gate.address()).unwrap();
    let mut greeting = hello(&CLAIM, &[1; 32]);
    greeting[8..10].copy_from_slice(&7u16.to_le_bytes());
    caller.write_all(&greeting).unwrap();
    let mut answer = [0; CHALLENGE_SIZE];
    caller.read_exact(&mut answer).unwrap();
    assert_eq!((answer[8], answer[10]), (VERSION as u8, OTHER_VERSION));
    assert!(refusal(&gate).contains("version 7, expected 2"));
    answer[8] = 7;
    assert!(check_challenge(&answer, CLAIM.to, "it").unwrap_err().to_string().contains("version 7, expected 2"));
}

#[test]
fn a_recorded_conversation_cannot_be_used_again() {
    let (gate, arrivals) = gate(Access::new(secret(), None));
    let mut recorder = Recorder::new(TcpStream::connect(gate.address()).unwrap());
    call(&mut recorder, &secret(), &[0; 32], &CLAIM, "it").unwrap();
    arrivals.recv().unwrap();
    let mut replay = TcpStream::connect(gate.address()).unwrap();
    replay.write_all(&recorder.said).unwrap();
    let mut answer = [0; CHALLENGE_SIZE + VERDICT_SIZE];
    replay.read_exact(&mut answer).unwrap();
    assert_eq!(answer[CHALLENGE_SIZE], WRONG_SECRET);
    assert!(refusal(&gate).contains("does not know the job's secret"));
    assert!(arrivals.try_recv().is_err());
    // And the acceptor's side of it does not convince a new caller either.
    let mut answers = Both(Cursor::new(recorder.heard), Vec::new());
    assert!(call(&mut answers, &secret(), &[0; 32], &CLAIM, "it").is_err());
}

/// An attacker in the middle, without TLS, connects a caller to a rank other than the one it wants.
#[test]
fn a_call_that_is_redirected_to_another_rank_is_noticed() {
    for tls in [false, true] {
        let tls = || tls.then(|| Tls::new().unwrap());
        let (gate, arrivals) = gate(Access::new(secret(), tls()));
        let wrong = Claim { to: 0, ..CLAIM };
        let error = Access::new(secret(), tls()).call(gate.address(), &wrong, soon()).err().unwrap().to_string();
        assert!(error.contains("rank 1 of the group answers where rank 0 was called"), "{error}");
        assert!(arrivals.try_recv().is_err());
    }
}

/// The rank in the challenge is part of what is proven: if it is changed on the way, the acceptor refuses.
#[test]
fn a_changed_rank_of_the_acceptor_spoils_the_proof() {
    let (gate, arrivals) = gate(Access::new(secret(), None));
    let mut server = TcpStream::connect(gate.address()).unwrap();
    let wrong = Claim { to: 0, ..CLAIM };
    let greeting = hello(&wrong, &[1; 32]);
    server.write_all(&greeting).unwrap();
    let mut challenge = [0; CHALLENGE_SIZE];
    server.read_exact(&mut challenge).unwrap();
    challenge[12..16].copy_from_slice(&0_u32.to_le_bytes());
    check_challenge(&challenge, 0, "it").unwrap();
    let session = Session::new(&secret(), &greeting, &challenge, &[0; 32]);
    server.write_all(&session.tag(b"caller")).unwrap();
    let mut verdict = [0; VERDICT_SIZE];
    server.read_exact(&mut verdict).unwrap();
    assert_eq!(verdict[0], WRONG_SECRET);
    assert!(arrivals.try_recv().is_err());
}

/// More silent strangers than a gate has places for, which stay; they all come from one address, as does the rank.
#[test]
fn a_rank_gets_in_while_strangers_take_every_place() {
    let (gate, arrivals) = gate(Access::new(secret(), None));
    let crowd: Vec<TcpStream> = (0..140).map(|_| TcpStream::connect(gate.address()).unwrap()).collect();
    Access::new(secret(), None).call(gate.address(), &CLAIM, soon()).unwrap();
    assert_eq!(arrivals.recv().unwrap().1, CLAIM);
    drop(crowd);
}

#[test]
fn strangers_disturb_nobody() {
    let (gate, arrivals) = gate(Access::new(secret(), None));
    let mut silent = TcpStream::connect(gate.address()).unwrap();
    let mut browser = TcpStream::connect(gate.address()).unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut half = TcpStream::connect(gate.address()).unwrap();
    half.write_all(&hello(&CLAIM, &[1; 32])[..40]).unwrap();
    drop(half);
    drop(TcpStream::connect(gate.address()).unwrap());
    let mut wrong = CLAIM;
    wrong.group = [8; 16];
    let access = Access::new(secret(), None);
    let error = access.call(gate.address(), &wrong, soon()).err().unwrap().to_string();
    assert!(error.contains("another group"), "{error}");
    let started = Instant::now();
    access.call(gate.address(), &CLAIM, soon()).unwrap();
    assert_eq!(arrivals.recv().unwrap().1, CLAIM);
    assert!(started.elapsed() < Duration::from_secs(4), "somebody silent held up somebody known");
    let mut answer = [0; CHALLENGE_SIZE];
    browser.read_exact(&mut answer).unwrap();
    assert_eq!(answer[10], NOT_OURS);
    drop(gate);
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)), "the gate left a caller behind");
    assert!(arrivals.try_recv().is_err());
}

#[test]
fn a_silent_server_is_given_up_at_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let deadline = Instant::now() + Duration::from_millis(200);
    let error = Access::new(secret(), None).call(listener.local_addr().unwrap(), &CLAIM, deadline).err().unwrap();
    assert!(error.to_string().contains("in time"), "{error}");
    assert!(Instant::now() >= deadline);
}

#[test]
fn tls_on_one_side_only_is_explained() {
    let tls = || Some(Tls::new().unwrap());
    let (plain, _a) = gate(Access::new(secret(), None));
    let error = Access::new(secret(), tls()).call(plain.address(), &CLAIM, soon()).err().unwrap().to_string();
    assert!(error.contains("switch TLS on for all"), "{error}");
    assert!(refusal(&plain).contains("TLS"));
    let (encrypted, _b) = gate(Access::new(secret(), tls()));
    let error = Access::new(secret(), None).call(encrypted.address(), &CLAIM, soon()).err().unwrap().to_string();
    assert!(error.contains("switch TLS on for all"), "{error}");
}

#[test]
fn what_decides_is_encrypted_between_hosts_and_not_within_one() {
    let settings = Settings::new(secret());
    for (hosts, encrypted) in [(1, false), (2, true)] {
        let (gate, arrivals) = gate(Access::for_control(&settings, hosts).unwrap());
        let stream = Access::for_control(&settings, hosts).unwrap().call(gate.address(), &CLAIM, soon()).unwrap();
        assert_eq!(stream.binding().unwrap() != [0; 32], encrypted, "{hosts} hosts");
        arrivals.recv().unwrap();
        let plain = Access::from_settings(&settings).unwrap().call(gate.address(), &CLAIM, soon());
        assert_eq!(plain.is_err(), encrypted, "{hosts} hosts");
    }
}

/// An attacker in the middle who ends TLS on both sides and passes on what is inside.
fn relay(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || -> io::Result<()> {
        let tls = Tls::new().unwrap();
        let mut victim = SecureStream::plain(listener.accept()?.0)?;
        let mut server = SecureStream::plain(TcpStream::connect(to)?)?;
        for stream in [&mut victim, &mut server] {
            stream.set_deadline(Some(soon()));
        }
        victim.encrypt_answer(&tls)?;
        server.encrypt_call(&tls)?;
        assert_ne!(victim.binding()?, server.binding()?);
        let mut buffer = [0; 64];
        for (size, forth) in [(HELLO_SIZE, true), (CHALLENGE_SIZE, false), (32, true), (VERDICT_SIZE, false)] {
            let (from, to) = if forth { (&mut victim, &mut server) } else { (&mut server, &mut victim) };
            from.read_exact(&mut buffer[..size])?;
            to.write_all(&buffer[..size])?;
        }
        Ok(())
    });
    address
}

#[test]
fn somebody_in_the_middle_of_tls_is_refused() {
    let (gate, arrivals) = gate(Access::new(secret(), Some(Tls::new().unwrap())));
    let middle = relay(gate.address());
    let error = Access::new(secret(), Some(Tls::new().unwrap())).call(middle, &CLAIM, soon()).err().unwrap();
    assert!(error.to_string().contains("somebody is in between"), "{error}");
    assert!(refusal(&gate).contains("somebody is in between"));
    assert!(arrivals.try_recv().is_err());
}

proptest! {
    #[test]
    fn random_bytes_neither_panic_nor_prove_anything(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        start in 0usize..3,
    ) {
        let greeting = hello(&CLAIM, &[1; 32]);
        let start = [&greeting[..0], &greeting[..10], &greeting[..]][start];
        let mut stream = Both(Cursor::new([start, &bytes].concat()), Vec::new());
        prop_assert!(accept(&mut stream, &secret(), &[0; 32], &ACCEPTOR, "it").is_err());
        let start = challenge(WELCOME, CLAIM.to, &[1; 32]);
        for start in [&start[..0], &start[..16], &start[..]] {
            let mut stream = Both(Cursor::new([start, &bytes].concat()), Vec::new());
            prop_assert!(call(&mut stream, &secret(), &[0; 32], &CLAIM, "it").is_err());
        }
    }
}

/// Reads from one place and writes to another.
struct Both(Cursor<Vec<u8>>, Vec<u8>);

impl Read for Both {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that remembers what passed through it.
struct Recorder {
    socket: TcpStream,
    said: Vec<u8>,
    heard: Vec<u8>,
}

impl Recorder {
    fn new(socket: TcpStream) -> Self {
        Self { socket, said: Vec::new(), heard: Vec::new() }
    }
}

impl Read for Recorder {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(into)?;
        self.heard.extend_from_slice(&into[..count]);
        Ok(count)
    }
}

impl Write for Recorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.socket.write(bytes)?;
        self.said.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
