//! More names than the engine remembers, one after another and many at a time, for all ranks and in a process set.

use std::{collections::VecDeque, thread};

use sirtaki_engine::{Engine, Settings, Ticket};

use super::ranks::{each, sum};

/// Every name is used once, with `in_flight` of them under way at a time.
fn use_names(engine: &Engine, names: usize, in_flight: usize) {
    let size = engine.group().size() as i64;
    let mut tickets: VecDeque<(i64, Ticket)> = VecDeque::new();
    let finish = |(number, ticket): (i64, Ticket)| {
        assert_eq!(ticket.wait_one().unwrap().into_vec::<i64>(), Some(vec![number * size]));
    };
    for number in 0..names as i64 {
        if tickets.len() == in_flight {
            finish(tickets.pop_front().unwrap());
        }
        tickets.push_back((number, sum(engine, &format!("loss.{number}"), number)));
    }
    tickets.into_iter().for_each(finish);
}

/// Two of three ranks do the same in a set of their own meanwhile.
fn with_a_set(settings: &Settings, names: usize, in_flight: usize) {
    each(3, settings, |engine| {
        let set = engine.process_set("two", &[0, 2]).unwrap();
        thread::scope(|scope| {
            if let Some(set) = &set {
                scope.spawn(|| use_names(set, names, in_flight));
            }
            use_names(engine, names, in_flight);
        });
    });
}

#[test]
fn names_are_forgotten_while_others_are_in_flight() {
    for (names_limit, in_flight) in [(1, 1), (1, 5), (50, 1), (50, 40), (50, 300)] {
        with_a_set(&Settings { names_limit, ..Settings::default() }, 1000, in_flight);
    }
}

#[test]
fn more_names_than_are_remembered() {
    with_a_set(&Settings::default(), 70_000, 1000);
}

#[test]
#[ignore = "takes minutes; run it with `cargo test -p sirtaki-engine --release --test live -- --ignored million`"]
fn a_million_names() {
    for in_flight in [1, 1000, 70_000] {
        let began = std::time::Instant::now();
        with_a_set(&Settings::default(), 1_000_000, in_flight);
        eprintln!("1,000,000 names, {in_flight} in flight: {:.0} s", began.elapsed().as_secs_f64());
    }
}
