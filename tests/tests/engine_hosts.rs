//! Engines on several hosts, as network namespaces: three with two ranks each.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use sirtaki_tests::{
    hosts::Hosts,
    job::{Job, Plan, parse_error},
};

fn start(hosts: &Hosts, plan: &Plan) -> Job {
    let names: Vec<String> = (0..6).map(|rank| hosts.name(rank / 2)).collect();
    let places: Vec<Option<&str>> = names.iter().map(|name| Some(name.as_str())).collect();
    Job::start(Path::new(env!("CARGO_BIN_EXE_engine-rank")), &places, plan)
}

#[test]
#[ignore = "survivors of a cut may still give different reasons; run it with `--run-ignored all` to see"]
fn a_host_that_is_cut_off_is_named() {
    // In a collective the communicator notices, in an agreement the control links do.
    for (scenario, cut) in [("loop", 1), ("silence", 1), ("silence", 0)] {
        let hosts = Hosts::new("eng", 3);
        let plan = Plan { timeout: 2.0, interface: Some("fast"), odd: Some(2 * cut), ..Plan::new(scenario) };
        let job = start(&hosts, &plan);
        job.all_say("ready");
        if scenario == "silence" {
            // Until everybody has left the adopted order and waits at the table.
            std::thread::sleep(Duration::from_millis(1500));
        }
        hosts.cut(cut);
        let began = Instant::now();
        let others = (0..6).filter(|rank| rank / 2 != cut);
        let reasons: Vec<String> = others
            .map(|rank| {
                let line = job.says(rank, "error");
                let (_, text) = parse_error(&line);
                text.split_once(" was not done: ").map_or(text, |(_, reason)| reason).to_string()
            })
            .collect();
        let named = |rank: usize| reasons[0].contains(&format!("rank {rank} (host "));
        assert!(named(2 * cut) || named(2 * cut + 1), "{scenario}: names neither rank of the host: {reasons:?}");
        assert!(reasons.iter().all(|reason| *reason == reasons[0]), "{scenario}: {reasons:#?}");
        let seconds = began.elapsed().as_secs_f64();
        assert!(seconds < 2.0 * 2.0 + 4.0, "{scenario}: it took {seconds:.1} s to report");
    }
}
