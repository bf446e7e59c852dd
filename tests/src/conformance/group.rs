//! Value checks of groups inside a group.

use std::thread;

use sirtaki_comm::{Communicator, Reduction};

/// The sum over the group of a value per rank.
fn total(comm: &mut dyn Communicator, value: i64) -> i64 {
    let mut data = vec![value; 3];
    comm.all_reduce((&mut data).into(), Reduction::SUM).unwrap();
    assert!(data.iter().all(|x| *x == data[0]));
    data[0]
}

/// Ranks of one colour make a group in their order; those without a colour take no part; groups can be split again.
pub fn split_into_colours(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let world: Vec<usize> = (0..size).map(|rank| comm.group().world_rank(rank)).collect();
    let colour = |rank: usize| (rank % 3 != 2).then_some(rank as u64 % 3 + u64::MAX / 2);
    let part = comm.split(colour(rank)).unwrap();
    assert_eq!(part.is_some(), colour(rank).is_some());
    if let Some(mut part) = part {
        let members: Vec<usize> = (0..size).filter(|&other| colour(other) == colour(rank)).collect();
        let group = part.group().clone();
        assert_eq!(group.size(), members.len());
        assert_eq!(members[group.rank()], rank);
        for (inner, &outer) in members.iter().enumerate() {
            assert_eq!(group.world_rank(inner), world[outer], "members keep their rank in the job");
        }
        let sum = members.iter().map(|&member| member as i64 + 1).sum::<i64>();
        assert_eq!(total(part.as_mut(), rank as i64 + 1), sum);
        let mut alone = part.split(Some(rank as u64)).unwrap().unwrap();
        assert_eq!(alone.group().size(), 1);
        assert_eq!(total(alone.as_mut(), 17), 17);
        assert_eq!(total(part.as_mut(), 1), members.len() as i64);
    }
    assert!(comm.split(None).unwrap().is_none());
    assert_eq!(total(comm, 1), size as i64, "the parent still works");
}

/// A group and its parent work at the same time from two threads.
pub fn split_used_concurrently(comm: &mut dyn Communicator) {
    let (rank, size) = (comm.group().rank(), comm.group().size());
    let mut part = comm.split(Some(rank as u64 % 2)).unwrap().unwrap();
    let mut same = comm.split(Some(0)).unwrap().unwrap();
    let of_colour = (0..size).filter(|other| other % 2 == rank % 2).count() as i64;
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..40).for_each(|i| assert_eq!(total(part.as_mut(), i), i * of_colour));
        });
        scope.spawn(move || {
            (0..40).for_each(|i| assert_eq!(total(same.as_mut(), i + 1), (i + 1) * size as i64));
        });
        (0..40).for_each(|i| assert_eq!(total(comm, i + 2), (i + 2) * size as i64));
    });
}
