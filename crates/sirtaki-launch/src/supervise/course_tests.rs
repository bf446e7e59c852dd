use signal_hook::consts::SIGUSR1;

use super::*;

const GRACE: Duration = Duration::from_secs(10);
/// For a rank whose engine is unknown.
const UNKNOWN: (Option<Culprit>, bool) = (None, true);

const SILENCE: Duration = Duration::from_secs(30);

fn usual(ranks: usize, hosts: usize) -> Course {
    Course::new(Cast::of_ranks(ranks), hosts, GRACE, SILENCE)
}

fn trials(ranks: usize) -> Course {
    Course::new(Cast { independent: true, ..Cast::of_ranks(ranks) }, 1, GRACE, SILENCE)
}

fn killed() -> Ended {
    Ended::Signal { number: 9, out_of_memory: false }
}

fn missing(rank: usize) -> (Option<Culprit>, bool) {
    (Some(Culprit { rank, gone: true }), true)
}

#[test]
fn the_first_failure_decides_and_the_others_are_asked_then_killed_then_given_up() {
    let (mut course, start) = (usual(3, 1), Instant::now());
    assert!(course.ended(0, &Ended::Code(0), UNKNOWN, start).is_empty());
    assert_eq!(course.ended(1, &killed(), UNKNOWN, start), [Action::Look]);
    assert!(course.tick(start + NOTICING / 2).is_empty());
    assert_eq!(course.tick(start + NOTICING), [Action::Signal(SIGTERM)]);
    assert!(course.tick(start + NOTICING + GRACE / 2).is_empty());
    assert_eq!(course.tick(start + NOTICING + GRACE), [Action::Kill]);
    assert_eq!(course.tick(start + NOTICING + GRACE + CONFIRMING), [Action::GiveUp]);
    assert!(course.ended(2, &Ended::Code(1), missing(1), start + NOTICING + GRACE).is_empty());
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 1, how: killed() });
    assert_eq!(course.outcome().code(), 137);
    assert!(!course.is_over());
    (0..3).for_each(|rank| drop(course.closed(rank)));
    assert!(course.is_over());
}

#[test]
fn it_is_not_over_before_every_host_has_said_what_its_ranks_did() {
    let (mut course, start) = (usual(1, 2), Instant::now());
    course.ended(0, &killed(), UNKNOWN, start);
    (0..2).for_each(|host| course.asked(host));
    course.closed(0);
    course.answered(0);
    assert!(!course.is_over());
    course.answered(1);
    assert!(course.is_over());
}

#[test]
fn the_rank_that_others_miss_decides_however_long_its_exit_handlers_take() {
    let (mut course, start) = (usual(3, 1), Instant::now());
    assert_eq!(course.ended(0, &Ended::Code(1), missing(2), start), [Action::Look]);
    assert!(course.ended(1, &Ended::Code(1), missing(2), start).is_empty());
    assert_eq!(course.tick(start + NOTICING), [Action::Await(2)]);
    let later = start + NOTICING + LAST_WORDS / 2;
    assert!(course.tick(later).is_empty());
    assert!(course.ended(2, &Ended::Code(3), (None, true), later).is_empty());
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 2, how: Ended::Code(3) });
}

#[test]
fn a_chain_of_missing_ranks_is_followed_to_its_end() {
    let (mut course, start) = (usual(3, 1), Instant::now());
    course.ended(0, &Ended::Code(1), missing(1), start);
    course.ended(1, &Ended::Code(1), missing(2), start);
    course.ended(2, &killed(), UNKNOWN, start);
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 2, how: killed() });
}

#[test]
fn a_missed_rank_that_ended_well_or_never_ends_is_not_the_one_that_failed() {
    let first = Outcome::Failed { rank: 0, how: Ended::Code(1) };
    let (mut course, start) = (usual(2, 1), Instant::now());
    course.ended(0, &Ended::Code(1), missing(1), start);
    course.ended(1, &Ended::Code(0), UNKNOWN, start);
    assert_eq!(course.outcome(), &first);
    let mut course = usual(2, 1);
    course.ended(0, &Ended::Code(1), missing(1), start);
    course.tick(start + NOTICING);
    assert_eq!(course.tick(start + NOTICING + LAST_WORDS), [Action::Signal(SIGTERM)]);
    course.ended(1, &Ended::Signal { number: 15, out_of_memory: false }, UNKNOWN, start + NOTICING + LAST_WORDS);
    assert_eq!(course.outcome(), &first, "we asked it to end");
}

#[test]
fn a_stopped_rank_is_the_culprit_of_those_that_waited_for_it() {
    let silent = (Some(Culprit { rank: 1, gone: false }), true);
    for (how, whom, stopped) in
        [(Ended::Code(3), silent, true), (Ended::Code(3), UNKNOWN, true), (killed(), UNKNOWN, false)]
    {
        let mut course = usual(2, 1);
        course.ended(0, &how, whom, Instant::now());
        course.looked(1, true, Instant::now());
        let expected = if stopped { (1, Ended::Stopped) } else { (0, how) };
        assert_eq!(course.outcome(), &Outcome::Failed { rank: expected.0, how: expected.1 });
    }
}

#[test]
fn a_stopped_rank_that_nobody_is_left_to_miss_has_as_long_as_a_silent_one() {
    let (mut course, start) = (usual(3, 1), Instant::now());
    course.ended(0, &Ended::Code(0), UNKNOWN, start);
    assert_eq!(course.tick(start + LOOK_AGAIN), [Action::Look]);
    assert!(course.looked(2, true, start + LOOK_AGAIN).is_empty(), "rank 1 may still miss it");
    course.ended(1, &Ended::Code(0), UNKNOWN, start + 2 * LOOK_AGAIN);
    assert_eq!(course.looked(2, true, start + 3 * LOOK_AGAIN), [Action::Stands(2)]);
    assert!(course.looked(2, false, start + 4 * LOOK_AGAIN).is_empty(), "it goes on");
    let again = start + 5 * LOOK_AGAIN;
    assert!(course.looked(2, true, again).is_empty());
    assert_eq!(course.alarm(), Some(again + SILENCE));
    assert_eq!(course.tick(again + SILENCE), [Action::Look]);
    assert_eq!(course.outcome(), &Outcome::Success, "it may have gone on just now");
    course.looked(2, true, again + SILENCE);
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 2, how: Ended::Stopped });
    assert_eq!(course.tick(again + SILENCE), [Action::Signal(SIGTERM)]);
}

#[test]
fn a_stopped_rank_may_stand_for_ever_if_silence_may_last_for_ever() {
    let (mut course, start) = (Course::new(Cast::of_ranks(2), 1, GRACE, Duration::MAX), Instant::now());
    course.ended(0, &Ended::Code(0), UNKNOWN, start);
    assert!(course.looked(1, true, start).is_empty());
    assert_eq!(course.outcome(), &Outcome::Success);
}

#[test]
fn a_lost_host_is_the_culprit_of_those_that_noticed_it_first() {
    let (mut course, start) = (usual(4, 2), Instant::now());
    course.ended(0, &Ended::Code(3), (Some(Culprit { rank: 3, gone: false }), true), start);
    course.tick(start + NOTICING);
    let lost = Ended::Lost("host b: it does not answer".into());
    (2..4).for_each(|rank| drop(course.ended(rank, &lost, UNKNOWN, start + NOTICING)));
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 3, how: lost });
}

#[test]
fn a_rank_that_ends_before_it_joins_fails_the_job_as_soon_as_another_waits_for_it() {
    let (mut course, start) = (usual(2, 1), Instant::now());
    assert!(course.ended(1, &Ended::Code(0), (None, false), start).is_empty());
    assert_eq!(course.tick(start), [Action::Look]);
    assert_eq!(course.tick(start + LOOK_AGAIN), [Action::Look]);
    assert_eq!(course.outcome(), &Outcome::Success, "nobody waits yet");
    course.meets(start + LOOK_AGAIN);
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 1, how: Ended::Early });
    assert_eq!(course.tick(start + LOOK_AGAIN), [Action::Signal(SIGTERM)]);
}

#[test]
fn ranks_that_do_without_each_other_fail_alone() {
    let (mut course, start) = (trials(3), Instant::now());
    assert!(course.ended(1, &killed(), UNKNOWN, start).is_empty());
    assert_eq!((course.outcome(), course.alarm()), (&Outcome::Success, None), "the others go on");
    course.ended(0, &Ended::Code(0), UNKNOWN, start);
    course.ended(2, &Ended::Code(1), UNKNOWN, start);
    assert_eq!(course.outcome(), &Outcome::Success, "one succeeded");

    let mut course = trials(2);
    course.ended(1, &Ended::Code(7), UNKNOWN, start);
    course.ended(0, &killed(), UNKNOWN, start);
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 1, how: Ended::Code(7) }, "none succeeded");

    let mut course = trials(2);
    course.signalled(SIGINT, start);
    (0..2).for_each(|rank| drop(course.ended(rank, &killed(), UNKNOWN, start)));
    assert_eq!(course.outcome(), &Outcome::Interrupted(SIGINT));
}

#[test]
fn an_interrupt_is_polite_once() {
    let (mut course, start) = (usual(1, 1), Instant::now());
    assert_eq!(course.signalled(SIGUSR1, start), [Action::Signal(SIGUSR1)]);
    assert_eq!(course.alarm(), None);
    assert_eq!(course.signalled(SIGINT, start), [Action::Signal(SIGINT)]);
    assert_eq!(course.alarm(), Some(start + GRACE));
    assert_eq!(course.signalled(SIGINT, start), [Action::Kill]);
    assert_eq!(course.tick(start + HURRY), [Action::GiveUp]);
    course.ended(0, &killed(), UNKNOWN, start);
    assert_eq!(course.outcome().code(), 130);
}

#[test]
fn quitting_is_an_interrupt_too() {
    let (mut course, start) = (usual(1, 1), Instant::now());
    assert_eq!(course.signalled(SIGQUIT, start), [Action::Signal(SIGTERM)]);
    assert_eq!(course.outcome().code(), 131);
}

fn with_servers(ranks: usize, servers: usize, limit: u32) -> Course {
    let returns = crate::roles::Returns { workers: 0, servers: limit };
    Course::new(Cast { servers, returns, ..Cast::of_ranks(ranks) }, 1, GRACE, SILENCE)
}

#[test]
fn servers_return_a_few_times_and_are_asked_to_end_when_the_workers_are_done() {
    let (mut course, start) = (with_servers(2, 1, 1), Instant::now());
    assert!(course.ended(2, &killed(), UNKNOWN, start).is_empty());
    assert!(!course.has_ended(2), "it is about to return");
    assert_eq!(course.closed(2), [Action::Return(2)]);
    assert_eq!(course.returns_of(2), 1);
    course.ended(0, &Ended::Code(0), UNKNOWN, start);
    assert_eq!(course.tick(start), [], "one still works");
    course.ended(1, &Ended::Code(0), UNKNOWN, start);
    assert_eq!(course.tick(start), [Action::Signal(SIGTERM)]);
    course.ended(2, &Ended::Signal { number: 15, out_of_memory: false }, UNKNOWN, start);
    (0..3).for_each(|process| drop(course.closed(process)));
    assert_eq!((course.outcome(), course.is_over()), (&Outcome::Success, true));
}

#[test]
fn a_server_that_fails_too_often_fails_the_job() {
    let (mut course, start) = (with_servers(1, 2, 1), Instant::now());
    course.ended(1, &killed(), UNKNOWN, start);
    course.closed(1);
    assert_eq!(course.ended(1, &Ended::Code(3), UNKNOWN, start), [Action::Look]);
    assert_eq!(course.outcome(), &Outcome::Failed { rank: 1, how: Ended::Code(3) });
    assert_eq!(course.tick(start + NOTICING), [Action::Signal(SIGTERM)]);
}

#[test]
fn a_job_ends_with_its_coordinator_whatever_the_workers_do() {
    let cast = Cast { coordinator: true, ..Cast::of_ranks(2) };
    let (mut course, start) = (Course::new(cast, 1, GRACE, SILENCE), Instant::now());
    course.ended(0, &Ended::Code(0), UNKNOWN, start);
    course.ended(2, &Ended::Code(0), UNKNOWN, start);
    assert_eq!(course.tick(start), [Action::Signal(SIGTERM)]);
    course.ended(1, &killed(), UNKNOWN, start);
    assert_eq!(course.outcome(), &Outcome::Success);
}

#[test]
fn servers_of_an_elastic_job_end_when_its_members_have() {
    let cast = Cast { servers: 1, ..Cast::of_ranks(2) };
    let (mut course, start) = (Course::new(cast, 1, GRACE, SILENCE).of_members(), Instant::now());
    course.began(0);
    course.left(0);
    course.closed(0);
    assert_eq!((course.alarm(), course.is_over()), (None, false), "others may come");
    course.release(start);
    assert_eq!(course.tick(start), [Action::Signal(SIGTERM)]);
    course.ended(2, &Ended::Code(0), UNKNOWN, start);
    course.closed(2);
    assert!(course.is_over());
}
