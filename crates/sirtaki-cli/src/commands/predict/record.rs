//! A recorded job: the steps that its timeline shows, and what they say about the next ones.
//!
//! A step of a rank begins when it has the results of the step before, and the next one begins with the first tensor that
//! comes again. So this needs no help from the program; where it reports its phases, the end of the backward pass and the
//! time of the optimizer are known as well.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde_json::Value;
use sirtaki_engine::files;

use super::{
    cost::LinearCost,
    trace::{Handed, Rank, Trace},
    work::{Sample, Tensor, Work},
};
use crate::printer::Advice;

/// The timeline in a run folder.
pub(crate) const TIMELINE: &str = "timeline.json";
/// What the run was, in the same folder.
const RUN: &str = "run.json";
/// Largest timeline in bytes: twice the largest limit that is likely to be set.
const LARGEST: u64 = 4 << 30;
/// Steps this many times as long as the usual one are pauses: tests, checkpoints, the first one.
const PAUSE: f64 = 4.0;
/// Least number of steps for a prediction.
const FEWEST: usize = 3;

const HOW: &str = "record one with `sirtaki run --timeline FILE`, over at least ten steps";

/// The job that this timeline or run folder belongs to.
pub(super) fn read(path: &Path) -> Result<Work> {
    let folder = path.is_dir().then_some(path);
    let file: PathBuf = folder.map_or_else(|| path.to_owned(), |folder| folder.join(TIMELINE));
    let refuse = |problem: String| match folder {
        Some(folder) if !file.exists() => {
            let message = format!("{} has no {TIMELINE}", folder.display());
            Advice::new(message, format!("record it with `--timeline {}`", file.display()))
        }
        _ => Advice::new(format!("{} cannot be used: {problem}", file.display()), HOW),
    };
    let bytes = files::read(&file, LARGEST).map_err(|error| refuse(error.to_string()))?;
    let trace = Trace::parse(&bytes).map_err(&refuse)?;
    let mut work = work(&trace).map_err(&refuse)?;
    work.title = path.display().to_string();
    work.batch = folder.and_then(batch);
    Ok(work)
}

/// Samples per worker and step, where the run folder says it.
fn batch(folder: &Path) -> Option<usize> {
    let run: Value = serde_json::from_slice(&files::read(&folder.join(RUN), LARGEST).ok()?).ok()?;
    let value = &run["settings"]["batch_per_worker"];
    value.as_str().and_then(|text| text.parse().ok()).or_else(|| value.as_u64()?.try_into().ok())
}

/// One step of one rank: its tensors, and when it had the results of the step before.
pub(crate) struct Step<'a> {
    pub(crate) began: f64,
    pub(crate) tensors: Vec<&'a Handed>,
}

impl Step<'_> {
    /// When the rank had the results of this one.
    fn ended(&self) -> f64 {
        self.tensors.iter().map(|tensor| tensor.ended).fold(0.0, f64::max)
    }
}

/// A rank's steps, without the first, whose beginning is not known.
pub(crate) fn steps(rank: &Rank) -> Vec<Step<'_>> {
    let mut tensors: Vec<&Handed> = rank.tensors.iter().collect();
    tensors.sort_by(|a, b| a.submitted.total_cmp(&b.submitted));
    let mut steps: Vec<Vec<&Handed>> = Vec::new();
    let mut seen: HashSet<&str> = HashSet::new();
    for tensor in tensors {
        if steps.is_empty() || !seen.insert(&tensor.name) {
            seen = HashSet::from([tensor.name.as_str()]);
            steps.push(Vec::new());
        }
        steps.last_mut().into_iter().for_each(|step| step.push(tensor));
    }
    let ended = |step: &[&Handed]| step.iter().map(|tensor| tensor.ended).fold(0.0, f64::max);
    let began: Vec<f64> = steps.iter().map(|step| ended(step)).collect();
    began.into_iter().zip(steps.into_iter().skip(1)).map(|(began, tensors)| Step { began, tensors }).collect()
}

/// The tensors of most steps, in the order in which they come on average, with their largest size.
fn usual(steps: &[Step<'_>]) -> Vec<Tensor> {
    let mut all: HashMap<&str, (usize, f64, usize)> = HashMap::new();
    for step in steps {
        for tensor in &step.tensors {
            let (count, times, bytes) = all.entry(&tensor.name).or_default();
            (*count, *times, *bytes) =
                (*count + 1, *times + (tensor.submitted - step.began).max(0.0), tensor.bytes.max(*bytes));
        }
    }
    let mut list: Vec<(&str, f64, usize)> = all
        .into_iter()
        .filter(|(_, (count, ..))| 2 * count > steps.len())
        .map(|(name, (count, times, bytes))| (name, times / count as f64, bytes))
        .collect();
    list.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(b.0)));
    list.into_iter().map(|(name, _, bytes)| Tensor { name: name.to_owned(), bytes }).collect()
}

/// The step as a sample, if all of `tensors` came in it.
fn sample(step: &Step<'_>, tensors: &[Tensor], rank: &Rank) -> Option<Sample> {
    let times: HashMap<&str, f64> =
        step.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.submitted - step.began)).collect();
    let time = |tensor: &Tensor| times.get(tensor.name.as_str()).map(|time| time.max(0.0));
    let ready: Vec<f64> = tensors.iter().map(time).collect::<Option<_>>()?;
    let handed = ready.iter().copied().fold(0.0, f64::max);
    let ended = step.ended();
    let within = |&&(phase, begin, _): &&(&str, f64, f64)| phase == "backward" && begin >= step.began && begin < ended;
    // They come in order, so the ones before can be skipped quickly.
    let from = rank.phases.partition_point(|(_, begin, _)| *begin < step.began);
    let later = rank.phases[from..].iter().take_while(|(_, begin, _)| *begin < ended);
    let backward = later.filter(within).map(|(_, _, end)| end - step.began).fold(0.0, f64::max);
    Some(Sample { ready, computed: handed.max(backward) })
}

fn work(trace: &Trace) -> Result<Work, String> {
    let ranks: Vec<(&Rank, Vec<Step<'_>>)> = trace.ranks.iter().map(|rank| (rank, steps(rank))).collect();
    let first = ranks.first().map(|(_, steps)| steps.as_slice()).unwrap_or_default();
    let tensors = usual(first);
    if tensors.is_empty() {
        return Err("it shows no step in which tensors were reduced that come again and again".into());
    }
    let mut samples = Vec::new();
    for (rank, steps) in &ranks {
        let timed = |step: &Step<'_>| Some((sample(step, &tensors, rank)?, step.ended() - step.began));
        samples.extend(steps.iter().filter_map(timed));
    }
    let found = samples.len();
    let median = median(samples.iter().map(|(sample, _)| sample.computed));
    samples.retain(|(sample, _)| sample.computed <= PAUSE * median);
    let (samples, times): (Vec<Sample>, Vec<f64>) = samples.into_iter().unzip();
    if samples.len() < FEWEST {
        return Err(format!("it shows {} whole steps, and {FEWEST} are the fewest to go by", samples.len()));
    }
    if samples.iter().all(|sample| sample.computed <= 0.0) {
        return Err("its steps take no time".into());
    }
    let mut notes = Vec::new();
    if found > samples.len() {
        let left = found - samples.len();
        notes.push(format!("{left} of {found} steps took over {PAUSE} times the usual and were taken for pauses."));
    }
    let others: usize = trace.ranks.iter().map(|rank| rank.others).sum();
    if others > 0 {
        notes.push(format!("{others} tensors that went through something else than an all-reduce are left out."));
    }
    if trace.about.dropped > 0 {
        notes.push(format!("The timeline lacks {} records, for which there was no room.", trace.about.dropped));
    }
    Ok(Work {
        title: String::new(),
        tensors,
        samples,
        workers: trace.about.ranks.max(1),
        batch: None,
        fixed: optimizer(&trace.ranks),
        local: local(&trace.ranks),
        copy: copying(&trace.ranks),
        noise: None,
        recorded_step: Some(times.iter().sum::<f64>() / times.len().max(1) as f64),
        notes,
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The usual time in the optimizer, where the program reports it.
fn optimizer(ranks: &[Rank]) -> f64 {
    let phases = ranks.iter().flat_map(|rank| &rank.phases);
    median(phases.filter(|(phase, ..)| *phase == "optimizer").map(|(_, begin, end)| end - begin))
}

/// All-reduces inside a host: for each, the time of the rank that came last and so did not wait; for each size, the
/// median; then the straight line that fits best.
fn local(ranks: &[Rank]) -> Option<LinearCost> {
    let (first, others) = ranks.split_first()?;
    let mut sizes: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (number, reduced) in first.reduced.iter().filter(|(_, reduced)| reduced.algorithm == "flat") {
        let theirs = others.iter().filter_map(|rank| rank.reduced.get(number));
        let least = theirs.map(|reduced| reduced.inside).fold(reduced.inside, f64::min);
        sizes.entry(reduced.bytes).or_default().push(least);
    }
    let points: Vec<(f64, f64)> =
        sizes.into_iter().map(|(bytes, times)| (bytes as f64, median(times.into_iter()))).collect();
    (!points.is_empty()).then(|| fit(&points))
}

/// The least-squares line through points of bytes and seconds, with neither coefficient negative.
fn fit(points: &[(f64, f64)]) -> LinearCost {
    let count = points.len() as f64;
    let (bytes, seconds) = points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0, sum.1 + point.1));
    let (bytes, seconds) = (bytes / count, seconds / count);
    let covariance: f64 = points.iter().map(|point| (point.0 - bytes) * (point.1 - seconds)).sum();
    let variance: f64 = points.iter().map(|point| (point.0 - bytes).powi(2)).sum();
    let slope = if variance > 0.0 { (covariance / variance).max(0.0) } else { 0.0 };
    let fixed = seconds - slope * bytes;
    match fixed < 0.0 && bytes > 0.0 {
        true => LinearCost { fixed: 0.0, per_byte: seconds / bytes },
        false => LinearCost { fixed: fixed.max(0.0), per_byte: slope },
    }
}

/// The usual seconds per byte of the copies around collectives of several tensors.
fn copying(ranks: &[Rank]) -> f64 {
    let all = ranks.iter().flat_map(|rank| rank.reduced.values());
    let fused = all.filter(|reduced| reduced.tensors > 1 && reduced.bytes > 0);
    median(fused.map(|reduced| reduced.copying / reduced.bytes as f64))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
