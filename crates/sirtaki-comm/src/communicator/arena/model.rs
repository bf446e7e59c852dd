//! Models of the protocols in shared memory, over the production code: loom tries every order of events that a few
//! preemptions can bring about, and finds ranks that hold the same bytes at the same time.

use std::{ops::Range, sync::Arc, time::Duration};

use loom::{model::Builder, thread};

use super::{
    chain,
    enter::Visit,
    layout::{Layout, PIECES},
    memory::Memory,
    participant::{Count, Participant},
    room::Room,
    windows,
};
use crate::{
    CommError, DType, Group, Plan, Rank, Reduction, Stopper,
    signature::{Kind, Signature},
};

const LINE: usize = chain::LINE;

/// The ranks of a room, seen from each. Regions and rings have few bytes, so that these are soon used again.
pub(crate) fn rooms(groups: &[Group], region: usize, ring: usize) -> Vec<Arc<Room>> {
    let memory = Arc::new(Memory::model(Layout { ranks: groups.len(), region, ring }));
    let room = |group: &Group| Room::new(memory.clone(), group.clone(), Duration::MAX, Stopper::new());
    groups.iter().map(|group| Arc::new(room(group).expect("ranks are threads of this process"))).collect()
}

pub(crate) fn groups(ranks: usize) -> Vec<Group> {
    (0..ranks).map(|rank| Group::local(rank, ranks)).collect()
}

/// Runs `work` as every rank, in every order.
fn model(ranks: usize, region: usize, preemptions: usize, work: fn(&mut Participant)) {
    let groups = groups(ranks);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    // The numbers of operations and steps begin again at zero within the model.
    let count = Count { operations: u32::MAX, steps: u32::MAX - 1 };
    builder.check(move || {
        let begin = |room: Arc<Room>| Participant::new(room, count);
        let mut all: Vec<Participant> = rooms(&groups, region, LINE).into_iter().map(begin).collect();
        let mut first = all.remove(0);
        let others: Vec<_> = all.into_iter().map(|mut rank| thread::spawn(move || work(&mut rank))).collect();
        work(&mut first);
        others.into_iter().for_each(|other| other.join().expect("no rank panics"));
    });
}

fn operate(me: &mut Participant, work: impl FnOnce(&mut Visit<'_>) -> Result<(), CommError>) {
    me.operate(Signature::new(Kind::Barrier, DType::U8, 0), &[], work).expect("the operation is carried out");
}

fn place(me: &Participant) -> (Rank, usize) {
    (me.room.group.rank(), me.room.group.size())
}

fn plan(size: usize) -> Plan {
    Plan::new(DType::U8, Reduction::SUM, size)
}

/// `size` parts of the same length.
fn parts(size: usize, length: usize) -> Vec<Range<usize>> {
    (0..size).map(|rank| rank * length..(rank + 1) * length).collect()
}

/// What all ranks bring together, if rank `r` brings `r + 1`.
fn sum(size: usize) -> u8 {
    (size * (size + 1) / 2) as u8
}

fn chain_of(windows: usize, me: &mut Participant) {
    let (rank, size) = place(me);
    let mut data = vec![rank as u8 + 1; windows * size * LINE];
    operate(me, |visit| chain::all_reduce(visit, &mut data, &plan(size), None));
    assert!(data.iter().all(|&byte| byte == sum(size)));
}

#[test]
fn places_of_a_chain_are_used_again_when_everybody_has_copied_out() {
    model(2, PIECES * LINE, 2, |me| chain_of(3, me));
}

#[test]
fn two_chains_follow_each_other() {
    model(2, PIECES * LINE, 2, |me| (0..2).for_each(|_| chain_of(1, me)));
}

#[test]
fn results_of_a_chain_are_read_by_several_ranks_at_once() {
    model(3, PIECES * LINE, 1, |me| chain_of(1, me));
}

#[test]
fn notes_of_one_parity_are_written_when_everybody_has_read_them() {
    model(2, LINE, 3, |me| {
        let (rank, size) = place(me);
        for round in 0..3 {
            let mut data = [rank as u8 + 1 + round; 40];
            let call = Signature::new(Kind::AllReduce, DType::U8, data.len());
            me.reduce_noted(call, &mut data, &plan(size)).expect("the operation is carried out");
            assert_eq!(data, [sum(size) + 2 * round; 40]);
        }
    });
}

/// Half a region has a line for every rank.
const HALVES: usize = 2 * 2 * LINE;

#[test]
fn broadcasts_use_halves_alternately() {
    model(2, HALVES, 2, |me| {
        let mut data = vec![1 - place(me).0 as u8; 3 * HALVES / 2];
        operate(me, |visit| windows::broadcast(visit, &mut data, 0));
        assert!(data.iter().all(|&byte| byte == 1));
    });
}

#[test]
fn gathers_use_halves_alternately() {
    model(2, HALVES, 2, |me| {
        let (rank, size) = place(me);
        let parts = parts(size, 3 * HALVES / 2);
        let mut data = vec![rank as u8; if rank == 0 { parts[1].end } else { parts[1].len() }];
        operate(me, |visit| windows::gather(visit, &mut data, &parts, 0));
        assert!(rank == 1 || data[parts[1].clone()].iter().all(|&byte| byte == 1));
    });
}

#[test]
fn scatters_use_halves_alternately() {
    model(2, HALVES, 2, |me| {
        let (rank, size) = place(me);
        let parts = parts(size, 3 * LINE);
        let mut data = vec![1 - rank as u8; if rank == 0 { parts[1].end } else { parts[1].len() }];
        operate(me, |visit| windows::scatter(visit, &mut data, &parts, 0));
        assert!(data.iter().all(|&byte| byte == 1));
    });
}

#[test]
fn all_gathers_use_halves_alternately() {
    model(2, HALVES, 2, |me| {
        let (rank, size) = place(me);
        let parts = parts(size, 3 * HALVES / 2);
        let mut all = vec![0; parts[1].end];
        all[parts[rank].clone()].fill(7);
        operate(me, |visit| windows::all_gather(visit, &mut all, &parts));
        assert!(all.iter().all(|&byte| byte == 7));
    });
}

#[test]
fn exchanges_of_all_with_all_use_halves_alternately() {
    model(2, HALVES, 2, |me| {
        let (rank, size) = place(me);
        let parts = parts(size, 3 * LINE);
        let (out, mut into) = (vec![rank as u8; parts[1].end], vec![9; parts[1].end]);
        operate(me, |visit| windows::all_to_all(visit, (&out, &parts), (&mut into, &parts), 3 * LINE));
        assert!((0..size).all(|from| into[parts[from].clone()].iter().all(|&byte| byte == from as u8)));
    });
}

#[test]
fn reduced_parts_use_halves_alternately() {
    model(2, HALVES, 2, |me| {
        let (rank, size) = place(me);
        let parts = parts(size, 3 * LINE);
        let mut all = vec![rank as u8 + 1; parts[1].end];
        operate(me, |visit| windows::reduce_scatter(visit, &mut all, &parts, &plan(size)));
        assert!(all[parts[rank].clone()].iter().all(|&byte| byte == sum(size)));
    });
}

#[test]
fn wide_reductions_use_halves_alternately() {
    for root in [None, Some(1)] {
        let work: fn(&mut Participant) = if root.is_none() { |me| widely(None, me) } else { |me| widely(Some(1), me) };
        model(2, HALVES, 2, work);
    }
}

fn widely(root: Option<Rank>, me: &mut Participant) {
    let (rank, size) = place(me);
    let mut data = vec![rank as u8 + 1; 3 * size * LINE];
    operate(me, |visit| windows::reduce_widely(visit, &mut data, &plan(size), root));
    assert!(root.is_some_and(|root| root != rank) || data.iter().all(|&byte| byte == sum(size)));
}
