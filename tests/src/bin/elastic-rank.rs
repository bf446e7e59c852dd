//! A worker of an elastic job that counts: every step adds its number to what all workers have, and whoever has another
//! sum than the number of steps says has lost a step, or done one twice. It trains until the file in its argument exists.

use std::{io::Write, path::Path, process::ExitCode};

use serde::{Deserialize, Serialize};
use sirtaki::{Error, Result, elastic};

#[derive(Clone, Serialize, Deserialize)]
struct Training {
    step: u64,
    sum: f64,
    padding: Vec<f32>,
}

fn say(text: &str) {
    let _ = std::io::stdout().write_all(format!("{text}\n").as_bytes());
}

fn train(stop: &Path) -> Result<Option<u64>> {
    let padding = vec![0.5; 10_000];
    elastic::run(Training { step: 0, sum: 0.0, padding }, |session| {
        let world = session.world().clone();
        say(&format!("round {} rank {} of {}", session.round(), world.rank(), world.size()));
        loop {
            let state = &mut session.state;
            let expected = (state.step * state.step.saturating_sub(1) / 2) as f64;
            let [sum, stopping] = world.sums("step", [state.sum, f64::from(u8::from(stop.exists()))])?;
            if sum != expected * world.size() as f64 || state.padding.iter().any(|&value| value != 0.5) {
                let problem = format!("after {} steps the sum is {sum} on {} workers", state.step, world.size());
                return Err(Error::setting(problem, ""));
            }
            if stopping > 0.0 {
                return Ok(state.step);
            }
            state.sum += state.step as f64;
            state.step += 1;
            session.commit()?;
        }
    })
}

fn main() -> ExitCode {
    let stop = std::env::args().nth(1).unwrap_or_default();
    match train(Path::new(&stop)) {
        Ok(Some(steps)) => say(&format!("done after {steps} steps")),
        Ok(None) => say("left"),
        Err(error) => {
            say(&format!("error: {error}"));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
