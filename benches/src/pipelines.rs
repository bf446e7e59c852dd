//! PyTorch's own pipeline of two stages over sirtaki and over Gloo, as part of `cargo xtask bench torch`.
//!
//! Stages compute next to nothing, so that the exchange of activations and gradients is what takes time.

use std::fmt::Write;

use crate::{
    BenchError,
    crew::System,
    goals::Goal,
    peer::{median, slowest},
    report::{Verdict, time},
    torch::{Course, Member, courses},
};

/// Steps that do not count, in which stages tell each other their shapes.
const WARM_UP: usize = 3;

/// A pipeline by the size of its activations.
#[derive(Debug, Clone, Copy)]
pub struct Pipeline {
    /// Its name in torch_peer.py.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Steps in a turn.
    steps: usize,
    /// The goal, as a multiple of the speed over Gloo.
    over_gloo: f64,
}

/// All that are measured.
pub const PIPELINES: [Pipeline; 2] = [
    Pipeline { name: "pipeline.4096", about: "1F1B, activations of 4 KiB", steps: 20, over_gloo: 1.3 },
    Pipeline { name: "pipeline.1048576", about: "1F1B, activations of 1 MiB", steps: 10, over_gloo: 1.05 },
];

impl Pipeline {
    /// Runs it in turns wherever PyTorch has pipelines; microseconds of a step, by round.
    pub fn run(&self, rounds: usize, members: &mut [Member]) -> Result<Vec<Course>, BenchError> {
        let mut members: Vec<&mut Member> = members.iter_mut().filter(|member| member.has_pipelines()).collect();
        for member in &mut members {
            member.peer.perform(self.name, WARM_UP)?;
        }
        let mut courses = courses(members.iter().map(|member| &**member));
        for _ in 0..rounds {
            for (member, course) in members.iter_mut().zip(&mut courses) {
                let times = slowest(&member.peer.perform(self.name, self.steps)?);
                course.least = times.iter().copied().fold(course.least, f64::min);
                course.rounds.push(median(&times));
            }
        }
        Ok(courses)
    }

    /// One line per back end; the ratio is Gloo's time divided by this one's.
    pub fn table(&self, courses: &[Course]) -> String {
        let mut text = format!("{:<40} {:>12} {:>12} {:>12}", self.about, "a step", "least", "Gloo ÷");
        for course in courses {
            let (step, least) = (time(course.middle()), time(course.least));
            let ratio = over_gloo(courses, course).map_or("-".into(), |ratio| format!("{ratio:.2}×"));
            let name = format!("{}, PyTorch {}", back_end(course.system), course.torch);
            let _ = write!(text, "\n  {name:<38} {step:>12} {least:>12} {ratio:>12}");
        }
        text
    }

    /// Whether sirtaki is fast enough.
    pub fn goals(&self, courses: &[Course]) -> Vec<Verdict> {
        let ours = courses.iter().filter(|course| course.system == System::DdpOverUs);
        let verdict = |course: &Course| {
            let (ratio, goal) = (over_gloo(courses, course)?, Goal(self.over_gloo));
            let text = format!(
                "{}, PyTorch {}, Gloo's time ÷ sirtaki's: {ratio:.2}, to be at least {:.2}",
                self.about, course.torch, goal.0
            );
            Some(Verdict { reached: goal.is_reached(ratio), text })
        };
        ours.filter_map(verdict).collect()
    }
}

/// The systems are those that train with DDP; only their back ends matter here.
fn back_end(system: System) -> &'static str {
    if system == System::DdpOverUs { "over sirtaki" } else { "over Gloo" }
}

fn over_gloo(courses: &[Course], course: &Course) -> Option<f64> {
    let gloo = courses.iter().find(|other| other.system == System::Ddp && other.torch == course.torch)?;
    Some(gloo.over(course))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_step_is_the_better_one() {
        let course = |system, step| Course { system, torch: "2.15".into(), rounds: vec![step], least: step };
        let reached = |ours, gloo| {
            let courses = [course(System::DdpOverUs, ours), course(System::Ddp, gloo)];
            assert!(PIPELINES[0].table(&courses).contains("over Gloo, PyTorch 2.15"));
            let verdicts = PIPELINES[0].goals(&courses);
            assert_eq!(verdicts.len(), 1);
            verdicts[0].reached
        };
        assert!(reached(100.0, 130.0) && !reached(100.0, 129.0));
    }
}
