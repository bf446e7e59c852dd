//! Ranks on several hosts finding each other: which network they choose, and that all links work.
//!
//! The store, on a host that all others reach: `SIRTAKI_SECRET=<64 digits> links serve ADDRESS`, which prints where it
//! listens and ends with its input. Each rank: `SIRTAKI_SECRET=<the same> links RANK SIZE STORE [tls] [INTERFACE]`.

#![allow(clippy::print_stdout)]

use std::{
    env,
    error::Error,
    io::{IoSlice, Read},
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    Group, Member, Settings,
    link::connect_links,
    rendezvous::{Exchange, StoreExchange, TcpStore, choose_network, this_member},
    secure::Secret,
};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let secret = Secret::from_hex(&env::var("SIRTAKI_SECRET")?)?;
    match words.as_slice() {
        [verb, address] if verb == "serve" => serve(address, &secret),
        [rank, size, store, rest @ ..] => join(rank.parse()?, size.parse()?, store, rest, secret),
        _ => Err("usage: links serve ADDRESS, or links RANK SIZE STORE [tls] [INTERFACE]".into()),
    }
}

fn serve(address: &str, secret: &Secret) -> Result<(), Box<dyn Error>> {
    let server = TcpStore::serve(address.parse()?, secret, false)?;
    println!("{}", server.address());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn join(rank: usize, size: usize, store: &str, rest: &[String], secret: Secret) -> Result<(), Box<dyn Error>> {
    let mut settings = Settings::new(secret.clone());
    settings.start_timeout = Duration::from_secs(20);
    settings.tls = rest.iter().any(|word| word == "tls");
    settings.interface = rest.iter().find(|word| *word != "tls").cloned();
    let store = TcpStore::connect(store.parse()?, &secret, false, Instant::now() + settings.start_timeout)?;
    let mut exchange = StoreExchange::new(Arc::new(store), "example", rank, size, settings.start_timeout);

    let me = this_member(rank)?;
    let said = format!("{}\n{}\n{}", me.host, me.host_id, me.pid);
    let members = exchange.all(said.as_bytes())?;
    let members = members.iter().enumerate().map(|(world_rank, said)| {
        let text = String::from_utf8_lossy(said);
        let mut lines = text.lines().map(String::from);
        let mut line = || lines.next().unwrap_or_default();
        Member { world_rank, host: line(), host_id: line(), pid: line().parse().unwrap_or(0), cores: Vec::new() }
    });
    let group = Group::new(rank, members.collect());
    let started = Instant::now();
    let network = choose_network(&group, &mut exchange, &settings)?;
    println!("rank {rank}: {} [{} ms]", network.report, started.elapsed().as_millis());

    let started = Instant::now();
    let mut links = connect_links(&group, &mut exchange, &settings, &network)?;
    for link in links.iter_mut().flatten() {
        link.push(&[IoSlice::new(&[rank as u8])])?;
    }
    for (peer, link) in links.iter_mut().enumerate() {
        let Some(link) = link else { continue };
        let mut greeting = [0];
        while link.fill(&mut greeting)? == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(usize::from(greeting[0]), peer, "a link to the wrong rank");
    }
    println!("rank {rank}: {} links work [{} ms]", size - 1, started.elapsed().as_millis());
    exchange.all(b"done")?;
    Ok(())
}
