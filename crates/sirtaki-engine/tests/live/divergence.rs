//! Ranks that do different things: where nobody can ever go on, everybody is told at once; where somebody may, nobody is.

use std::{
    sync::{Arc, Mutex, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Engine, EngineError, Operation, Request, Settings, Tensor, Ticket};

use super::ranks::{each, sum};

type Done = Result<(), EngineError>;

/// One way to diverge: what it is called, what the odd rank and the others do, and two names that the error has to say.
struct Divergence {
    what: &'static str,
    run: fn(&Engine, bool) -> Done,
    names: [&'static str; 2],
}

/// Waits for each of them before the next one is submitted.
fn one_by_one(engine: &Engine, names: &[&str]) -> Done {
    names.iter().try_for_each(|name| sum(engine, name, 1).wait().map(drop))
}

/// Submits all of them and waits for all of them.
fn together(engine: &Engine, names: &[&str]) -> Done {
    let tickets: Vec<Ticket> = names.iter().map(|name| sum(engine, name, 1)).collect();
    tickets.into_iter().try_for_each(|ticket| ticket.wait().map(drop))
}

fn of_kind(engine: &Engine, name: &str, operation: Operation) -> Done {
    engine.submit(Request::new(name, operation, DType::I64, &[2]), Tensor::from_vec(vec![1_i64; 2])).wait().map(drop)
}

fn group(engine: &Engine, names: &[&str]) -> Done {
    let tensor = |name: &&str| {
        let request = Request::new(*name, Operation::AllReduce(Reduction::SUM), DType::I64, &[1]);
        (request, Tensor::from_vec(vec![1_i64]))
    };
    engine.submit_group("group", names.iter().map(tensor).collect()).wait().map(drop)
}

/// A step often enough that its order is adopted.
fn train(engine: &Engine) -> Done {
    (0..6).try_for_each(|_| together(engine, &["a", "b", "c"]))
}

fn in_a_set(engine: &Engine, odd: bool) -> Done {
    let all: Vec<usize> = (0..engine.group().size()).collect();
    let set = engine.process_set("set", &all)?.expect("all are in it");
    one_by_one(&set, &[if odd { "x" } else { "y" }])
}

fn in_two_threads(engine: &Engine, odd: bool) -> Done {
    thread::scope(|scope| {
        let other = scope.spawn(|| one_by_one(engine, if odd { &["s", "x"] } else { &["s", "y"] }));
        let here = one_by_one(engine, if odd { &["t", "u"] } else { &["t", "v"] });
        let there = other.join().unwrap();
        here.and(there)
    })
}

const DIVERGENCES: [Divergence; 15] = [
    Divergence {
        what: "another name",
        run: |engine, odd| one_by_one(engine, &[if odd { "x" } else { "y" }]),
        names: ["x", "y"],
    },
    Divergence {
        what: "another name, all submitted first",
        run: |engine, odd| together(engine, if odd { &["a", "x", "c"] } else { &["a", "y", "c"] }),
        names: ["x", "y"],
    },
    Divergence {
        what: "another name in a step that repeats",
        run: |engine, odd| {
            train(engine)?;
            together(engine, if odd { &["a", "x", "c"] } else { &["a", "b", "c"] })
        },
        names: ["x", "b"],
    },
    Divergence {
        what: "another order",
        run: |engine, odd| one_by_one(engine, if odd { &["y", "x"] } else { &["x", "y"] }),
        names: ["x", "y"],
    },
    Divergence {
        what: "another order in a step that repeats",
        run: |engine, odd| {
            train(engine)?;
            one_by_one(engine, if odd { &["b", "a", "c"] } else { &["a", "b", "c"] })
        },
        names: ["a", "b"],
    },
    Divergence {
        what: "one skipped",
        run: |engine, odd| one_by_one(engine, if odd { &["a", "c"] } else { &["a", "b", "c"] }),
        names: ["b", "c"],
    },
    Divergence {
        what: "one skipped, all submitted first",
        run: |engine, odd| {
            together(engine, if odd { &["a", "c"] } else { &["a", "b", "c"] })?;
            one_by_one(engine, &["d"])
        },
        names: ["b", "d"],
    },
    Divergence {
        what: "one skipped in a step that repeats",
        run: |engine, odd| {
            train(engine)?;
            together(engine, if odd { &["a", "c"] } else { &["a", "b", "c"] })?;
            // The others get the next step's for the one that is missing, and so on.
            train(engine)?;
            engine.barrier("end")
        },
        names: ["b", "end"],
    },
    Divergence {
        what: "one too many",
        run: |engine, odd| one_by_one(engine, if odd { &["a", "extra", "b"] } else { &["a", "b"] }),
        names: ["extra", "b"],
    },
    Divergence {
        what: "a step too many",
        run: |engine, odd| {
            (0..if odd { 7 } else { 6 }).try_for_each(|_| together(engine, &["a", "b"]))?;
            engine.barrier("end")
        },
        names: ["a", "end"],
    },
    Divergence {
        what: "another kind and name",
        run: |engine, odd| match odd {
            true => of_kind(engine, "x", Operation::Broadcast { root: 0 }),
            false => of_kind(engine, "y", Operation::AllGather),
        },
        names: ["x", "y"],
    },
    Divergence {
        what: "another kind of the same name",
        run: |engine, odd| match odd {
            true => of_kind(engine, "x", Operation::Broadcast { root: 0 }),
            false => of_kind(engine, "x", Operation::AllGather),
        },
        names: ["x", "x"],
    },
    Divergence {
        what: "another group",
        run: |engine, odd| group(engine, if odd { &["a", "x"] } else { &["a", "y"] }),
        names: ["x", "y"],
    },
    Divergence { what: "another name in a process set", run: in_a_set, names: ["x", "y"] },
    Divergence { what: "other names in two threads", run: in_two_threads, names: ["x", "y"] },
];

/// A hang would end with another error.
fn settings() -> Settings {
    Settings { hang_timeout: Some(Duration::from_secs(120)), ..Settings::default() }
}

#[test]
fn every_rank_is_told_of_every_divergence() {
    let mut longest = 0.0_f64;
    for size in [2, 4] {
        for Divergence { what, run, names } in &DIVERGENCES {
            let outcomes = each(size, &settings(), |engine| {
                engine.barrier("begin").unwrap();
                let began = Instant::now();
                (run(engine, engine.group().rank() == 1), began.elapsed().as_secs_f64())
            });
            let slowest = outcomes.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
            eprintln!("{size} ranks, {what}: {slowest:.2} s");
            longest = longest.max(slowest);
            for (outcome, _) in outcomes {
                let Err(EngineError::Mismatch(text)) = outcome else { panic!("{what}: {outcome:?}") };
                assert!(names.iter().all(|name| text.contains(&format!("\"{name}\""))), "{what}: {text}");
            }
        }
    }
    eprintln!("{} divergences: an error on every rank after at most {longest:.2} s", 2 * DIVERGENCES.len());
}

/// A rank that computes is late, however long all others have waited, and so is one with a tensor on its way from
/// elsewhere, or with another thread that submits.
#[test]
fn a_rank_that_is_late_is_not_taken_for_one_that_waits() {
    let pause = Duration::from_millis(1500);
    each(3, &settings(), |engine| {
        let odd = engine.group().rank() == 1;
        // It computes.
        one_by_one(engine, &["warm up"]).unwrap();
        if odd {
            thread::sleep(pause);
        }
        one_by_one(engine, &["computed"]).unwrap();
        // It waits for something else while a copy is on its way.
        if odd {
            let (hand_in, other) = (engine.hand_in(), sum(engine, "other", 1));
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(pause);
                    hand_in.finish(|| sum(engine, "copied", 1)).wait().unwrap();
                });
                other.wait().unwrap();
            });
        } else {
            one_by_one(engine, &["copied", "other"]).unwrap();
        }
        // It waits with a limit.
        if odd {
            let ticket = sum(engine, "limited", 1).wait_timeout(pause).unwrap_err();
            one_by_one(engine, &["after"]).unwrap();
            ticket.wait().unwrap();
        } else {
            one_by_one(engine, &["after", "limited"]).unwrap();
        }
    });
}

/// The warning about a late rank says what it is doing, and after the hang timeout it is an error.
#[test]
fn a_late_rank_says_what_it_does_and_is_not_waited_for_without_end() {
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let said = warnings.clone();
    let settings = Settings {
        warn_after: Some(Duration::from_millis(200)),
        hang_timeout: Some(Duration::from_secs(6)),
        warn: Arc::new(move |text| said.lock().unwrap().push(text.to_owned())),
        current_work: Arc::new(|| Some("evaluate (train.py:41)".into())),
        ..Settings::default()
    };
    let (over, end) = channel();
    let (over, end) = (Mutex::new(over), Mutex::new(end));
    let errors = each(2, &settings, |engine| {
        one_by_one(engine, &["first"]).unwrap();
        if engine.group().rank() == 1 {
            end.lock().unwrap().recv().unwrap();
            return None;
        }
        let error = sum(engine, "missing", 1).wait().unwrap_err().to_string();
        over.lock().unwrap().send(()).unwrap();
        Some(error)
    });
    let error = errors[0].as_ref().unwrap();
    assert!(
        error.contains("has not submitted \"missing\" for ") && error.contains("the timeout of 6 s has passed: "),
        "{error}"
    );
    let warnings = warnings.lock().unwrap();
    let explained = |text: &String| text.contains("rank 1 (host ") && text.ends_with(", in evaluate (train.py:41).");
    assert!(warnings.iter().any(explained), "{warnings:?}");
}
