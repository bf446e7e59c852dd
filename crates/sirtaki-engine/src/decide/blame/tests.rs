use super::*;

const LIMIT: Duration = Duration::from_secs(8);

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn blame(rank: Rank) -> Blame {
    Blame::new(Group::local(rank, 4), LIMIT)
}

fn timeout(rank: Rank) -> Alarm {
    Alarm::Timeout { rank, who: format!("rank {rank}"), operation: "all_reduce".into(), waited: LIMIT }
}

/// Looks with these signs by rank, where nobody knows how ranks ended.
fn look(blame: &mut Blame, now: f64, signs: [Sign; 4]) -> Act {
    let view =
        View { now: seconds(now), waiting: true, sign: &|rank| signs[rank].clone(), ending: &|_| Ending::Unknown };
    blame.look(&view)
}

fn quiet(of: [f64; 4]) -> [Sign; 4] {
    of.map(|quiet| Sign::Quiet(seconds(quiet)))
}

fn blamed(act: &Act) -> Option<Rank> {
    match act {
        Act::Over(alarm) => sirtaki_comm::CommError::from(alarm.clone()).rank(),
        _ => None,
    }
}

#[test]
fn rank_0_believes_its_eyes_more_than_complaints() {
    let mut judge = blame(0);
    assert_eq!(look(&mut judge, 0.0, quiet([0.0, 0.1, 7.9, 0.1])), Act::Wait);
    // A rank of another host complains about one that is itself waiting for the silent one.
    judge.complain(timeout(3), seconds(0.0));
    assert_eq!(blamed(&look(&mut judge, 0.0, quiet([0.0, 0.1, 7.9, 0.1]))), Some(2));
    assert!(judge.is_over());
    let mut judge = blame(0);
    judge.complain(timeout(3), seconds(0.0));
    assert_eq!(blamed(&look(&mut judge, 0.0, quiet([0.0; 4]))), Some(3));
    let mut judge = blame(0);
    assert_eq!(blamed(&look(&mut judge, 9.0, quiet([0.0, 8.1, 0.0, 0.0]))), Some(1));
}

#[test]
fn the_time_in_which_this_rank_stood_still_is_not_the_silence_of_others() {
    for (rank, silent) in [(0, 1), (1, 0)] {
        let mut judge = blame(rank);
        assert_eq!(look(&mut judge, 0.0, quiet([0.1; 4])), Act::Wait);
        assert_eq!(look(&mut judge, 0.1, quiet([0.2; 4])), Act::Wait);
        let mut signs = [0.1; 4];
        signs[silent] = 60.2;
        assert_eq!(look(&mut judge, 60.1, quiet(signs)), Act::Wait, "everybody was stopped");
        for tenth in 1..=80 {
            signs[silent] = 60.2 + f64::from(tenth) / 10.0;
            assert_eq!(look(&mut judge, 60.1 + f64::from(tenth) / 10.0, quiet(signs)), Act::Wait);
        }
        signs[silent] = 68.4;
        assert_eq!(blamed(&look(&mut judge, 68.3, quiet(signs))), Some(silent), "it did not go on");
    }
}

#[test]
fn rank_0_does_not_blame_itself_at_once() {
    let mut judge = blame(0);
    judge.complain(timeout(0), seconds(1.0));
    assert_eq!(look(&mut judge, 1.5, quiet([0.0; 4])), Act::Wait);
    assert_eq!(blamed(&look(&mut judge, 2.1, quiet([0.0; 4]))), Some(0));
}

#[test]
fn how_a_rank_ended_is_waited_for() {
    let signs = || [Sign::Left, Sign::Left, Sign::Closed("it closed the connection".into()), Sign::Left];
    let mut judge = blame(0);
    assert_eq!(look(&mut judge, 1.0, signs()), Act::Wait);
    let known = View {
        now: seconds(1.1),
        waiting: false,
        sign: &|rank| signs()[rank].clone(),
        ending: &|rank| if rank == 2 { Ending::Known("was killed by SIGKILL".into()) } else { Ending::Unknown },
    };
    let Act::Over(Alarm::PeerLost { rank: 2, how, .. }) = judge.look(&known) else { panic!("no reason") };
    assert_eq!(how, "it was killed by SIGKILL");
    let mut judge = blame(0);
    assert_eq!(look(&mut judge, 1.0, signs()), Act::Wait);
    assert_eq!(blamed(&look(&mut judge, 1.31, signs())), Some(2));
}

#[test]
fn others_take_the_word_of_rank_0() {
    let mut other = blame(1);
    other.complain(timeout(0), seconds(1.0));
    assert_eq!(look(&mut other, 1.0, quiet([0.0; 4])), Act::Tell(timeout(0)));
    assert_eq!(look(&mut other, 5.0, quiet([0.1; 4])), Act::Wait);
    other.hear(timeout(2));
    // Although rank 0 is gone by now.
    assert_eq!(look(&mut other, 5.1, [0; 4].map(|_| Sign::Closed(String::new()))), Act::Over(timeout(2)));
}

#[test]
fn those_cut_off_from_rank_0_say_the_same() {
    let unreachable = || [0; 4].map(|_| Sign::Unreachable("no route".into(), seconds(8.1)));
    let (mut one, mut two) = (blame(1), blame(2));
    two.complain(timeout(3), seconds(1.0));
    assert!(matches!(look(&mut two, 1.0, quiet([4.0; 4])), Act::Tell(_)));
    let first = look(&mut one, 6.0, unreachable());
    assert_eq!(blamed(&first), Some(0));
    assert_eq!(first, look(&mut two, 2.0, quiet([8.01; 4])));
}

#[test]
fn a_rank_0_that_left_is_missed_only_when_needed() {
    let mut other = blame(1);
    let left = || [0; 4].map(|_| Sign::Left);
    assert_eq!(look(&mut other, 1.0, left()), Act::Wait);
    other.complain(timeout(0), seconds(1.0));
    assert!(matches!(look(&mut other, 2.0, left()), Act::Tell(_)));
    assert_eq!(blamed(&look(&mut other, 2.5, left())), Some(0));
}
