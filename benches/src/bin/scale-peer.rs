//! `scale-peer RANKS agreed|adopted STEPS`: ranks as threads of this process go through steps of many tensors; what one
//! step costs is printed as JSON.

use std::process::ExitCode;

use sirtaki_bench::engine::Cost;
use sirtaki_tests::scale::measure;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok()).filter(|&number: &usize| number > 0);
    let (Some(ranks), Some(order), Some(steps)) = (number(0), arguments.get(1), number(2)) else {
        #[allow(clippy::print_stderr, reason = "a program says on its error output why it ends")]
        {
            eprintln!("use: scale-peer RANKS agreed|adopted STEPS, as the benchmark does");
        }
        return ExitCode::FAILURE;
    };
    let cost = measure(ranks, order == "adopted", steps);
    let cost = Cost { wall: cost.wall.as_secs_f64() * 1e3, cpu: cost.cpu.as_secs_f64() * 1e3 };
    #[allow(clippy::print_stdout, reason = "the benchmark reads it there")]
    {
        println!("{}", serde_json::json!(cost));
    }
    ExitCode::SUCCESS
}
