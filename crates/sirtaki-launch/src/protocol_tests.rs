use proptest::prelude::*;

use super::*;

#[test]
fn frames_survive_and_noise_is_skipped() {
    let mut bytes = b"Welcome to node7!\n\0sirt".to_vec();
    bytes.extend(MARK);
    write(&mut bytes, &Order::Signal(15)).unwrap();
    write(&mut bytes, &Order::Kill).unwrap();
    let mut reader = bytes.as_slice();
    find_mark(&mut reader).unwrap();
    assert!(matches!(read(&mut reader).unwrap(), Some(Order::Signal(15))));
    assert!(matches!(read(&mut reader).unwrap(), Some(Order::Kill)));
    assert!(read::<Order>(&mut reader).unwrap().is_none());
    assert_eq!(find_mark(&mut &b"no such command\n"[..]), Err("no such command".into()));
}

#[test]
fn secrets_are_not_shown() {
    let digits = "c0ffee11".repeat(8);
    let environment = vec![("SIRTAKI_SECRET".to_owned(), digits.clone())];
    let program = Program { command: vec!["x".into()], folder: "/".into(), environment: environment.clone() };
    let (secret, interface) = (Secret::from_hex(&digits).unwrap(), None);
    let start = HostStart {
        ranks: vec![RankStart { rank: 0, cores: Vec::new(), environment }],
        others: Vec::new(),
        program,
        terminal: None,
        grace: Duration::ZERO,
        pulse: false,
        pmi: PmiJob {
            size: 1,
            host: 0,
            hosts: 1,
            store: SocketAddr::from(([127, 0, 0, 1], 1)),
            secret: secret.clone(),
            tls: false,
            patience: Duration::ZERO,
        },
        connect: None,
        window: 0,
        job: "j".into(),
    };
    for order in [Order::Serve { secret, tls: false, open: false, interface }, Order::Start(Box::new(start))] {
        let shown = format!("{order:?}");
        assert!(!shown.contains("c0ffee11"), "{shown}");
    }
}

#[test]
fn every_frame_ends_a_line() {
    for event in [Event::Greeting, Event::Signalled(2), Event::Closed { rank: 3 }] {
        let mut bytes = Vec::new();
        write(&mut bytes, &event).unwrap();
        assert_eq!(bytes.last(), Some(&b'\n'));
        let last = bytes.len() - 1;
        bytes[last] = b' ';
        assert!(read::<Event>(&mut bytes.as_slice()).is_err());
    }
}

#[test]
fn lengths_are_checked_before_memory_is_taken() {
    let mut huge = u32::MAX.to_le_bytes().to_vec();
    huge.extend([0; 100]);
    assert!(read::<Event>(&mut huge.as_slice()).unwrap_err().to_string().contains("cannot be right"));
}

proptest! {
    #[test]
    fn unexpected_bytes_are_errors_and_nothing_else(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
        frame.extend(&bytes);
        let _ = read::<Order>(&mut frame.as_slice());
        let _ = read::<Event>(&mut frame.as_slice());
        let _ = read::<Event>(&mut bytes.as_slice());
    }
}

#[test]
fn a_program_can_be_sirtaki_itself_wherever_that_is() {
    let program = |name: &str| Program {
        command: vec![name.into(), "agent".into()],
        folder: "/".into(),
        environment: Vec::new(),
    };
    let here = Path::new("/opt/bin/sirtaki");
    assert_eq!(program(ITSELF).on_this_host(here).name(), "/opt/bin/sirtaki");
    assert_eq!(program("python").on_this_host(here).name(), "python");
}
