//! Plans and results in words, and as JSON.

use std::{collections::BTreeMap, io, time::Instant};

use serde_json::{Value, json};
use sirtaki_infer::{Job, Settings, source::Source, verify::Verdict, work::WorkerReport};
use sirtaki_launch::words::{grouped, percent, seconds_in_words};
use sirtaki_volume::{
    Extent,
    format::{Choices, is_hdf5},
    grid::plan::Plan,
    ledger::{Done, Ledger},
};

use super::prepare::Decided;
use crate::printer::{Printer, Style};

pub(super) type Row = (&'static str, String, String);

/// The most voxels that are computed to estimate the time.
const SAMPLE: u64 = 48 * 48 * 48;

/// `--dry-run`: tiles, memory and time.
pub(super) fn plan(prepared: &mut Decided, workers: usize, as_json: bool, printer: &mut Printer) -> anyhow::Result<()> {
    let plan = prepared.job.plan()?;
    let seconds = estimate(prepared, &plan)? / workers as f64;
    let job = &prepared.job;
    if as_json {
        let mut object = facts(job, &plan);
        object["workers"] = json!(workers);
        object["memory_per_worker"] = json!(job.memory);
        object["seconds"] = json!(seconds);
        printer.data(&object.to_string())?;
        return Ok(());
    }
    let mut rows = planned(job, &plan)?;
    let memory = format!("{} MB", grouped(job.memory as f64 / 1e6));
    let all = grouped(job.memory as f64 * workers as f64 / 1e6);
    rows.push(("memory", memory, format!("per worker, {all} MB for {workers}")));
    rows.push(("time", seconds_in_words(seconds), "estimated from a small tile on this machine".to_owned()));
    print(&rows, printer)?;
    notes(job, printer);
    Ok(())
}

/// Seconds that one worker would take for everything.
fn estimate(prepared: &mut Decided, plan: &Plan) -> anyhow::Result<f64> {
    let job = &prepared.job;
    let mut sizes = job.window.clone().unwrap_or_else(|| plan.largest_read()).sizes().to_vec();
    let (steps, inputs) = (job.spec.halo.clone(), job.spec.input.sizes().to_vec());
    while Extent::new(sizes.clone())?.voxels() > SAMPLE {
        let halved: Vec<u64> = (0..sizes.len())
            .map(|axis| {
                let (step, rest) = (steps[axis].input, inputs[axis] % steps[axis].input);
                let least = 2 * u64::try_from(steps[axis].before.max(steps[axis].after).max(0)).unwrap_or(0) + step;
                (sizes[axis] / 2).max(least).next_multiple_of(step).min(sizes[axis]) / step * step + rest
            })
            .collect();
        let fixed = job.spec.reads != Default::default() || job.window.is_some();
        if fixed || halved.iter().product::<u64>() >= sizes.iter().product::<u64>() {
            break;
        }
        sizes = halved;
    }
    let voxels = sizes.iter().product::<u64>();
    let shape: Vec<u64> = [job.channels.len() as u64].into_iter().chain(sizes).collect();
    let all = match &job.window {
        Some(_) => job.cost(plan)? * job.spec.output.voxels() as f64,
        None => plan.voxels_read() as f64,
    };
    let mut values = vec![0.0; shape.iter().product::<u64>() as usize];
    let part = job.tiles.as_ref().map_or(1.0, |tiles| tiles.len() as f64 / plan.tiles() as f64);
    let mut model = prepared.model()?;
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let began = Instant::now();
        model.run(&shape, &mut values, &mut |_, _| Ok(()))?;
        best = best.min(began.elapsed().as_secs_f64());
    }
    Ok(best / voxels as f64 * all * part)
}

/// What is about to happen, in two lines.
pub(super) fn beginning(job: &Job, ledger: &Ledger, workers: usize, printer: &mut Printer) -> anyhow::Result<()> {
    let plan = job.plan()?;
    let tiles = job.order(&plan)?.len();
    let crew = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    printer.message(&format!(
        "{} voxels in {tiles} tiles of {}, read with halos as {}; {crew}",
        job.spec.input,
        job.spec.core,
        plan.largest_read()
    ));
    let done = job.tiles_done(&plan, ledger);
    if done > 0 {
        printer.message(&format!("continuing: {done} of {tiles} tiles are done"));
    }
    notes(job, printer);
    Ok(())
}

/// Which dataset of an HDF5 file is read, where nobody named it.
pub(super) fn understood(settings: &Settings, printer: &mut Printer) -> anyhow::Result<()> {
    for path in [Some(&settings.input), settings.mask.as_ref()].into_iter().flatten().filter(|path| is_hdf5(path)) {
        if let Some(note) = Source::open(path, &Choices::default())?.note() {
            printer.labelled(Style::Bold, "note:", note);
        }
    }
    Ok(())
}

/// What keeps the result from being exact.
fn notes(job: &Job, printer: &mut Printer) {
    for note in &job.reach.notes {
        printer.labelled(Style::Bold, "note:", note);
    }
}

/// A job that is complete.
pub(super) struct Finished<'a> {
    pub(super) job: &'a Job,
    pub(super) seconds: f64,
    /// Tiles that were done since this command began.
    pub(super) done: usize,
    pub(super) workers: usize,
    pub(super) told: Vec<WorkerReport>,
    /// All tiles, with whoever computed them.
    pub(super) tiles: BTreeMap<u64, Done>,
    pub(super) verdict: Option<Verdict>,
}

impl Finished<'_> {
    /// For people.
    pub(super) fn print(&self, printer: &mut Printer) -> anyhow::Result<()> {
        let plan = self.job.plan()?;
        let mut rows = planned(self.job, &plan)?;
        rows.extend(self.rows(&plan));
        print(&rows, printer)?;
        Ok(())
    }

    /// What was measured.
    pub(super) fn rows(&self, plan: &Plan) -> Vec<Row> {
        let voxels = self.job.spec.output.voxels() as f64 * self.done as f64 / plan.tiles() as f64;
        let rate = format!("{:.2} Mvoxel/s, {} tiles", voxels / self.seconds.max(1e-9) / 1e6, self.done);
        let mut rows = vec![("time", seconds_in_words(self.seconds), rate)];
        if let Some(shares) = self.shares() {
            rows.push(("workers", self.workers.to_string(), shares));
        }
        if let Some(objects) = self.told.iter().filter_map(|worker| worker.objects).max() {
            let seconds = self.told.iter().map(|worker| worker.labelling).fold(0.0, f64::max);
            let note = format!("numbered over the whole volume in {}", seconds_in_words(seconds));
            rows.push(("objects", grouped(objects as f64), note));
        }
        if let Some(most) = self.told.iter().map(|worker| worker.memory).max() {
            rows.push(("memory", format!("{} MB", most / 1_000_000), "of the largest worker".to_owned()));
        }
        if let Some(verdict) = self.verdict {
            let note = match verdict.equal == verdict.places {
                true => "places computed again are equal in every bit".to_owned(),
                false => {
                    format!("places computed again are equal; {} values differ", grouped(verdict.differing as f64))
                }
            };
            rows.push(("verified", format!("{} of {}", verdict.equal, verdict.places), note));
        }
        rows
    }

    /// Where the time of all workers went.
    fn shares(&self) -> Option<String> {
        let sum = |part: fn(&WorkerReport) -> f64| self.told.iter().map(part).sum::<f64>();
        let all = sum(|worker| worker.seconds);
        let share = |part: fn(&WorkerReport) -> f64| percent(sum(part) / all, 0);
        (all > 0.0).then(|| {
            let [read, write] = [share(|worker| worker.reading), share(|worker| worker.writing)];
            format!("computing {}; beside it reading {read}, writing {write}", share(|worker| worker.computing))
        })
    }

    /// For programs.
    pub(super) fn print_json(&self, printer: &mut Printer) -> anyhow::Result<()> {
        let mut object = facts(self.job, &self.job.plan()?);
        object["seconds"] = json!(self.seconds);
        object["tiles_done"] = json!(self.done);
        object["objects"] = json!(self.told.iter().filter_map(|worker| worker.objects).max());
        object["workers"] = serde_json::to_value(&self.told)?;
        if let Some(Verdict { places, equal, differing, values }) = self.verdict {
            object["verified"] = json!({"places": places, "equal": equal, "differing": differing, "values": values});
        }
        printer.data(&object.to_string())?;
        Ok(())
    }
}

/// What was decided, for people.
pub(super) fn planned(job: &Job, plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let tiles = job.order(plan)?.len();
    let halo: Vec<String> = job.spec.halo.iter().map(|halo| halo.before.max(halo.after).max(0).to_string()).collect();
    let stride: Vec<String> = job.spec.halo.iter().map(|halo| halo.input.to_string()).collect();
    let mut rows = vec![
        ("output", job.layout.shape.to_string(), format!("{}, {}", job.layout.dtype, job.settings.content.name())),
        ("tiles", tiles.to_string(), format!("of {}, read as {}", job.spec.core, plan.largest_read())),
        ("halo", halo.join(" × "), format!("voxels, in steps of {}", stride.join(" × "))),
    ];
    let recomputed = percent(job.cost(plan)? - 1.0, 0);
    if let Some((window, overlap)) = job.window.as_ref().zip(job.settings.blend) {
        rows.pop();
        rows.push(("windows", window.to_string(), format!("overlap by {}, and are blended", percent(overlap, 0))));
        rows.push(("recomputation", recomputed, "of the voxels, for overlaps".to_owned()));
    } else {
        rows.push(("recomputation", recomputed, "of the voxels, for halos".to_owned()));
    }
    for (channel, scaling) in job.channels.iter().zip(job.scaling.iter().flatten()) {
        let note = format!("subtracted from channel {channel}, which is divided by {:.6}", scaling.scale);
        rows.push(("scaling", format!("{:.6}", scaling.shift), note));
    }
    if let Some(error) = &job.error {
        let most = error.iter().copied().fold(0.0, f64::max);
        rows.push((
            "error",
            format!("{most:.1e}"),
            "standard deviations of the output, measured with noise".to_owned(),
        ));
    }
    if job.settings.global_statistics {
        let note = "normalisations, with statistics of the whole volume".to_owned();
        rows.push(("statistics", job.statistics.len().to_string(), note));
    }
    if job.settings.inexact {
        rows.push(("exactness", "none".to_owned(), "statistics of normalisation are those of tiles".to_owned()));
    }
    Ok(rows)
}

/// What was decided, for programs.
fn facts(job: &Job, plan: &Plan) -> Value {
    json!({
        "input": job.spec.input.sizes(),
        "output": job.layout.shape.sizes(),
        "dtype": job.layout.dtype.name(),
        "tile": job.spec.core.sizes(),
        "read": plan.largest_read().sizes(),
        "tiles": job.tiles.as_ref().map_or(plan.tiles(), |tiles| tiles.len() as u64),
        "halo": job.spec.halo,
        "cost": job.cost(plan).unwrap_or_else(|_| plan.cost()),
        "error": job.error,
        "scaling": job.scaling,
    })
}

fn print(rows: &[Row], printer: &mut Printer) -> io::Result<()> {
    for (name, value, note) in rows {
        let value = printer.paint(Style::Bold, &format!("{value:<16}"));
        let line = format!("{name:<14} {value} {}", printer.paint(Style::Faint, note));
        printer.data(line.trim_end())?;
    }
    Ok(())
}
