//! `predict-peer RANK SIZE STORE STEPS [INTERFACE]`, the job's secret in SIRTAKI_SECRET: a rank that trains as a network
//! would, but sleeps instead of computing, so that many fit on a small machine and only the network is shared.
//! SIRTAKI_FUSION is obeyed, and with SIRTAKI_TIMELINE the job is recorded. Rank 0 prints how long its steps took, in
//! seconds, as JSON.

use std::{
    process::ExitCode,
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use sirtaki_bench::{
    BenchError, exit_with,
    predict::{self, BACKWARD, FORWARD, WARM_UP},
    resnet,
};
use sirtaki_comm::{
    DType, Reduction, Settings,
    rendezvous::{FileStore, connect},
    secure::Secret,
};
use sirtaki_engine::{Engine, EngineError, Operation, Phase, Request, Tensor, Ticket};

fn usage() -> BenchError {
    BenchError::Protocol("use: predict-peer RANK SIZE STORE STEPS [INTERFACE], as the benchmark does".into())
}

fn failed(error: EngineError) -> BenchError {
    BenchError::Protocol(error.to_string())
}

fn sleep_until(time: Instant) {
    sleep(time.saturating_duration_since(Instant::now()));
}

/// One step: forward, backward with gradients submitted on the way, and the wait for all of them.
fn step(engine: &Engine, gradients: &mut [Vec<f32>], pace: f64) -> Result<(), BenchError> {
    let forward = engine.phase(Phase::Forward);
    sleep(FORWARD.mul_f64(pace));
    drop(forward);
    let backward = engine.phase(Phase::Backward);
    let (begin, count) = (Instant::now(), gradients.len() as u32);
    let mut tickets: Vec<Ticket> = Vec::with_capacity(gradients.len());
    for (at, data) in (1..).zip(gradients.iter_mut()) {
        sleep_until(begin + BACKWARD.mul_f64(pace) * at / count);
        let request =
            Request::new(format!("gradient {at}"), Operation::AllReduce(Reduction::SUM), DType::F32, &[data.len()]);
        // SAFETY: all tickets are waited for before the borrow of the gradients ends, and each is submitted once.
        let tensor = unsafe { Tensor::foreign(data.as_mut_ptr().cast(), DType::F32, data.len(), Box::new(())) };
        tickets.push(engine.submit(request, tensor));
    }
    drop(backward);
    let outcomes: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    outcomes.into_iter().try_for_each(|outcome| outcome.map(drop)).map_err(failed)
}

fn run(arguments: &[String]) -> Result<(), BenchError> {
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse::<usize>().ok()).ok_or_else(usage);
    let (rank, size, steps) = (number(0)?, number(1)?, number(3)?);
    let folder = arguments.get(2).ok_or_else(usage)?;
    let secret = std::env::var("SIRTAKI_SECRET").map_err(|_| usage())?;
    let mut links = Settings::new(Secret::from_hex(&secret)?);
    links.interface = arguments.get(4).cloned();
    links.timeout = Duration::from_secs(60);
    let timeline = std::env::var_os("SIRTAKI_TIMELINE").map(Into::into);
    let mut settings = sirtaki_engine::Settings { timeline, ..Default::default() };
    let fusion = std::env::var("SIRTAKI_FUSION").ok().and_then(|bytes| bytes.parse().ok());
    settings.limits.fused = fusion.unwrap_or(settings.limits.fused);
    let world = connect(Arc::new(FileStore::new(folder, "predict")?), rank, size, links.clone())?;
    let engine = Engine::start(world, &links, settings).map_err(failed)?;
    let mut gradients: Vec<Vec<f32>> = predict::gradients().into_iter().map(|length| vec![0.0; length]).collect();
    let mut seconds = Vec::with_capacity(steps);
    for number in 0..WARM_UP + steps {
        // Ranks and steps differ a little, as they do in training.
        let varied = resnet::shuffled(101, (number * 64 + rank) as u64)[0];
        let begin = Instant::now();
        step(&engine, &mut gradients, 1.0 + (varied as f64 / 100.0 - 0.5) * predict::VARIATION)?;
        if number >= WARM_UP {
            seconds.push(begin.elapsed().as_secs_f64());
        }
    }
    engine.barrier("end").map_err(failed)?;
    if rank == 0 {
        #[allow(clippy::print_stdout, reason = "the benchmark reads it there")]
        {
            println!("{}", serde_json::json!(seconds));
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    exit_with("predict-peer", run(&arguments))
}
