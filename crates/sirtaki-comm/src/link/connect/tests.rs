use std::{
    collections::HashSet,
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

/// Sends `out` over and receives as much from every link at once, sleeping on nothing but progress.
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

/// Says nonsense to every address published in the store until told to stop.
fn intrude(store: &dyn Store, stop: &AtomicBool) {
    let addresses: Vec<SocketAddr> = (0..SIZE)
        .map(|rank| {
            let value = store.wait(&format!("world/0/{rank}"), Instant::now() + Duration::from_secs(20));
            postcard::from_bytes::<(SocketAddr, [u8; 16])>(&value.unwrap().unwrap()).unwrap().0
        })
        .collect();
    let mut held = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        for address in &addresses {
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
    let markers: Vec<Vec<[u8; 16]>> = thread::scope(|threads| {
        threads.spawn(|| intrude(&*store, &stop));
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
                    let marker = |link: &Option<Box<dyn Link>>| link.as_ref().map_or([0; 16], |link| link.marker());
                    (links.iter().map(marker).collect(), links)
                })
            })
            .collect();
        let (markers, _links): (Vec<_>, Vec<_>) = ranks.into_iter().map(|rank| rank.join().unwrap()).unzip();
        stop.store(true, Ordering::SeqCst);
        markers
    });
    for (a, row) in markers.iter().enumerate() {
        for (b, marker) in row.iter().enumerate() {
            assert_eq!(*marker, markers[b][a], "both ends of a link have one marker");
        }
    }
    let distinct: HashSet<_> = markers.iter().flatten().collect();
    assert_eq!(distinct.len(), SIZE * (SIZE - 1) / 2 + 1, "no two links share one");
}

#[test]
fn all_pairs_talk_plain_while_somebody_intrudes() {
    all_pairs_talk(false);
}

#[test]
fn all_pairs_talk_over_tls_while_somebody_intrudes() {
    all_pairs_talk(true);
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

/// A TLS link whose peer does not read: what it counted is with the kernel, and the rest follows once there is room.
#[test]
fn an_encrypted_link_counts_only_what_it_can_send() {
    let store: Arc<MemoryStore> = Arc::default();
    let settings = settings(true);
    let pair = |rank| {
        let mut exchange = StoreExchange::new(store.clone(), "pair", rank, 2, settings.start_timeout);
        connect_links(&Group::local(rank, 2), &mut exchange, &settings, &Network::loopback()).unwrap()
    };
    let (mut a, mut b) = thread::scope(|threads| {
        let other = threads.spawn(|| pair(1));
        (pair(0), other.join().unwrap())
    });
    let (near, far) = (a[1].as_mut().unwrap(), b[0].as_mut().unwrap());
    let out: Vec<u8> = (0..40_000_000u32).map(|i| (i % 241) as u8).collect();
    let mut sent = 0;
    let mut quiet = 0;
    while quiet < 50 {
        let count = near.push(&[IoSlice::new(&out[sent..])]).unwrap();
        sent += count;
        quiet = if count == 0 { quiet + 1 } else { 0 };
        thread::sleep(Duration::from_millis(u64::from(quiet > 0)));
    }
    assert!(sent < out.len(), "the link must be full for this test");
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(60);
    // Everything counted arrives without another push.
    while got.len() < sent {
        far.pull(usize::MAX, &mut |piece| got.extend_from_slice(piece)).unwrap();
        assert!(Instant::now() < end, "{} of {sent} bytes came", got.len());
    }
    while got.len() < out.len() {
        sent += near.push(&[IoSlice::new(&out[sent..])]).unwrap();
        far.pull(usize::MAX, &mut |piece| got.extend_from_slice(piece)).unwrap();
        assert!(Instant::now() < end, "{} of {} bytes came", got.len(), out.len());
    }
    assert!(got == out);
    drop(a);
    let far = b[0].as_mut().unwrap();
    while !matches!(far.pull(1, &mut |_| ()), Err(LinkError::Closed(_))) {
        assert!(Instant::now() < end, "the end was not noticed");
    }
    assert!(matches!(far.check(), Err(LinkError::Closed(_))));
}
