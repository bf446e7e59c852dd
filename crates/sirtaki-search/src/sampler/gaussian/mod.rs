//! A Gaussian process over all that was tried, and the point of which most improvement is expected.
//!
//! Fitting the kernel is the expensive part, and a fit that starts from the last one takes a few steps instead of
//! dozens. But a suggestion must not depend on which fits this process happened to make. So the fit for n ended
//! trials is defined by them alone: it starts from the fit for the last *milestone* below n, a fixed sequence of counts
//! that grows by a fifth each time, and that one from the milestone before it, each over as many trials in the order
//! of their ends. The chain is kept while the history's lineage is the same; a resumed study computes it again.
//!
//! Trials that run are believed to give what the process expects, so that no point nearby is tried at the same time. Most
//! of those that are asked for while others run stay close to the best point so far: the process errs least there, and what
//! they find out together about its surroundings is worth more than as many leaps into the unknown, of which each would have
//! been made otherwise had it known what the one before it found. On the four functions of the example `regret`, eight at a
//! time then come as far as one at a time, or nearly so. Rejected: draws from the process, or its best or worst value, for
//! what runs; they do not help.

mod acquire;
mod coding;
mod fit;
mod kernel;
mod model;
mod targets;
#[cfg(test)]
mod tests;
mod warp;

use acquire::{Acquisition, Worth};
use coding::Coding;
use fit::Distances;
use kernel::{Cloud, Hyper};
use model::Model;
use targets::Weights;
use warp::{SCALES, Scale};

use super::{History, Observation, Question, Sampler, SobolSampler};
use crate::{
    random::Random,
    space::{Point, Space},
};

/// Suggests by a Gaussian process.
#[derive(Debug, Clone, Default)]
pub struct GaussianSampler {
    /// The space that all below belongs to.
    space: Space,
    /// Fits of milestones, in ascending order.
    chain: Vec<Kept>,
    /// The last fit, and the last one for constraints.
    last: Option<Kept>,
    last_constraint: Option<Kept>,
}

/// How losses are explained: on which scale, and by which kernel.
#[derive(Debug, Clone)]
struct View {
    scale: Scale,
    hyper: Hyper,
}

impl View {
    fn start(space: &Space) -> Self {
        Self { scale: SCALES[0], hyper: Hyper::start(space.len()) }
    }
}

/// A fit of the first `count` ended trials of a history with this lineage.
#[derive(Debug, Clone)]
struct Kept {
    count: usize,
    lineage: u64,
    view: View,
}

impl Kept {
    fn holds(&self, history: &History) -> bool {
        history.lineage(self.count) == Some(self.lineage)
    }

    fn new(history: &History, count: usize, view: &View) -> Self {
        Self { count, lineage: history.lineage(count).unwrap_or_default(), view: view.clone() }
    }
}

/// So many points are spread over the space before the first fit.
const START: usize = 10;
/// With fewer trials than this there is nothing to fit.
const FEWEST: usize = 3;
/// Points that take part in a fit at most; more would make it slower, and hardly better.
const FITTED: usize = 160;
/// Points that a model knows at most; beyond, a suggestion would take seconds.
const MODELLED: usize = 1_000;
/// Other scales are considered at milestones up to this count; later the choice is settled.
const SETTLED: usize = 200;
/// After so many trials with the same choices others are tried.
const ALIKE: usize = 2;
/// How far from the best point most trials stay that are asked for while others run, on the unit scale of each parameter.
const REACH: f64 = 0.1;
/// One in so many looks everywhere all the same.
const EVERYWHERE: usize = 8;
/// Evaluations of the likelihood at most: for a fit at a milestone, for one that starts there, for one on another scale,
/// and for one of constraints.
const AT_MILESTONE: usize = 20;
const BETWEEN: usize = 8;
const ON_ANOTHER_SCALE: usize = 10;
const OF_CONSTRAINTS: usize = 20;

impl Sampler for GaussianSampler {
    fn suggest(&mut self, question: &Question<'_>) -> Point {
        let mut random = Random::new(question.seed, &[question.number, 0x6770]);
        let (space, history) = (question.space, question.history);
        let known = targets::known(history.ended());
        if known.len() < FEWEST || known.len() + history.running().len() < START || space.is_empty() {
            return SobolSampler.suggest(question);
        }
        if self.space != *space {
            *self = Self { space: space.clone(), ..Self::default() };
        }
        let weights = Weights::drawn(&known, question);
        let chosen = subset(&weights.losses(&known), MODELLED);
        let known: Vec<&Observation> = chosen.iter().map(|&index| known[index]).collect();
        let coding = Coding::new(space);
        let encode = |observation: &Observation| coding.encode(space, &observation.point);
        let points: Vec<Vec<f64>> = known.iter().map(|observation| encode(observation)).collect();
        let running: Vec<Vec<f64>> = history.running().iter().map(encode).collect();
        let cloud = Cloud::new(coding.owners.clone(), &points);
        let losses = weights.losses(&known);
        let View { scale, hyper } = self.view(history, space, &coding, &weights);
        let values = scale.warp(&losses).values;
        let kept = |index: usize| known[index].violation <= 0.0;
        let best = (0..known.len()).filter(|&i| kept(i)).map(|i| values[i]).min_by(f64::total_cmp);
        let model = Model::new(hyper, cloud.clone(), values).believing(&running);
        // What is believed to be better is not to be found once more.
        let best = best.map(|best| model.lowest_belief().map_or(best, |belief| best.min(belief)));
        let violations = targets::violations(&known);
        let constraint = violations.map(|violations| {
            let hyper = self.constraint(history, space, &cloud, &violations);
            Model::new(hyper, cloud, violations).believing(&running)
        });
        let mut order: Vec<usize> = (0..known.len()).collect();
        order.sort_by(|&a, &b| kept(b).cmp(&kept(a)).then(losses[a].total_cmp(&losses[b])));
        let ranked: Vec<&Point> = order.iter().map(|&index| &known[index].point).collect();
        let mut acquisition = Acquisition {
            space,
            coding: &coding,
            worth: Worth { model: &model, best, constraint: constraint.as_ref() },
            unlike: settled(space, history, ranked[0]).then_some(ranked[0]),
            reach: (best.is_some() && !running.len().is_multiple_of(EVERYWHERE)).then_some(REACH),
            known: ranked,
        };
        let running = history.running();
        let tried = |point: &Point| known.iter().copied().chain(running).any(|other| other.point == *point);
        let new = acquisition.maximize(&mut random).into_iter().find(|point| !tried(point));
        new.or_else(|| {
            acquisition.unlike = None;
            acquisition.maximize(&mut random).into_iter().find(|point| !tried(point))
        })
        .unwrap_or_else(|| SobolSampler.suggest(question))
    }
}

impl GaussianSampler {
    /// What explains all ended trials, by the chain of milestones.
    fn view(&mut self, history: &History, space: &Space, coding: &Coding, weights: &Weights) -> View {
        let ended = history.ended();
        if let Some(last) = &self.last
            && weights.is_single()
            && last.count == ended.len()
            && last.holds(history)
        {
            return last.view.clone();
        }
        self.chain.retain(|kept| kept.count < ended.len() && kept.holds(history));
        let mut milestone = self.chain.last().map_or(FEWEST, |kept| following(kept.count));
        let mut view = self.chain.last().map_or_else(|| View::start(space), |kept| kept.view.clone());
        while milestone < ended.len() {
            let equal = Weights::equal(&targets::known(&ended[..milestone]));
            view = Evidence::new(&ended[..milestone], space, coding, &equal).thorough(view);
            self.chain.push(Kept::new(history, milestone, &view));
            milestone = following(milestone);
        }
        let evidence = Evidence::new(ended, space, coding, weights);
        let view = if milestone == ended.len() { evidence.thorough(view) } else { evidence.brief(view) };
        self.last = Some(Kept::new(history, ended.len(), &view));
        view
    }

    /// The kernel for constraints: always from the same start, since few studies have any.
    fn constraint(&mut self, history: &History, space: &Space, cloud: &Cloud, violations: &[f64]) -> Hyper {
        let count = history.ended().len();
        if let Some(last) = &self.last_constraint
            && last.count == count
            && last.holds(history)
        {
            return last.view.hyper.clone();
        }
        let chosen = subset(violations, FITTED);
        let (cloud, values) = (cloud.only(&chosen), pick(violations, &chosen));
        let distances = Distances::new(&cloud, space.len());
        let hyper = distances.fit(&values, &Hyper::start(space.len()), OF_CONSTRAINTS).hyper;
        self.last_constraint = Some(Kept::new(history, count, &View { scale: SCALES[0], hyper: hyper.clone() }));
        hyper
    }
}

/// Whether the last trials all had the choices of the best one. Refining its other parameters always promises a little;
/// what other choices promise is underrated where they were last tried with bad values of the others.
fn settled(space: &Space, history: &History, best: &Point) -> bool {
    let discrete = |point: &Point| acquire::discrete(space, point);
    let best = discrete(best);
    let last = history.running().iter().rev().chain(history.ended().iter().rev());
    !best.is_empty() && last.take(ALIKE).all(|observation| discrete(&observation.point) == best)
}

/// The milestone after another one.
fn following(milestone: usize) -> usize {
    milestone + (milestone / 5).max(1)
}

/// The trials that a fit has to explain.
struct Evidence {
    losses: Vec<f64>,
    /// Which of the losses take part.
    chosen: Vec<usize>,
    distances: Distances,
}

impl Evidence {
    fn new(ended: &[Observation], space: &Space, coding: &Coding, weights: &Weights) -> Self {
        let known = targets::known(ended);
        let losses = weights.losses(&known);
        let chosen = subset(&losses, FITTED);
        let points: Vec<Vec<f64>> = chosen.iter().map(|&index| coding.encode(space, &known[index].point)).collect();
        let distances = Distances::new(&Cloud::new(coding.owners.clone(), &points), space.len());
        Self { losses, chosen, distances }
    }

    /// A fit on a scale, and how well it explains the losses.
    fn fit(&self, scale: Scale, start: &Hyper, evaluations: usize) -> (f64, View) {
        let warped = scale.warp(&self.losses);
        let fit = self.distances.fit(&pick(&warped.values, &self.chosen), start, evaluations);
        let volume: f64 = pick(&warped.volumes, &self.chosen).iter().sum();
        (fit.evidence + volume, View { scale, hyper: fit.hyper })
    }

    /// A few steps from a fit of fewer trials.
    fn brief(&self, view: View) -> View {
        if self.chosen.len() < FEWEST { view } else { self.fit(view.scale, &view.hyper, BETWEEN).1 }
    }

    /// From a fit of fewer trials, from the beginning, and on other scales.
    fn thorough(&self, view: View) -> View {
        if self.chosen.len() < FEWEST {
            return view;
        }
        let mut best = self.fit(view.scale, &view.hyper, AT_MILESTONE);
        let mut consider = |other: (f64, View)| {
            if other.0 > best.0 + 1e-3 {
                best = other;
            }
        };
        consider(self.fit(view.scale, &Hyper::start(view.hyper.parameters()), AT_MILESTONE));
        if self.losses.len() <= SETTLED {
            for scale in SCALES.into_iter().filter(|scale| *scale != view.scale) {
                consider(self.fit(scale, &view.hyper, ON_ANOTHER_SCALE));
            }
        }
        best.1
    }
}

fn pick(values: &[f64], chosen: &[usize]) -> Vec<f64> {
    chosen.iter().map(|&index| values[index]).collect()
}

/// At most so many trials: the best half of them, and of the others evenly many in the order of their ends.
fn subset(losses: &[f64], most: usize) -> Vec<usize> {
    if losses.len() <= most {
        return (0..losses.len()).collect();
    }
    let mut order: Vec<usize> = (0..losses.len()).collect();
    order.sort_by(|&a, &b| losses[a].total_cmp(&losses[b]));
    let (best, mut rest) = (order[..most / 2].to_vec(), order[most / 2..].to_vec());
    rest.sort_unstable();
    let wanted = most - best.len();
    let mut chosen: Vec<usize> = (0..wanted).map(|k| rest[k * rest.len() / wanted]).chain(best).collect();
    chosen.sort_unstable();
    chosen
}
