//! The same requirements for every kind of store.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::{CommError, secure::Secret};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// `open` gives another handle to the same store, as another process would have it.
fn conforms(open: &(dyn Fn() -> Arc<dyn Store> + Sync)) {
    let (one, other) = (open(), open());
    assert_eq!(one.wait("nothing", Instant::now()).unwrap(), None);
    assert_eq!(one.wait("nothing", Instant::now() + Duration::from_millis(30)).unwrap(), None);
    one.set("rank/0", b"first").unwrap();
    assert_eq!(other.wait("rank/0", soon()).unwrap().unwrap(), b"first");
    other.set("rank/0", b"").unwrap();
    assert_eq!(one.wait("rank/0", soon()).unwrap().unwrap(), b"");
    let large = vec![7; wire::VALUE_LIMIT];
    one.set("large", &large).unwrap();
    assert_eq!(other.wait("large", soon()).unwrap().unwrap(), large);

    for (key, value) in [("", &[][..]), (&"k".repeat(wire::KEY_LIMIT + 1), &[]), ("k", &[0; wire::VALUE_LIMIT + 1])] {
        assert!(matches!(one.set(key, value), Err(CommError::Invalid { .. })));
    }
    one.set("still works", b"yes").unwrap();

    thread::scope(|threads| {
        let waiting = threads.spawn(|| one.wait("later", soon()).unwrap().unwrap());
        thread::sleep(Duration::from_millis(20));
        other.set("later", b"now").unwrap();
        assert_eq!(waiting.join().unwrap(), b"now");
    });
    let sums: Vec<i64> = thread::scope(|threads| {
        let adders: Vec<_> = (0..4)
            .map(|_| {
                threads.spawn(|| {
                    let store = open();
                    (0..10).map(|_| store.add("count", 1).unwrap()).collect::<Vec<_>>()
                })
            })
            .collect();
        adders.into_iter().flat_map(|adder| adder.join().unwrap()).collect()
    });
    let mut sorted = sums.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (1..=40).collect::<Vec<_>>(), "every sum is returned once");
    assert_eq!(one.add("count", -40).unwrap(), 0);
    assert_eq!(one.wait("count", Instant::now()).unwrap(), None, "counters are no values");
    exchanges(open);
}

/// Two rounds among four ranks.
fn exchanges(open: &(dyn Fn() -> Arc<dyn Store> + Sync)) {
    thread::scope(|threads| {
        for rank in 0..4usize {
            threads.spawn(move || {
                let mut exchange = StoreExchange::new(open(), "world", rank, 4, Duration::from_secs(20));
                for round in 0..2u8 {
                    let all = exchange.all(&[rank as u8, round]).unwrap();
                    assert_eq!(all, (0..4).map(|rank| vec![rank, round]).collect::<Vec<_>>());
                }
            });
        }
    });
}

#[test]
fn memory_conforms() {
    let store = Arc::new(MemoryStore::new());
    conforms(&|| store.clone());
}

#[test]
fn file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    conforms(&|| Arc::new(FileStore::new(&folder, "job").unwrap()));
    let drafts = std::fs::read_dir(folder.path().join("job")).unwrap();
    assert!(drafts.into_iter().all(|entry| !entry.unwrap().file_name().to_string_lossy().ends_with("draft")));
}

#[test]
fn a_file_store_is_the_users_alone() {
    let folder = tempfile::tempdir().unwrap();
    let job = folder.path().join("deep/job");
    let mode = || fs::metadata(&job).unwrap().permissions().mode() & 0o777;
    FileStore::new(folder.path().join("deep"), "job").unwrap();
    assert_eq!(mode(), 0o700);
    fs::set_permissions(&job, fs::Permissions::from_mode(0o755)).unwrap();
    for attempt in [FileStore::new, FileStore::open] {
        let error = attempt(folder.path().join("deep"), "job").unwrap_err().to_string();
        assert!(error.contains("deep/job") && error.contains("others have access to it (mode 755"), "{error}");
    }
}

fn tcp_conforms(tls: bool) {
    let secret = Secret::random().unwrap();
    let server = TcpStore::serve(Ipv4Addr::LOCALHOST.into(), &secret, tls).unwrap();
    conforms(&|| Arc::new(TcpStore::connect(server.address(), &secret, tls, soon()).unwrap()));
    assert_eq!(server.local().wait("rank/0", Instant::now()).unwrap().unwrap(), b"");
}

#[test]
fn tcp_conforms_plain() {
    tcp_conforms(false);
}

#[test]
fn tcp_conforms_over_tls() {
    tcp_conforms(true);
}

#[test]
fn strangers_and_dead_clients_do_not_disturb_the_server() {
    let secret = Secret::random().unwrap();
    let server = TcpStore::serve(Ipv4Addr::LOCALHOST.into(), &secret, false).unwrap();
    let mut garbage = TcpStream::connect(server.address()).unwrap();
    garbage.write_all(&[0xff; 300]).unwrap();
    let stranger = TcpStore::connect(server.address(), &Secret::random().unwrap(), false, soon()).err().unwrap();
    assert!(matches!(&stranger, CommError::Refused { reason, .. } if reason.contains("wrong secret")), "{stranger}");
    let one = TcpStore::connect(server.address(), &secret, false, soon()).unwrap();
    drop(TcpStore::connect(server.address(), &secret, false, soon()).unwrap());
    one.set("key", b"value").unwrap();
    assert_eq!(one.wait("key", soon()).unwrap().unwrap(), b"value");
}

#[test]
fn a_server_can_withdraw_to_one_network() {
    let secret = Secret::random().unwrap();
    let all = [[127, 0, 0, 1], [127, 0, 0, 2]].map(|address| Ipv4Addr::from(address).into());
    let mut server = TcpStore::serve_on(&all, &secret, false).unwrap();
    let (first, second) = (server.addresses()[0], server.addresses()[1]);
    let early = TcpStore::connect(second, &secret, false, soon()).unwrap();
    server.keep(all[0]);
    assert_eq!(server.addresses(), [first]);
    assert!(!listens(second), "somebody still listens");
    early.set("key", b"by a client that was there before").unwrap();
    let late = TcpStore::connect(first, &secret, false, soon()).unwrap();
    assert!(late.wait("key", soon()).unwrap().is_some());
}

/// Whether anything listens at an address. The thread that did may need a moment to end.
fn listens(address: std::net::SocketAddr) -> bool {
    let end = soon();
    while TcpStream::connect(address).is_ok() {
        if Instant::now() > end {
            return true;
        }
        thread::yield_now();
    }
    false
}

#[test]
fn a_client_waits_for_the_server_to_be_up() {
    let secret = Secret::random().unwrap();
    // A port that was free a moment ago; nobody listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let started = Instant::now();
    let error = TcpStore::connect(free, &secret, false, started + Duration::from_millis(300)).err().unwrap();
    assert!(error.to_string().contains(&free.to_string()), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(200), "it gave up too early");
}

#[test]
fn stopping_the_server_ends_its_clients() {
    let secret = Secret::random().unwrap();
    let server = TcpStore::serve(Ipv4Addr::LOCALHOST.into(), &secret, false).unwrap();
    let address = server.address();
    let client = TcpStore::connect(address, &secret, false, soon()).unwrap();
    thread::scope(|threads| {
        let waiting = threads.spawn(|| client.wait("never", soon()));
        thread::sleep(Duration::from_millis(50));
        let started = Instant::now();
        drop(server);
        assert!(started.elapsed() < Duration::from_secs(5), "the server waits for its clients");
        let error = waiting.join().unwrap().unwrap_err();
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    });
    assert!(TcpStream::connect(address).is_err(), "somebody still listens");
}
