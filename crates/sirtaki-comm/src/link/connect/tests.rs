use std::{
    io::{IoSlice, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::{
    link::LinkError,
    rendezvous::{MemoryStore, Store, StoreExchange},
    secure::Secret,
};

const SIZE: usize = 4;

fn settings(tls: bool) -> Settings {
    let mut settings = Settings::new(Secret::from_hex(&"17".repeat(32)).unwrap());
    settings.tls = tls;
    settings
}

fn connect(store: Arc<dyn Store>, prefix: &str, rank: Rank, settings: &Settings) -> Result<Links, CommError> {
    let mut exchange = StoreExchange::new(store, prefix, rank, SIZE, settings.start_timeout);
    connect_links(&Group::local(rank, SIZE), &mut exchange, settings, &Network::loopback())
}

type Links = Vec<Option<Box<dyn Link>>>;

/// Sends `out` over every link and receives as much from it, all at once, sleeping on nothing but progress.
fn exchange_all(links: &mut Links, out: &[u8]) -> Vec<Vec<u8>> {
    let mut sent = [0; SIZE];
    let mut received: Vec<Vec<u8>> = vec![Vec::new(); SIZE];
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let mut open = false;
        for (rank, link) in links.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            let (head, tail) = out[sent[rank]..].split_at((out.len() - sent[rank]).min(1000));
            sent[rank] += link.push(&[IoSlice::new(head), IoSlice::new(tail)]).unwrap();
            let left = out.len() - received[rank].len();
            link.pull(left, &mut |piece| received[rank].extend_from_slice(piece)).unwrap();
            open |= sent[rank] < out.len() || received[rank].len() < out.len();
        }
        if !open {
            return received;
        }
        assert!(Instant::now() < end, "the links are stuck");
        thread::yield_now();
    }
}

/// Sends nonsense to every address published in the store until told to stop, and sometimes all the right words with
/// the wrong secret.
fn intrude(store: &dyn Store, stop: &AtomicBool, tls: bool) {
    let published: Vec<(SocketAddr, [u8; 16])> = (0..SIZE)
        .map(|rank| {
            let value = store.wait(&format!("world/0/{rank}"), Instant::now() + Duration::from_secs(20));
            postcard::from_bytes(&value.unwrap().unwrap()).unwrap()
        })
        .collect();
    let mut wrong = settings(tls);
    wrong.secret = Secret::random().unwrap();
    let stranger = Access::from_settings(&wrong).unwrap();
    let mut held = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        for (to, (address, _)) in published.iter().enumerate() {
            let claim = Claim { purpose: Purpose::Link, rank: SIZE as u32 - 1, group: published[0].1, to: to as u32 };
            assert!(stranger.call(*address, &claim, Instant::now() + Duration::from_secs(20)).is_err());
            if let Ok(mut stream) = TcpStream::connect(address) {
                let _ = stream.write_all(if held.len() % 2 == 0 { b"SSH-2.0-intruder\r\n" } else { b"" });
                held.push(stream);
            }
        }
        held.truncate(40);
        thread::sleep(Duration::from_millis(2));
    }
}

fn all_pairs_talk(tls: bool) {
    let store: Arc<MemoryStore> = Arc::default();
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        threads.spawn(|| intrude(&*store, &stop, tls));
        let ranks: Vec<_> = (0..SIZE)
            .map(|rank| {
                let store = store.clone();
                threads.spawn(move || {
                    let mut links = connect(store, "world", rank, &settings(tls)).unwrap();
                    assert!(links[rank].is_none());
                    let out: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8 ^ rank as u8).collect();
                    for (peer, got) in exchange_all(&mut links, &out).iter().enumerate() {
                        let expected = |(i, &byte): (usize, &u8)| byte == (i % 251) as u8 ^ peer as u8;
                        assert!(peer == rank || (got.len() == out.len() && got.iter().enumerate().all(expected)));
                    }
                    // Nobody leaves before all are done, or the others would see a closed link in exchange_all.
                    links
                })
            })
            .collect();
        let _links: Vec<_> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn all_pairs_talk_plain_while_somebody_intrudes() {
    all_pairs_talk(false);
}

#[test]
fn all_pairs_talk_over_tls_while_somebody_intrudes() {
    all_pairs_talk(true);
}

/// A connection with both ends in this process.
fn connection() -> (SecureStream, TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (SecureStream::plain(listener.accept().unwrap().0).unwrap(), far)
}

#[test]
fn a_later_caller_does_not_take_the_place_of_a_rank_that_is_there() {
    let group = Group::local(0, 3);
    let access = Access::from_settings(&settings(false)).unwrap();
    let me = Acceptor { purpose: Purpose::Link, group: [1; 16], rank: 0 };
    let gate = Gate::open(Gate::bind(Ipv4Addr::LOCALHOST.into()).unwrap().0, access, me, |_, _| ()).unwrap();
    let (sender, arrivals) = mpsc::channel();
    let mut ends = Vec::new();
    for rank in [1, 1, 2] {
        let (near, far) = connection();
        sender.send((near, Claim { purpose: Purpose::Link, rank, group: [1; 16], to: 0 })).unwrap();
        ends.push(far);
    }
    let mut links: Links = (0..3).map(|_| None).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    await_callers(&group, &gate, &arrivals, &mut links, &settings(false), deadline).unwrap();
    ends[0].write_all(b"first").unwrap();
    let mut heard = [0; 5];
    while links[1].as_mut().unwrap().fill(&mut heard).unwrap() == 0 {
        assert!(Instant::now() < deadline, "rank 1 was replaced by somebody who came later");
    }
    assert_eq!(&heard, b"first");
}

#[test]
fn two_groups_of_the_same_ranks_do_not_mix() {
    let store: Arc<MemoryStore> = Arc::default();
    thread::scope(|threads| {
        for group in ["world", "split"] {
            for rank in 0..SIZE {
                let store = store.clone();
                threads.spawn(move || {
                    let mut links = connect(store.clone(), group, rank, &settings(false)).unwrap();
                    for (peer, got) in exchange_all(&mut links, group.as_bytes()).iter().enumerate() {
                        assert!(peer == rank || got == group.as_bytes());
                    }
                    store.add(group, 1).unwrap();
                    while store.add(group, 0).unwrap() < SIZE as i64 {
                        thread::yield_now();
                    }
                });
            }
        }
    });
}

#[test]
fn an_absent_rank_is_named() {
    let store: Arc<MemoryStore> = Arc::default();
    let mut settings = settings(false);
    settings.start_timeout = Duration::from_millis(500);
    let errors: Vec<CommError> = thread::scope(|threads| {
        let ranks: Vec<_> = (0..SIZE)
            .map(|rank| {
                let (store, settings) = (store.clone(), &settings);
                threads.spawn(move || match rank {
                    // It publishes an address where nobody listens any more, and never calls.
                    2 => {
                        let (listener, address) = Gate::bind(Ipv4Addr::LOCALHOST.into()).unwrap();
                        drop(listener);
                        let value = postcard::to_stdvec(&(address, [0u8; 16])).unwrap();
                        store.set("world/0/2", &value).unwrap();
                        None
                    }
                    rank => connect(store, "world", rank, settings).err(),
                })
            })
            .collect();
        ranks.into_iter().filter_map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(errors.len(), SIZE - 1);
    assert!(errors.iter().take(2).all(|error| error.rank() == Some(2)), "{errors:?}");
    assert!(errors[2].to_string().contains("rank 2") && errors[2].to_string().contains("127.0.0.1:"), "{errors:?}");
}

/// Both ends of an encrypted link.
fn encrypted_pair() -> (Box<dyn Link>, Box<dyn Link>) {
    let store: Arc<MemoryStore> = Arc::default();
    let settings = settings(true);
    let end = |rank| {
        let mut exchange = StoreExchange::new(store.clone(), "pair", rank, 2, settings.start_timeout);
        let links = connect_links(&Group::local(rank, 2), &mut exchange, &settings, &Network::loopback()).unwrap();
        links.into_iter().flatten().next().unwrap()
    };
    thread::scope(|threads| {
        let other = threads.spawn(|| end(1));
        (end(0), other.join().unwrap())
    })
}

/// Pushes from `out`, while nobody reads, until the link stays full; returns how much it counted.
fn stuff(link: &mut dyn Link, out: &[u8]) -> usize {
    let (mut sent, mut quiet) = (0, 0);
    while quiet < 50 {
        let count = link.push(&[IoSlice::new(&out[sent..])]).unwrap();
        sent += count;
        quiet = if count == 0 { quiet + 1 } else { 0 };
        thread::sleep(Duration::from_millis(u64::from(quiet > 0)));
    }
    assert!(sent < out.len(), "the link must be full for this test");
    sent
}

fn pattern() -> Vec<u8> {
    (0..40_000_000u32).map(|i| (i % 241) as u8).collect()
}

#[test]
fn an_encrypted_link_counts_only_what_it_can_send() {
    let (mut near, mut far) = encrypted_pair();
    let out = pattern();
    let mut sent = stuff(&mut *near, &out);
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    while got.len() < sent {
        far.pull(usize::MAX, &mut |piece| got.extend_from_slice(piece)).unwrap();
        assert!(Instant::now() < end, "{} of {sent} counted bytes came without another push", got.len());
    }
    while got.len() < out.len() {
        sent += near.push(&[IoSlice::new(&out[sent..])]).unwrap();
        far.pull(usize::MAX, &mut |piece| got.extend_from_slice(piece)).unwrap();
        assert!(Instant::now() < end, "{} of {} bytes came", got.len(), out.len());
    }
    assert!(got == out);
    drop(near);
    while !matches!(far.pull(1, &mut |_| ()), Err(LinkError::Closed(_))) {
        assert!(Instant::now() < end, "the end was not noticed");
    }
    assert!(matches!(far.check(), Err(LinkError::Closed(_))));
}

#[test]
fn an_alarm_may_overtake_a_message_on_an_encrypted_link() {
    let (mut near, mut far) = encrypted_pair();
    let out = pattern();
    let counted = stuff(&mut *near, &out);
    let (mut got, mut sent) = (Vec::new(), 0);
    let (alarm, end) = ([250; 100], Instant::now() + Duration::from_secs(60));
    while sent < alarm.len() {
        sent += near.push(&[IoSlice::new(&alarm[sent..])]).unwrap();
        far.pull(usize::MAX, &mut |piece| got.extend_from_slice(piece)).unwrap();
        assert!(Instant::now() < end, "the alarm did not get out");
    }
    near.close();
    let closed = loop {
        match far.pull(usize::MAX, &mut |piece| got.extend_from_slice(piece)) {
            Ok(_) => assert!(Instant::now() < end, "the end was not noticed"),
            Err(error) => break error,
        }
    };
    assert!(matches!(closed, LinkError::Closed(_)));
    let message = got.strip_suffix(&alarm).unwrap();
    assert!(message.len() >= counted && message == &out[..message.len()]);
    far.push(&[IoSlice::new(b"still heard")]).unwrap();
    let mut heard = [0; 11];
    while near.fill(&mut heard).unwrap() == 0 {
        assert!(Instant::now() < end, "a closed link does not read any more");
    }
    assert_eq!(&heard, b"still heard");
}
