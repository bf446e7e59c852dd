//! One rank of a test job: joins through a file store, does what its scenario says, and reports on standard output.
//!
//! `ready` after the first collective, `done TEXT` at the end, `error SECONDS TEXT` when a call fails, where SECONDS is
//! how long that call took. The process then exits at once.

use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    CommError, Communicator, Reduction, Settings,
    collective::Algorithm,
    rendezvous::{FileStore, connect_with_report},
    secure::Secret,
};

const ELEMENTS: usize = 300_000;

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    std::env::var(name).map_err(|_| format!("{name} is not set").into())
}

fn say(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn settings() -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings::new(Secret::from_hex(&variable("TEST_SECRET")?)?);
    settings.timeout = Duration::from_secs_f64(variable("TEST_TIMEOUT")?.parse()?);
    settings.start_timeout = Duration::from_secs(20);
    settings.shared_memory = variable("TEST_SHARED_MEMORY")? == "1";
    settings.tls = variable("TEST_TLS")? == "1";
    settings.interface = variable("TEST_INTERFACE").ok();
    Ok(settings)
}

/// The scenarios. `odd` is the rank that does something else.
fn act(world: &mut dyn Communicator, scenario: &str, odd: usize) -> Result<String, CommError> {
    let (rank, size) = (world.group().rank(), world.group().size());
    let mut data = vec![rank as f32 + 1.0; ELEMENTS];
    world.all_reduce((&mut data).into(), Reduction::SUM)?;
    let sum = (size * (size + 1) / 2) as f32;
    if data.iter().any(|&x| x != sum) {
        return Ok(format!("wrong sum {} instead of {sum}", data[0]));
    }
    say("ready");
    let different = rank == odd;
    match scenario {
        "sum" => world.barrier().map(|()| format!("{} sum {sum}", world.name())),
        "loop" => loop {
            world.all_reduce((&mut data).into(), Reduction::AVERAGE)?;
        },
        "small-loop" => loop {
            world.all_reduce((&mut data[..1]).into(), Reduction::AVERAGE)?;
        },
        "ring-loop" => {
            world.force(Some(Algorithm::Ring))?;
            loop {
                world.all_reduce((&mut data).into(), Reduction::AVERAGE)?;
            }
        }
        // The others wait in a collective which the odd rank never enters.
        "silence" if different => {
            std::thread::sleep(Duration::from_secs(3600));
            Ok("slept".into())
        }
        "silence" => world.all_reduce((&mut data).into(), Reduction::SUM).map(|()| "came through".into()),
        "length" if different => world.all_reduce((&mut data[1..]).into(), Reduction::SUM).map(|()| "through".into()),
        "kind" if different => world.broadcast((&mut data).into(), 0).map(|()| "through".into()),
        "length" | "kind" => world.all_reduce((&mut data).into(), Reduction::SUM).map(|()| "through".into()),
        "idle" => {
            std::thread::sleep(Duration::from_secs(3600));
            Ok("slept".into())
        }
        other => Ok(format!("there is no scenario {other}")),
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (rank, size) = (variable("TEST_RANK")?.parse()?, variable("TEST_SIZE")?.parse()?);
    let store = Arc::new(FileStore::new(variable("TEST_STORE")?, "job")?);
    let joined = Instant::now();
    let made = match connect_with_report(store, rank, size, settings()?) {
        Ok(made) => made,
        Err(error) => {
            say(&format!("error {:.3} {error}", joined.elapsed().as_secs_f64()));
            std::process::exit(3);
        }
    };
    if let Some(network) = &made.network {
        say(network);
    }
    let mut world = made.communicator;
    let odd = variable("TEST_ODD").ok().and_then(|odd| odd.parse().ok()).unwrap_or(usize::MAX);
    let started = Instant::now();
    match act(&mut *world, &variable("TEST_SCENARIO")?, odd) {
        Ok(text) => say(&format!("done {text}")),
        Err(error) => {
            say(&format!("error {:.3} {error}", started.elapsed().as_secs_f64()));
            std::process::exit(3);
        }
    }
    Ok(())
}
