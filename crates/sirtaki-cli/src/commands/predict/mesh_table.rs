//! Meshes for people and for programs.

use anyhow::Result;
use serde_json::{Value, json};
use sirtaki::pipeline::PipelineSchedule;

use super::{
    meshes::{MeshForecast, MeshQuery},
    show::seconds,
    work::Work,
};
use crate::{
    args::predict::Predict,
    commands::bench::sizes,
    printer::{Advice, Printer, Style},
};

/// Micro-batches at most.
const MICROS: usize = 10_000;

/// What no prediction of a mesh contains.
const LEFT_OUT: &str = "Left out: memory of activations, which 1f1b keeps for at most as many micro-batches as stages follow; \
                        steps that vary; other traffic.";

/// What is wanted of a network in stages, if it is about one.
pub(super) fn wanted(arguments: &Predict) -> Result<Option<MeshQuery>> {
    let Some(micros) = arguments.micro_batches else { return Ok(None) };
    if micros.get() > MICROS {
        let problem = format!("{micros} micro-batches are more than can be predicted");
        return Err(Advice::new(problem, format!("take at most {MICROS}")).into());
    }
    let name = arguments.schedule.as_deref().unwrap_or("1f1b");
    let schedule = PipelineSchedule::named(name).map_err(advice)?;
    let memory = arguments.memory.map(|bytes| bytes as u64);
    let activations = arguments.activations.unwrap_or(0) as f64;
    Ok(Some(MeshQuery { micros: micros.get(), schedule, memory, activations }))
}

/// What the crate `sirtaki` says, with its hint.
pub(super) fn advice(error: sirtaki::Error) -> anyhow::Error {
    Advice::new(error.to_string(), error.hint().unwrap_or_default()).into()
}

/// As one object, or for people.
pub(super) fn show(
    work: &Work,
    wanted: MeshQuery,
    rows: &[MeshForecast],
    (as_json, printer): (bool, &mut Printer),
) -> Result<()> {
    if as_json {
        printer.data(&serde_json::to_string(&json(work, wanted, rows))?)?;
        return Ok(());
    }
    print(work, wanted, rows, printer)
}

/// Everything as one object.
fn json(work: &Work, wanted: MeshQuery, rows: &[MeshForecast]) -> Value {
    json!({
        "title": work.title,
        "tensors": work.tensors.len(),
        "bytes": work.bytes(),
        "computing_seconds": work.computing(),
        "micro_batches": wanted.micros,
        "schedule": wanted.schedule.name(),
        "memory_bytes": wanted.memory,
        "meshes": rows,
        "notes": work.notes,
        "left_out": LEFT_OUT,
    })
}

/// The table on standard output; what it is based on and what it leaves out, on standard error.
fn print(work: &Work, wanted: MeshQuery, rows: &[MeshForecast], printer: &mut Printer) -> Result<()> {
    let (size, computing) = (sizes::show(work.bytes() as u64), seconds(work.computing()));
    let (micros, schedule) = (wanted.micros, wanted.schedule.name());
    let (title, tensors) = (&work.title, work.tensors.len());
    printer.message(&format!(
        "{title}: {tensors} tensors, {size}; {computing} of computing; {micros} micro-batches, schedule {schedule}"
    ));
    for (at, line) in table(rows).iter().enumerate() {
        let style = if at == 0 { Style::Bold } else { Style::Plain };
        let line = printer.paint(style, line);
        printer.data(&line)?;
    }
    work.notes.iter().for_each(|note| printer.message(note));
    printer.message(LEFT_OUT);
    Ok(())
}

fn table(rows: &[MeshForecast]) -> Vec<String> {
    let mesh = |row: &MeshForecast| format!("data={},pipe={}", row.data, row.pipe);
    let width = rows.iter().map(|row| mesh(row).len()).max().unwrap_or(0);
    let head = format!(
        "{:>7}  {:<width$}  {:>8}  {:>10}  {:>8}  {:>7}  {:>8}  {:>9}  {:>8}",
        "workers", "mesh", "step", "efficiency", "speed-up", "bubble", "stage", "reduction", "memory"
    );
    let line = |row: &MeshForecast| {
        let longest = row.stage_seconds.iter().copied().fold(0.0, f64::max);
        let remark = match (row.proposed, row.fits) {
            (true, _) => "  proposed",
            (false, true) => "",
            (false, false) => "  too large",
        };
        format!(
            "{:>7}  {:<width$}  {:>8}  {:>8.1} %  {:>8.2}  {:>5.1} %  {:>8}  {:>9}  {:>8}{remark}",
            row.workers,
            mesh(row),
            seconds(row.step_seconds),
            100.0 * row.efficiency,
            row.speedup,
            100.0 * row.bubble,
            seconds(longest),
            seconds(row.reduction_seconds),
            sizes::show(row.memory_bytes)
        )
    };
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}
