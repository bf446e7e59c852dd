//! What the comparison of PyTorch training shows, as tables and goals.

use std::fmt::Write;

use crate::{
    crew::System,
    goals::Goal,
    report::{Verdict, time},
    torch::{Course, Workload},
};

/// How many times slower than sirtaki's Horovod's smallest all-reduce has to be.
const OVER_HOROVOD: f64 = 5.0;

/// The versions of PyTorch, in order.
fn versions(courses: &[Course]) -> Vec<&str> {
    let mut versions: Vec<&str> = courses.iter().map(|course| course.torch.as_str()).collect();
    versions.dedup();
    versions
}

/// What one system reached with one PyTorch.
fn find<'a>(courses: &'a [Course], torch: &str, system: System) -> Option<&'a Course> {
    courses.iter().find(|course| course.torch == torch && course.system == system)
}

fn ratio(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.2}×"))
}

/// One line per system and version of PyTorch.
pub fn table(work: &Workload, courses: &[Course]) -> String {
    let heads = [work.unit, "÷ DDP", "÷ Horovod", "of strangers"];
    let mut text = format!("{:<40}", work.about);
    heads.iter().for_each(|head| {
        let _ = write!(text, " {head:>12}");
    });
    for torch in versions(courses) {
        let _ = write!(text, "\n PyTorch {torch}");
        for course in courses.iter().filter(|course| course.torch == torch) {
            let over = |system| find(courses, torch, system).map(|other| course.over(other));
            let share = over(System::Strangers).map_or("-".into(), |share| format!("{:.1} %", 100.0 * share));
            let digits = usize::from(course.middle() < 100.0);
            let (name, rate) = (course.system.name(), course.middle());
            let (ddp, horovod) = (ratio(over(System::Ddp)), ratio(over(System::Horovod)));
            let _ = write!(text, "\n  {name:<38} {rate:>12.digits$} {ddp:>12} {horovod:>12} {share:>12}");
        }
    }
    text
}

/// The smallest all-reduce, one line per system and version of PyTorch; ratios are the times of others divided by this
/// one's.
pub fn small_table(courses: &[Course]) -> String {
    let mut text =
        format!("{:<40} {:>12} {:>12} {:>12} {:>12}", "all-reduce of 4 B", "median", "least", "DDP ÷", "Horovod ÷");
    for torch in versions(courses) {
        let _ = write!(text, "\n PyTorch {torch}");
        for course in courses.iter().filter(|course| course.torch == torch) {
            let over = |system| ratio(find(courses, torch, system).map(|other| other.over(course)));
            let (median, least) = (time(course.middle()), time(course.least));
            let (name, ddp, horovod) = (course.system.name(), over(System::Ddp), over(System::Horovod));
            let _ = write!(text, "\n  {name:<38} {median:>12} {least:>12} {ddp:>12} {horovod:>12}");
        }
    }
    text
}

/// Whether sirtaki is fast enough compared with DDP and close enough to strangers.
pub fn goals(work: &Workload, courses: &[Course]) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for course in courses.iter().filter(|course| course.system.is_ours()) {
        let what = format!("{}, {}, PyTorch {}", work.name, course.system.name(), course.torch);
        if let Some(ddp) = find(courses, &course.torch, System::Ddp) {
            let (ratio, goal) = (course.over(ddp), Goal(work.over_ddp));
            let text = format!("{what}, ÷ DDP over Gloo: {ratio:.2}, to be at least {:.2}", goal.0);
            verdicts.push(Verdict { reached: goal.is_reached(ratio), text });
        }
        let strangers = find(courses, &course.torch, System::Strangers);
        if let (Some(least), Some(strangers)) = (work.efficiency, strangers) {
            let share = course.over(strangers);
            let text = format!("{what}, of strangers: {:.1} %, to be at least {:.0} %", 100.0 * share, 100.0 * least);
            verdicts.push(Verdict { reached: share >= least, text });
        }
    }
    verdicts
}

/// Whether the smallest all-reduce is fast enough compared with Horovod's.
pub fn small_goals(courses: &[Course]) -> Vec<Verdict> {
    let ours = courses.iter().filter(|course| course.system == System::Optimizer);
    let verdict = |course: &Course| {
        let ratio = find(courses, &course.torch, System::Horovod)?.over(course);
        let text = format!(
            "4 B, PyTorch {}, Horovod's time ÷ sirtaki's: {ratio:.1}, to be at least {OVER_HOROVOD:.1}",
            course.torch
        );
        Some(Verdict { reached: Goal(OVER_HOROVOD).is_reached(ratio), text })
    };
    ours.filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::WORKS;

    fn course(system: System, torch: &str, figure: f64) -> Course {
        Course { system, torch: torch.into(), rounds: vec![figure], least: figure }
    }

    #[test]
    fn everybody_is_compared_within_one_pytorch() {
        let courses = [
            course(System::Strangers, "2.15", 100.0),
            course(System::Parallel, "2.15", 99.0),
            course(System::Ddp, "2.15", 110.0),
            course(System::Optimizer, "2.0", 10.0),
            course(System::Ddp, "2.0", 5.0),
        ];
        let reached: Vec<bool> = goals(&WORKS[0], &courses).iter().map(|verdict| verdict.reached).collect();
        assert_eq!(reached, [false, true, true]);
        let table = table(&WORKS[0], &courses);
        assert_eq!(table.lines().count(), 1 + 2 + courses.len(), "{table}");
        assert!(table.contains("99.0 %") && table.contains("2.00×"), "{table}");
    }

    #[test]
    fn a_shorter_time_is_the_better_one() {
        let courses = [course(System::Optimizer, "2.0", 10.0), course(System::Horovod, "2.0", 60.0)];
        let verdicts = small_goals(&courses);
        assert!(verdicts.len() == 1 && verdicts[0].reached, "{verdicts:?}");
        assert!(small_table(&courses).contains("6.00×"));
    }
}
