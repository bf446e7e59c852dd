//! Strategies beside each other, and what a comparison of their steps does not say.

use super::{scale::Prediction, show::seconds, strategy::Strategy, work::Work};
use crate::commands::bench::sizes;

/// The strategies of each number of workers, within 80 columns.
pub(super) fn table(rows: &[Prediction]) -> Vec<String> {
    let width = rows.iter().map(|row| row.strategy.label().len()).max().unwrap_or(0);
    let head = format!(
        "{:>7}  {:<width$}  {:>8}  {:>10}  {:>8}  {:>8}  {:>8}",
        "workers", "strategy", "step", "efficiency", "waiting", "sent", "memory"
    );
    let line = |row: &Prediction| {
        format!(
            "{:>7}  {:<width$}  {:>8}  {:>8.1} %  {:>8}  {:>8}  {:>8}",
            row.workers,
            row.strategy.label(),
            seconds(row.step_seconds),
            100.0 * row.efficiency,
            seconds(row.straggler_seconds.max(0.0)),
            sizes::show(row.sent_bytes.round() as u64),
            sizes::show(row.memory_bytes)
        )
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}

/// What was assumed of these strategies, and what is not predicted.
pub(super) fn assumptions(strategies: &[Strategy], work: &Work) -> Vec<String> {
    let mut list = Vec::new();
    if strategies.len() > 1 {
        list.push(
            "Waiting is for slower workers; sent is what a worker sends in a step; memory is that of a worker for \
             weights, gradients and Adam's state, without activations."
                .into(),
        );
    }
    if let Some(every) = strategies.iter().find_map(|strategy| strategy.every()).filter(|every| *every > 1) {
        list.push(format!(
            "local: weights are averaged every {every} steps, after them; the collectives are those of one average."
        ));
    }
    if let Some(servers) = strategies.iter().find_map(|strategy| strategy.servers()) {
        let share = sizes::show((work.bytes() / servers) as u64);
        let each = if servers == 1 { "the server".into() } else { format!("each of {servers} servers") };
        list.push(format!(
            "server: {each} has a host and a link of its own, receives {share} from each worker in a step and sends as \
             much. With a delay, pushes and pulls are taken to be spread evenly over time."
        ));
    }
    if strategies.iter().any(|strategy| strategy.is_split()) && work.fixed == 0.0 {
        list.push("No time of the optimizer is known, so none is saved where its work is split over workers.".into());
    }
    if strategies.iter().any(|strategy| !strategy.is_exact()) {
        list.push(
            "local, and server with a delay, do not compute what data parallelism does: how many samples they need \
             to reach an accuracy is not predicted, and is often more."
                .into(),
        );
    }
    list
}
