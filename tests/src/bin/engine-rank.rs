//! One rank of a test job with an engine: joins through a file store, does what its scenario says, and reports on
//! standard output.
//!
//! `record PID DESCRIPTOR` at the start, `ready` after some steps, `set` once a process set is made, `done TEXT` at the
//! end, `warning TEXT` where the engine warns, `inner TEXT` when a request of the set fails, `error SECONDS TEXT` when
//! another one does, where SECONDS is how long it waited.

use std::{
    error::Error,
    io::Write,
    sync::Arc,
    time::{Duration, Instant},
};

use sirtaki_comm::{
    DType, Reduction,
    rendezvous::{FileStore, connect},
    secure::Secret,
};
use sirtaki_engine::{
    Engine, EngineError, Expected, Operation, Profiling, Request, Settings, Source, Tensor, TensorPlace, Ticket,
    job::Job, telemetry::Progress,
};
use sirtaki_tests::{
    data::Data,
    stand_in::{finish, gpu, upload},
};

fn variable(name: &str) -> Result<String, Box<dyn Error>> {
    std::env::var(name).map_err(|_| format!("{name} is not set").into())
}

fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// Elements of a tensor that takes a while over a slow network.
const LARGE: usize = 1 << 16;

fn reduce(engine: &Engine, name: &str, elements: usize) -> Ticket {
    let request = Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[elements]);
    engine.submit(request, Tensor::from_vec(vec![1.0_f32; elements]))
}

fn submit(engine: &Engine, name: &str) -> Ticket {
    reduce(engine, name, 1000)
}

/// The same tensors over and over.
fn step(engine: &Engine) -> Result<(), EngineError> {
    let tickets: Vec<Ticket> = ["a", "b", "c"].iter().map(|name| submit(engine, name)).collect();
    tickets.into_iter().try_for_each(|ticket| ticket.wait().map(drop))
}

/// Sends to the next rank and receives from the one before.
fn exchange(engine: &Engine) -> Result<(), EngineError> {
    let (rank, size) = (engine.group().rank(), engine.group().size());
    let sent = engine.send((rank + 1) % size, 1, "ring", &[LARGE], Tensor::from_vec(vec![rank as f32; LARGE]));
    let from = Source::Rank((rank + size - 1) % size);
    engine.receive(from, 1, "ring", Expected::Anything).wait()?;
    sent.wait().map(drop)
}

/// Uses more and more memory until the kernel has no more for this process.
fn exhaust_memory() -> ! {
    let cgroup = std::env::var("TEST_CRAMPED").map(|door| std::fs::write(door, "0"));
    if !matches!(cgroup, Ok(Ok(()))) {
        let limit = rustix::process::Rlimit { current: Some(1), maximum: Some(1) };
        let _ = rustix::process::setrlimit(rustix::process::Resource::As, limit);
    }
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        all.push(vec![1; 1 << 20]);
        std::hint::black_box(&mut all);
    }
}

/// The same tensors over and over, in this engine and at the same time in one for ranks 1 to 3.
fn work_in_a_set(engine: &Engine) -> Result<(), EngineError> {
    let set = engine.process_set("most", &[1, 2, 3])?;
    say("set");
    std::thread::scope(|scope| {
        if let Some(set) = &set {
            scope.spawn(move || {
                let Err(error) = (0..).try_for_each(|_: u64| step(set)) else { return };
                say(&format!("inner {error}"));
            });
        }
        (0..).try_for_each(|_: u64| step(engine))
    })
}

/// Reports its progress; the odd rank takes longer. `TEST_ENDLESS` names a step that is repeated for ever.
fn report_progress(engine: &Engine, different: bool) -> Result<(), EngineError> {
    if std::env::var_os("TEST_GPU").is_some() {
        use_gpu(engine)?;
    }
    let endless: Option<u64> = std::env::var("TEST_ENDLESS").ok().and_then(|step| step.parse().ok());
    for number in 1_u64..=200 {
        std::thread::sleep(Duration::from_millis(if different { 20 } else { 1 }));
        step(engine)?;
        engine.progress(&Progress {
            step: number,
            steps: Some(200),
            samples: Some(64 * number),
            loss: Some(1.0 / number as f64),
            accuracy: Some(0.5),
            test_accuracy: number.is_multiple_of(50).then_some(0.75),
            ..Progress::default()
        });
        if number == 100 {
            say("half");
        }
        // Until the test has seen enough.
        while endless == Some(number) {
            step(engine)?;
        }
    }
    Ok(())
}

/// Adds up a tensor in the memory of this rank's GPU, which is one of the stand-in's.
fn use_gpu(engine: &Engine) -> Result<(), EngineError> {
    let stream = gpu(engine.group().rank() as u32).stream(false)?;
    let (memory, view) = upload(&Data::new(DType::F32, &[1.0; 8]), &stream);
    let request = Request::new("gpu", Operation::AllReduce(Reduction::SUM), view.dtype(), &[view.len()]);
    // SAFETY: the memory is the owner, and nobody else has it.
    let tensor = unsafe { Tensor::on_device(view, Arc::new(stream.record()?), Box::new(memory)) };
    engine.submit(request.placed(TensorPlace::Device), tensor).wait()?;
    finish(&stream);
    Ok(())
}

/// The scenarios. `odd` is the rank that does something else.
fn act(engine: &Engine, scenario: &str, odd: usize) -> Result<String, EngineError> {
    for _ in 0..5 {
        step(engine)?;
    }
    say("ready");
    let different = engine.group().rank() == odd;
    match scenario {
        // An order that repeats.
        "loop" => loop {
            step(engine)?;
        },
        // An order that is adopted and abandoned, again and again.
        "leave" => {
            for number in 0_u64.. {
                (0..number % 4).try_for_each(|_| step(engine))?;
                submit(engine, &format!("tensor {number}")).wait()?;
            }
        }
        "course" => report_progress(engine, different)?,
        // No collective at all.
        "messages" => loop {
            exchange(engine)?;
        },
        // Every tensor has to be agreed on.
        "varied" => {
            for number in 0_u64.. {
                submit(engine, &format!("tensor {number}")).wait()?;
            }
        }
        // The others wait for a tensor that the odd rank never submits.
        "silence" if different => std::thread::sleep(Duration::from_secs(3600)),
        "busy" if different => loop {
            std::hint::spin_loop();
        },
        "instead" if different => drop(submit(engine, "something else").wait()?),
        "silence" | "busy" | "instead" => drop(submit(engine, "missing").wait()?),
        "exception" if different => panic!("this rank fails on purpose"),
        "abort" if different => std::process::abort(),
        "memory" if different => exhaust_memory(),
        "exit" if different => std::process::exit(5),
        // It leaves in good order; what its exit handlers do is up to `main`.
        "handler" if different => return Ok("leaving".into()),
        "set" => work_in_a_set(engine)?,
        "exception" | "abort" | "memory" | "exit" | "handler" => loop {
            step(engine)?;
        },
        // Some steps of one large tensor.
        "some" => (0..22).try_for_each(|_| reduce(engine, "large", LARGE).wait().map(drop))?,
        "idle" => std::thread::sleep(Duration::from_secs(3600)),
        other => return Ok(format!("there is no scenario {other}")),
    }
    Ok("through".into())
}

/// Warnings come after a second and are printed at once.
fn settings(base: Settings) -> Settings {
    Settings {
        warn: Arc::new(|text| say(&format!("warning {text}"))),
        warn_after: Some(Duration::from_secs(1)),
        ..base
    }
}

/// In a job of the launcher, the place comes from its variables, as in any program.
fn from_the_launcher() -> Result<Engine, Box<dyn Error>> {
    let mut job = Job::discover(&|name| std::env::var(name).ok())?;
    job.engine = settings(job.engine);
    Ok(job.join()?.into_engine())
}

fn from_the_test() -> Result<Engine, Box<dyn Error>> {
    let (rank, size) = (variable("TEST_RANK")?.parse()?, variable("TEST_SIZE")?.parse()?);
    let mut links = sirtaki_comm::Settings::new(Secret::from_hex(&variable("TEST_SECRET")?)?);
    links.timeout = Duration::from_secs_f64(variable("TEST_TIMEOUT")?.parse()?);
    links.start_timeout = Duration::from_secs(20);
    links.shared_memory = variable("TEST_SHARED_MEMORY")? == "1";
    links.interface = variable("TEST_INTERFACE").ok();
    links.tls = variable("TEST_TLS")? == "1";
    let mut settings = settings(Settings::default());
    settings.hang_timeout =
        variable("TEST_SHUTDOWN").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs_f64);
    settings.profile = variable("SIRTAKI_PROFILE").ok().map(|path| Profiling::File(path.into()));
    settings.timeline = variable("SIRTAKI_TIMELINE").ok().map(Into::into);
    let folder = variable("TEST_STORE")?;
    let store = Arc::new(FileStore::new(&folder, "job")?);
    settings.ending = Arc::new(move |rank| std::fs::read_to_string(format!("{folder}/ending {rank}")).ok());
    let world = connect(store, rank, size, links.clone())?;
    Ok(Engine::start(world, &links, settings)?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let launched = std::env::var_os("SIRTAKI_RANK").is_some();
    let engine = if launched { from_the_launcher()? } else { from_the_test()? };
    let (pid, descriptor) = engine.record_address();
    say(&format!("record {pid} {descriptor}"));
    let odd = variable("TEST_ODD").ok().and_then(|odd| odd.parse().ok()).unwrap_or(usize::MAX);
    let started = Instant::now();
    match act(&engine, &variable("TEST_SCENARIO")?, odd) {
        Ok(text) if text == "leaving" => {
            drop(engine);
            // An exit handler that takes longer than the others need to fail and end.
            std::thread::sleep(Duration::from_secs(5));
            std::process::exit(5);
        }
        Ok(text) => say(&format!("done {text}")),
        Err(error) => {
            say(&format!("error {:.3} {error}", started.elapsed().as_secs_f64()));
            std::process::exit(3);
        }
    }
    Ok(())
}
