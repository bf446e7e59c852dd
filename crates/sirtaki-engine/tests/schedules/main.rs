//! Random schedules under a simulated clock: whatever the order in which ranks ask, messages arrive and threads run,
//! all ranks run the same batches in the same order, nothing fused is too large, and every request ends exactly once,
//! everywhere in the same way.
//!
//! The simulation has the real parts ([`sirtaki_engine::decide::agree::Table`], [`sirtaki_engine::decide::order::Member`]) and models of
//! the rest: queues for links, ranks that are blocked while they are in a collective, and time that passes only when
//! nothing else can happen.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

mod failures;
mod world;

use failures::Harm;
use proptest::{prelude::*, test_runner::Config};
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::decide::request::{Bundle, Operation, Request};
use world::{Act, Rank, World};

/// A small generator, so that a whole world comes from one seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % below.max(1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        (1..items.len()).rev().for_each(|at| items.swap(at, self.roll(at + 1)));
    }
}

fn request(dice: &mut Dice, name: String, size: usize) -> Request {
    let operation = match dice.roll(12) {
        0 => Operation::Broadcast { root: dice.roll(size) },
        1 => Operation::Barrier,
        2 => Operation::ReduceScatter(Reduction::SUM),
        3 => Operation::AllReduce(Reduction::AVERAGE),
        _ => Operation::AllReduce(Reduction::SUM),
    };
    let dtype = if dice.roll(5) == 0 { DType::F64 } else { DType::F32 };
    Request::new(name, operation, dtype, &[dice.roll(150)])
}

/// One step's requests: what the ranks submit together, the same for all of them.
fn step_of(dice: &mut Dice, step: usize, plain: bool, size: usize) -> Vec<Vec<Request>> {
    let count = 1 + dice.roll(8);
    let mut tensors: Vec<Vec<Request>> = (0..count)
        .map(|index| {
            let mut request = request(dice, format!("t{index}"), size);
            if plain {
                request.operation = Operation::AllReduce(Reduction::SUM);
            }
            vec![request]
        })
        .collect();
    if !plain && dice.roll(3) == 0 {
        let members = 2 + dice.roll(2);
        let bundle = Bundle { name: format!("bundle{step}"), size: members };
        let part =
            |index| Request { bundle: Some(bundle.clone()), ..request(dice, format!("{}.{index}", bundle.name), size) };
        tensors.push((0..members).map(part).collect());
    }
    tensors
}

/// Programs for all ranks: steps of tensors, shuffled per rank, some steps repeated, with waits that cannot be circular.
fn scripts(dice: &mut Dice, size: usize, mismatches: bool) -> Vec<Vec<Act>> {
    let mut scripts = vec![Vec::new(); size];
    let mut step = 0;
    for _ in 0..1 + dice.roll(4) {
        let plain = dice.roll(2) == 0;
        let tensors = step_of(dice, step, plain, size);
        for _ in 0..1 + dice.roll(6) {
            step += 1;
            let wrong = (mismatches && dice.roll(5) == 0).then(|| (dice.roll(size), dice.roll(tensors.len())));
            for (rank, script) in scripts.iter_mut().enumerate() {
                let mut order: Vec<usize> = (0..tensors.len()).collect();
                dice.shuffle(&mut order);
                let mut submitted = vec![false; tensors.len()];
                for at in order {
                    let mut requests = tensors[at].clone();
                    if wrong == Some((rank, at)) {
                        requests[0].shape = vec![777];
                        requests[0].dtype = DType::I32;
                    }
                    script.push(Act::Submit(requests));
                    submitted[at] = true;
                    let complete = submitted.iter().take_while(|done| **done).count();
                    if complete > 0 && dice.roll(6) == 0 {
                        script.push(Act::Wait(tensors[dice.roll(complete)][0].name.clone()));
                    }
                }
                let names = tensors.iter().flatten().map(|request| Act::Wait(request.name.clone()));
                script.extend(names);
            }
        }
    }
    scripts
}

/// Makes a program different from the others': two submissions swapped and waited for in that order, one left out
/// together with its waits, or one under another name.
fn diverge(dice: &mut Dice, script: &mut Vec<Act>, how: usize) {
    let submits: Vec<usize> = (0..script.len()).filter(|&at| matches!(script[at], Act::Submit(_))).collect();
    let at = submits[dice.roll(submits.len())];
    let Act::Submit(requests) = script[at].clone() else { return };
    let names: Vec<String> = requests.iter().map(|request| request.name.clone()).collect();
    let of_it = |act: &Act| matches!(act, Act::Wait(name) if names.contains(name));
    match how {
        0 => {
            let other = submits[dice.roll(submits.len())];
            script.swap(at, other);
            script.insert(at.min(other) + 1, Act::Wait(names[0].clone()));
        }
        1 => {
            script.remove(at);
            if let Some(wait) = (at..script.len()).find(|&later| of_it(&script[later])) {
                script.remove(wait);
            }
        }
        _ => {
            let renamed = |request: &Request| Request { name: format!("{} again", request.name), ..request.clone() };
            script[at] = Act::Submit(requests.iter().map(renamed).collect());
            script.insert(at + 1, Act::Wait(format!("{} again", names[0])));
        }
    }
}

/// Takes a tensor out of a group, if there is one, and submits it alone at some time before it is waited for.
fn regroup(dice: &mut Dice, script: &mut Vec<Act>) {
    let is_group = |act: &Act| matches!(act, Act::Submit(requests) if requests.len() > 1);
    let groups: Vec<usize> = (0..script.len()).filter(|&at| is_group(&script[at])).collect();
    let Some(&at) = groups.get(dice.roll(groups.len())) else { return };
    let Act::Submit(requests) = &mut script[at] else { return };
    let taken = requests.remove(dice.roll(requests.len()));
    let size = requests.len();
    requests.iter_mut().for_each(|request| request.bundle = Some(Bundle { size, ..request.bundle.take().unwrap() }));
    let is_wait = |act: &Act| matches!(act, Act::Wait(name) if *name == taken.name);
    let wait = (at..script.len()).find(|&later| is_wait(&script[later])).unwrap_or(script.len());
    let place = at + dice.roll(wait - at + 1);
    script.insert(place, Act::Submit(vec![Request { bundle: None, ..taken }]));
}

fn same_everywhere(world: &World) {
    let sorted = |rank: &Rank| {
        let mut endings = rank.endings.clone();
        endings.sort();
        endings
    };
    let first = &world.ranks[0];
    for rank in &world.ranks[1..] {
        assert_eq!(rank.batches, first.batches, "the same batches in the same order");
        assert_eq!(sorted(rank), sorted(first), "every request ends in the same way everywhere");
    }
}

proptest! {
    #![proptest_config(Config { cases: 3000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn all_ranks_run_the_same(seed in any::<u64>(), size in 1_usize..5, mismatches in any::<bool>()) {
        let mut dice = Dice(seed);
        let scripts = scripts(&mut dice, size, mismatches);
        let wanted: usize = scripts[0].iter().map(|act| match act { Act::Submit(r) => r.len(), Act::Wait(_) => 0 }).sum();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        same_everywhere(&world);
        prop_assert_eq!(world.ranks[0].endings.len(), wanted, "every request ends exactly once");
        let deadlocks = world.ranks[0].endings.iter().filter(|(_, how)| how.contains("wait for each other")).count();
        prop_assert_eq!(deadlocks, 0, "all ranks submit the same");
    }

    /// A rank swaps, skips or renames something, whether it waits for each tensor or for all of a step: whoever waits
    /// gets an error or a result, and an error that ranks wait for each other only if they do.
    #[test]
    fn ranks_that_wait_for_each_other_are_told(seed in any::<u64>(), size in 2_usize..5, odd in 0_usize..5, how in 0_usize..3) {
        let (mut dice, odd) = (Dice(seed), odd % size);
        let mut scripts = scripts(&mut dice, size, false);
        diverge(&mut dice, &mut scripts[odd], how);
        let end = Request::new("end", Operation::Barrier, DType::U8, &[0]);
        scripts.iter_mut().for_each(|script| script.extend([Act::Submit(vec![end.clone()]), Act::Wait("end".into())]));
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        // Whoever got through leaves, and that is an error for the others.
        prop_assert!(world.ranks.iter().any(Rank::is_through));
    }

    /// Some ranks put tensors into other groups than the rest, and submit the others of them when the table may have
    /// refused the group: whoever waits gets an error or a result, and nothing runs on a rank that does not want it.
    #[test]
    fn groups_that_differ_are_refused_and_nothing_else(seed in any::<u64>(), size in 2_usize..5, odd in 0_usize..5) {
        let (mut dice, odd) = (Dice(seed), odd % size);
        let mut scripts = scripts(&mut dice, size, false);
        (0..1 + dice.roll(3)).for_each(|_| regroup(&mut dice, &mut scripts[odd]));
        let end = Request::new("end", Operation::Barrier, DType::U8, &[0]);
        scripts.iter_mut().for_each(|script| script.extend([Act::Submit(vec![end.clone()]), Act::Wait("end".into())]));
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        prop_assert!(world.ranks.iter().any(Rank::is_through));
        for rank in &world.ranks {
            let open: usize = rank.open.values().sum();
            prop_assert_eq!(rank.endings.len() + open, rank.asked, "every request ends at most once");
        }
    }

    /// Names are forgotten all the time, with more of them under way than are remembered.
    #[test]
    fn few_names_are_remembered(seed in any::<u64>(), size in 1_usize..5, limit in 1_usize..4, mismatches in any::<bool>()) {
        let mut dice = Dice(seed);
        let scripts = scripts(&mut dice, size, mismatches);
        let wanted: usize = scripts[0].iter().map(|act| match act { Act::Submit(r) => r.len(), Act::Wait(_) => 0 }).sum();
        let mut world = World::new(scripts);
        world.table.set_names_limit(limit);
        world.run(|below| dice.roll(below));
        same_everywhere(&world);
        prop_assert_eq!(world.ranks[0].endings.len(), wanted, "every request ends exactly once");
    }

    /// Ranks run out of data at different times.
    #[test]
    fn ranks_that_have_joined_help_the_others(seed in any::<u64>(), size in 2_usize..5) {
        let mut dice = Dice(seed);
        let tensors = step_of(&mut dice, 0, true, size);
        let join = Request::new("join", Operation::Join, DType::U8, &[]);
        let scripts: Vec<Vec<Act>> = (0..size)
            .map(|_| {
                let mut script = Vec::new();
                for _ in 0..dice.roll(6) {
                    tensors.iter().for_each(|requests| script.push(Act::Submit(requests.clone())));
                    tensors.iter().flatten().for_each(|request| script.push(Act::Wait(request.name.clone())));
                }
                script.push(Act::Submit(vec![join.clone()]));
                script.push(Act::Wait("join".into()));
                script
            })
            .collect();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        let last = world.ranks[0].last_joined;
        prop_assert!(last.is_some());
        for rank in &world.ranks {
            prop_assert_eq!(rank.last_joined, last, "everybody knows the last one");
            prop_assert_eq!(&rank.batches, &world.ranks[0].batches);
        }
    }

    /// A rank dies or is cut off at any point: everything that was asked for ends exactly once, everybody who is not
    /// cut off from rank 0 gives the same reason, and so does everybody who is.
    #[test]
    fn all_fail_for_the_same_reason(
        seed in any::<u64>(), size in 2_usize..5, rank in 0_usize..5, after in 0_usize..300, dies in any::<bool>()
    ) {
        let (mut dice, rank) = (Dice(seed), rank % size);
        let scripts = scripts(&mut dice, size, false);
        let mut world = World::new(scripts);
        let harm = if dies { Harm::Dies } else { Harm::CutOff };
        world.run_with(|below| dice.roll(below), Some((after, rank, harm)));
        let mut reasons = [const { None }; 2];
        for (index, other) in world.ranks.iter().enumerate().filter(|&(index, _)| !dies || index != rank) {
            prop_assert!(other.open.is_empty(), "rank {} still waits", index);
            prop_assert_eq!(other.endings.len(), other.asked, "every request ends exactly once");
            let Some(reason) = other.failing.reason() else { continue };
            let failed = other.endings.iter().filter(|(_, how)| how != "done");
            prop_assert!(failed.into_iter().all(|(_, how)| *how == reason), "rank {} gives {} and others", index, reason);
            let side = usize::from(world.connected(0, index));
            let common: &String = reasons[side].get_or_insert(reason.clone());
            prop_assert_eq!(common, &reason, "rank {}", index);
            let blamed = if side == 0 || (rank == 0 && index != 0) { 0 } else { rank };
            let named = reason.contains(&format!("rank {blamed} "));
            prop_assert!(named || (rank == 0 && index == 0), "rank {} of {} blames: {}", index, rank, reason);
        }
    }

    /// A name used twice at a time.
    #[test]
    fn a_name_used_twice_ends_the_same_way_everywhere(seed in any::<u64>(), size in 2_usize..4, again in 0_usize..4) {
        let mut dice = Dice(seed);
        let tensor = || Act::Submit(vec![Request::new("t", Operation::AllReduce(Reduction::SUM), DType::F32, &[4])]);
        let other = || Act::Submit(vec![Request::new("u", Operation::AllReduce(Reduction::SUM), DType::F32, &[4])]);
        let wait = |name: &str| Act::Wait(name.into());
        let scripts: Vec<Vec<Act>> = (0..size)
            .map(|_| {
                let mut script = Vec::new();
                (0..again).for_each(|_| script.extend([tensor(), other(), wait("t"), wait("u")]));
                script.extend([tensor(), tensor(), wait("t"), other(), wait("u")]);
                script
            })
            .collect();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        for rank in &world.ranks {
            let ended = |wanted: &str| rank.endings.iter().filter(|(name, _)| name == wanted).count();
            prop_assert_eq!((ended("t"), ended("u")), (again + 2, again + 1));
            prop_assert_eq!(&rank.batches, &world.ranks[0].batches);
        }
    }
}

#[test]
fn a_repeated_order_needs_no_words() {
    let mut dice = Dice(7);
    let tensors: Vec<Request> = (0..20)
        .map(|index| Request::new(format!("t{index}"), Operation::AllReduce(Reduction::SUM), DType::F32, &[index]))
        .collect();
    let mut frames = Vec::new();
    for steps in [10, 100] {
        let scripts = (0..3)
            .map(|_| {
                let mut script = Vec::new();
                for _ in 0..steps {
                    let mut order = tensors.clone();
                    dice.shuffle(&mut order);
                    script.extend(order.into_iter().map(|request| Act::Submit(vec![request])));
                    script.extend(tensors.iter().map(|request| Act::Wait(request.name.clone())));
                }
                script
            })
            .collect();
        let mut world = World::new(scripts);
        world.run(|below| dice.roll(below));
        same_everywhere(&world);
        assert!(world.votes >= steps - 2);
        frames.push(world.frames);
    }
    assert!(frames[1] < frames[0] + 60, "ninety more steps took {} more frames", frames[1] - frames[0]);
}
