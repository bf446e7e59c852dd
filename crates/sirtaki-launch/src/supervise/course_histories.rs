//! Random histories of jobs with every mixture of roles.

use proptest::prelude::*;

use super::{
    super::outcome::{Action, Outcome},
    *,
};
use crate::roles::Returns;

const GRACE: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(30);

/// What may happen to the job; numbers choose among the processes there are.
#[derive(Debug, Clone)]
enum Happening {
    /// A process that runs ends by itself.
    Ends(usize, Ended),
    /// The output of one that has ended is complete.
    Closes(usize),
    /// A host is lost with everything on it.
    Loses(usize),
    /// A process is seen to be stopped, or to run.
    Looked(usize, bool),
    Signalled(i32),
    Passes(u64),
}

fn happening() -> impl Strategy<Value = Happening> {
    let how = prop_oneof![
        3 => Just(Ended::Code(0)),
        3 => Just(Ended::Code(3)),
        2 => Just(Ended::Signal { number: 9, out_of_memory: false }),
        1 => Just(Ended::NotStarted { reason: String::new(), hint: String::new() }),
    ];
    prop_oneof![
        8 => (0..16usize, how).prop_map(|(process, how)| Happening::Ends(process, how)),
        8 => (0..16usize).prop_map(Happening::Closes),
        1 => (0..2usize).prop_map(Happening::Loses),
        2 => (0..16usize, any::<bool>()).prop_map(|(process, stopped)| Happening::Looked(process, stopped)),
        1 => prop_oneof![Just(SIGINT), Just(SIGTERM)].prop_map(Happening::Signalled),
        4 => (0..20_000u64).prop_map(Happening::Passes),
    ]
}

fn cast() -> impl Strategy<Value = Cast> {
    let (counts, switches) = ((1..4usize, 0..3usize), (any::<bool>(), any::<bool>()));
    (counts, switches, 0..3u32, 0..3u32).prop_map(|((ranks, servers), (coordinator, independent), workers, limit)| {
        Cast { ranks, servers, coordinator, independent, returns: Returns { workers, servers: limit } }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Runs,
    Ended,
    Closed,
}

/// The world outside: what really runs, and what each process has come to.
struct Outside {
    cast: Cast,
    course: Course,
    now: Instant,
    processes: Vec<Process>,
    lost: [bool; 2],
    /// How each process ended last.
    how: Vec<Option<Ended>>,
    returned: Vec<u32>,
    /// Whether processes were asked to end or killed, and whether somebody wanted that.
    asked: bool,
    interrupted: bool,
}

impl Outside {
    fn new(cast: Cast) -> Self {
        let count = cast.processes();
        Self {
            cast,
            course: Course::new(cast, 2, GRACE, SILENCE),
            now: Instant::now(),
            processes: vec![Process::Runs; count],
            lost: [false; 2],
            how: vec![None; count],
            returned: vec![0; count],
            asked: false,
            interrupted: false,
        }
    }

    fn host_of(&self, process: usize) -> usize {
        process % 2
    }

    fn pick(&self, state: Process, choice: usize) -> Option<usize> {
        let all: Vec<usize> = (0..self.processes.len()).filter(|&process| self.processes[process] == state).collect();
        (!all.is_empty()).then(|| all[choice % all.len()])
    }

    fn act(&mut self, actions: Vec<Action>) -> Result<(), TestCaseError> {
        for action in actions {
            match action {
                Action::Return(process) => {
                    prop_assert!(!self.asked && !self.interrupted, "nobody returns to a job that ends");
                    prop_assert_eq!(self.processes[process], Process::Closed);
                    prop_assert!(!self.lost[self.host_of(process)], "its host is gone");
                    self.returned[process] += 1;
                    prop_assert!(self.returned[process] <= self.cast.returns_of(process), "it returned too often");
                    self.processes[process] = Process::Runs;
                }
                Action::Kill | Action::GiveUp => {
                    self.asked = true;
                    while let Some(process) = self.pick(Process::Runs, 0) {
                        self.ends(process, Ended::Signal { number: 9, out_of_memory: false })?;
                    }
                }
                Action::Signal(_) => self.asked = true,
                Action::Look | Action::Await(_) | Action::Stands(_) => {}
            }
        }
        Ok(())
    }

    fn ends(&mut self, process: usize, how: Ended) -> Result<(), TestCaseError> {
        self.processes[process] = Process::Ended;
        let actions = self.course.ended(process, &how, (None, true), self.now);
        self.how[process] = Some(how);
        self.act(actions)
    }

    fn closes(&mut self, process: usize) -> Result<(), TestCaseError> {
        self.processes[process] = Process::Closed;
        let actions = self.course.closed(process);
        self.act(actions)
    }

    fn happens(&mut self, what: Happening) -> Result<(), TestCaseError> {
        match what {
            Happening::Ends(choice, how) => self.pick(Process::Runs, choice).map_or(Ok(()), |at| self.ends(at, how)),
            Happening::Closes(choice) => self.pick(Process::Ended, choice).map_or(Ok(()), |at| self.closes(at)),
            Happening::Loses(host) => self.loses(host),
            Happening::Looked(choice, stopped) => {
                let Some(process) = self.pick(Process::Runs, choice) else { return Ok(()) };
                let actions = self.course.looked(process, stopped, self.now);
                self.act(actions)
            }
            Happening::Signalled(signal) => {
                self.interrupted = true;
                let actions = self.course.signalled(signal, self.now);
                self.act(actions)
            }
            Happening::Passes(milliseconds) => {
                self.now += Duration::from_millis(milliseconds);
                let actions = self.course.tick(self.now);
                self.act(actions)
            }
        }
    }

    fn loses(&mut self, host: usize) -> Result<(), TestCaseError> {
        self.lost[host] = true;
        for process in (0..self.processes.len()).filter(|process| process % 2 == host) {
            if !self.course.has_ended(process) {
                self.ends(process, Ended::Lost("host".into()))?;
            }
            self.closes(process)?;
        }
        Ok(())
    }

    /// Those for whom the job waits end well, the others when they are asked to; the job must come to its end.
    fn settles(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..100 {
            if self.course.is_over() {
                return Ok(());
            }
            let runs = |process: &usize| self.processes[*process] == Process::Runs;
            let ending: Vec<usize> = (0..self.processes.len())
                .filter(runs)
                .filter(|&process| self.asked || self.cast.is_awaited(process))
                .collect();
            ending.into_iter().try_for_each(|process| self.ends(process, Ended::Code(0)))?;
            while let Some(process) = self.pick(Process::Ended, 0) {
                self.closes(process)?;
            }
            self.happens(Happening::Passes(1_000))?;
        }
        prop_assert!(false, "the job does not end: {:?}", self.course);
        Ok(())
    }

    /// What the outcome says is what happened.
    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert!(self.processes.iter().all(|state| *state == Process::Closed), "something is left");
        let awaited: Vec<usize> = (0..self.processes.len()).filter(|&at| self.cast.is_awaited(at)).collect();
        let ended_well = |process: &usize| self.how[*process].as_ref().is_some_and(Ended::is_success);
        let is_trial = |process: &usize| self.cast.role(*process) == Role::Trial;
        match self.course.outcome() {
            Outcome::Success if awaited.iter().all(is_trial) => prop_assert!(awaited.iter().any(ended_well)),
            Outcome::Success => prop_assert!(awaited.iter().all(ended_well), "{:?}", self.how),
            Outcome::Interrupted(_) => prop_assert!(self.interrupted),
            Outcome::Failed { how: Ended::Stopped, .. } => {}
            Outcome::Failed { rank, how } => {
                prop_assert_eq!(self.how[*rank].as_ref(), Some(how));
                prop_assert!(!how.is_success());
                let returned = self.returned[*rank];
                prop_assert_ne!(self.cast.verdict(*rank, how, returned), Verdict::Returns);
            }
            Outcome::Stuck(reason) => prop_assert!(false, "{reason}"),
        }
        Ok(())
    }
}

proptest! {
    /// `PROPTEST_CASES=100000` for the named step.
    #[test]
    fn whatever_happens_every_role_keeps_its_rules(
        cast in cast(), happenings in prop::collection::vec(happening(), 1..60),
    ) {
        let mut outside = Outside::new(cast);
        for what in happenings {
            outside.happens(what)?;
        }
        outside.settles()?;
        outside.check()?;
    }
}
