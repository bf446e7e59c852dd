//! Engines over real communicators, ranks as threads: results equal what one process would compute.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::time::Duration;

use sirtaki_comm::{DType, ReduceOp, Reduction};
use sirtaki_engine::{Compression, EngineError, Operation, Request, Settings, Tensor, decide::fuse::Limits};
use sirtaki_tests::{
    engines::{each, submit, sum, vector},
    make,
};

fn settings() -> Settings {
    Settings { limits: Limits { fused: 64 << 10, large: 16 << 10 }, ..Settings::default() }
}

/// A different order on every rank and in every step.
fn shuffled(count: usize, seed: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed as u64 * 7919 + 1;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

#[test]
fn tensors_in_any_order_are_added_up() {
    for (size, make) in
        [(1, make::arena as fn(usize) -> _), (2, make::arena), (3, make::arena), (2, make::tcp), (3, make::tcp)]
    {
        each(&make, size, &settings(), |engine| {
            let rank = engine.group().rank();
            for step in 0..20 {
                let tickets: Vec<_> = shuffled(40, step * 10 + rank)
                    .into_iter()
                    .map(|index| {
                        let data = vec![(rank + index + step) as f32; index * 300];
                        (index, sum(engine, &format!("t{index}"), data))
                    })
                    .collect();
                for (index, ticket) in tickets {
                    let expected: usize = (0..size).map(|rank| rank + index + step).sum();
                    let result: Vec<f32> = vector(ticket.wait_one());
                    assert_eq!(result.len(), index * 300);
                    assert!(result.iter().all(|&x| x == expected as f32), "step {step} tensor {index}");
                }
            }
        });
    }
}

#[test]
fn every_operation_gives_what_it_should() {
    for make in [make::arena as fn(usize) -> _, make::tcp] {
        each(&make, 3, &settings(), |engine| {
            let rank = engine.group().rank();
            for step in 0..5_i32 {
                let gathered = {
                    let rows = rank + step as usize % 2;
                    let request = Request::new("gather", Operation::AllGather, DType::I32, &[rows, 2]);
                    engine.submit(request, Tensor::from_vec(vec![rank as i32; rows * 2]))
                };
                let sent =
                    submit(engine, "broadcast", Operation::Broadcast { root: 1 }, vec![rank as i32 * 10 + step; 3]);
                let splits = vec![1, 0, rank + 1];
                let moved = Request::new("move", Operation::AllToAll { splits }, DType::I64, &[rank + 2]);
                let moved = engine
                    .submit(moved, Tensor::from_vec((0..rank as i64 + 2).map(|x| x + 100 * rank as i64).collect()));
                let scattered = submit(
                    engine,
                    "scatter",
                    Operation::ReduceScatter(Reduction::SUM),
                    (0..7_i32).map(|x| x + step).collect(),
                );
                engine.barrier("meet").unwrap();
                let output = gathered.wait_one().unwrap();
                let expected: Vec<i32> =
                    (0..3).flat_map(|rank| vec![rank as i32; 2 * (rank + step as usize % 2)]).collect();
                assert_eq!(output.shape().unwrap(), [expected.len() / 2, 2]);
                assert_eq!(output.into_vec::<i32>().unwrap(), expected);
                assert_eq!(vector::<i32>(sent.wait_one()), [10 + step; 3]);
                let expected: Vec<i64> = match rank {
                    0 => vec![0, 100, 200],
                    1 => vec![],
                    _ => vec![1, 101, 102, 201, 202, 203],
                };
                assert_eq!(vector::<i64>(moved.wait_one()), expected);
                let whole: Vec<i32> = (0..7_i32).map(|x| 3 * (x + step)).collect();
                let part = [0..3, 3..5, 5..7][rank].clone();
                assert_eq!(vector::<i32>(scattered.wait_one()), whole[part]);
            }
        });
    }
}

#[test]
fn compressed_tensors_travel_as_halves() {
    for compression in [Compression::F16, Compression::BF16] {
        each(&make::arena, 2, &settings(), |engine| {
            for (name, count) in [("small", 5), ("large", 5_000_000), ("none", 0)] {
                let request = Request::new(name, Operation::AllReduce(Reduction::AVERAGE), DType::F32, &[count]);
                let data = vec![engine.group().rank() as f32 + 0.5; count];
                let ticket = engine.submit(request.compressed(compression), Tensor::from_vec(data));
                assert!(vector::<f32>(ticket.wait_one()).iter().all(|&x| x == 1.0));
            }
        });
    }
}

#[test]
fn groups_complete_together() {
    each(&make::arena, 2, &settings(), |engine| {
        for step in 0..6 {
            let part = |index: usize| {
                let request = Request::new(
                    format!("part{index}"),
                    Operation::AllReduce(Reduction::SUM),
                    DType::F64,
                    &[index * 3000],
                );
                (request, Tensor::from_vec(vec![step as f64; index * 3000]))
            };
            let outputs = engine.submit_group("all", (0..4).map(part).collect()).wait().unwrap();
            for (index, output) in outputs.into_iter().enumerate() {
                assert_eq!(output.into_vec::<f64>().unwrap(), vec![2.0 * step as f64; index * 3000]);
            }
        }
    });
}

#[test]
fn a_mismatch_has_the_same_text_everywhere_and_the_engine_goes_on() {
    let texts = each(&make::arena, 3, &settings(), |engine| {
        let rank = engine.group().rank();
        let wrong = sum(engine, "x", vec![1.0_f32; if rank == 2 { 5 } else { 4 }]).wait_one();
        let error = wrong.unwrap_err();
        assert!(error.is_recoverable());
        assert_eq!(vector::<f32>(sum(engine, "x", vec![1.0_f32; 4]).wait_one()), [3.0; 4]);
        // The same in the middle of an order that repeats.
        for _ in 0..5 {
            assert_eq!(vector::<f32>(sum(engine, "x", vec![1.0_f32; 4]).wait_one()), [3.0; 4]);
        }
        let again = sum(engine, "x", vec![1.0_f32; if rank == 0 { 5 } else { 4 }]).wait_one().unwrap_err();
        assert_eq!(vector::<f32>(sum(engine, "x", vec![1.0_f32; 4]).wait_one()), [3.0; 4]);
        (error.to_string(), again.to_string())
    });
    let expected = "ranks disagree: \"x\": ranks bring different shapes: ranks 0,1 shape [4], rank 2 shape [5]";
    assert!(texts.iter().all(|text| text.0 == expected && text.1 == texts[0].1), "{texts:?}");
    assert!(texts[0].1.contains("rank 0 shape [5], ranks 1,2 shape [4]"), "{texts:?}");
}

#[test]
fn impossible_requests_are_refused_at_once() {
    each(&make::arena, 2, &settings(), |engine| {
        let request = Request::new("short", Operation::AllReduce(Reduction::SUM), DType::F32, &[3]);
        let error = engine.submit(request, Tensor::from_vec(vec![1.0_f32; 2])).wait_one().unwrap_err();
        assert!(matches!(error, EngineError::Invalid { .. }), "{error}");
        assert_eq!(error.to_string(), "\"short\": 2 f32 do not make f32 of shape [3]");
    });
}

#[test]
fn a_rank_without_data_helps_until_all_have_joined() {
    let last = each(&make::arena, 3, &settings(), |engine| {
        let rank = engine.group().rank();
        for step in 0..rank + 1 {
            let present = 3 - step;
            let all = sum(engine, "all", vec![2.0_f32; 20_000]);
            let one = sum(engine, "one", vec![1_i32]);
            let least =
                submit(engine, "least", Operation::AllReduce(Reduction::new(ReduceOp::Min)), vec![rank as i64 + 5]);
            let request = Request::new("rows", Operation::AllGather, DType::U8, &[1]);
            let rows = engine.submit(request, Tensor::from_vec(vec![rank as u8]));
            assert!(vector::<f32>(all.wait_one()).iter().all(|&x| x == 2.0 * present as f32));
            assert_eq!(vector::<i32>(one.wait_one()), [present as i32]);
            assert_eq!(vector::<i64>(least.wait_one()), [step as i64 + 5]);
            assert_eq!(vector::<u8>(rows.wait_one()), (step as u8..3).collect::<Vec<_>>());
        }
        let last = engine.join().unwrap();
        assert_eq!(vector::<i32>(sum(engine, "after", vec![1_i32]).wait_one()), [3]);
        last
    });
    assert_eq!(last, [2, 2, 2]);
}

#[test]
fn process_sets_work_side_by_side() {
    each(&make::arena, 4, &settings(), |engine| {
        let rank = engine.group().rank();
        let low = engine.process_set("low", &[0, 1]).unwrap();
        let odd = engine.process_set("odd", &[1, 3]).unwrap();
        assert_eq!((low.is_some(), odd.is_some()), (rank < 2, rank % 2 == 1));
        for _ in 0..10 {
            let world = sum(engine, "world", vec![rank as i32]);
            let of_low = low.as_ref().map(|engine| sum(engine, "t", vec![rank as i32]));
            let of_odd = odd.as_ref().map(|engine| sum(engine, "t", vec![rank as i32]));
            of_odd.into_iter().for_each(|ticket| assert_eq!(vector::<i32>(ticket.wait_one()), [4]));
            of_low.into_iter().for_each(|ticket| assert_eq!(vector::<i32>(ticket.wait_one()), [1]));
            assert_eq!(vector::<i32>(world.wait_one()), [6]);
        }
        let disagreement = engine.process_set("bad", if rank == 0 { &[0, 1] } else { &[0, 2] }).unwrap_err();
        assert!(disagreement.to_string().contains("process set of ranks [0, 2]"), "{disagreement}");
    });
}

#[test]
fn adasum_follows_its_definition() {
    each(&make::arena, 4, &settings(), |engine| {
        let data: Vec<f32> = [[3.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0]]
            [engine.group().rank()]
        .to_vec();
        let result = submit(engine, "g", Operation::Adasum, data).wait_one();
        assert_eq!(vector::<f32>(result), [3.0, 4.0, 1.0, 1.0]);
    });
}

/// As one process computes it: pairs of neighbours first.
fn adasum(vectors: &[Vec<f64>]) -> Vec<f64> {
    let (left, right) = match vectors {
        [vector] => return vector.clone(),
        _ => vectors.split_at(vectors.len() / 2),
    };
    let (a, b) = (adasum(left), adasum(right));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let factor = |vector: &[f64]| 1.0 - dot(&a, &b) / (2.0 * dot(vector, vector));
    a.iter().zip(&b).map(|(x, y)| factor(&a) * x + factor(&b) * y).collect()
}

#[test]
fn adasum_equals_that_of_one_process_and_is_the_same_everywhere() {
    for (size, length) in [(1, 5), (2, 1), (2, 1001), (4, 3), (4, 5000), (8, 777)] {
        let input = |rank: usize| -> Vec<f64> {
            (0..length).map(|at| ((rank * 37 + at * 11) % 23) as f64 - 7.5 + rank as f64).collect()
        };
        let expected = adasum(&(0..size).map(input).collect::<Vec<_>>());
        for make in [make::arena, make::tcp] {
            let results = each(&make, size, &settings(), |engine| {
                let rank = engine.group().rank();
                let narrow = input(rank).iter().map(|&x| x as f32).collect();
                let narrow = vector::<f32>(submit(engine, "f", Operation::Adasum, narrow).wait_one());
                let empty = submit(engine, "e", Operation::Adasum, Vec::<f32>::new()).wait_one();
                assert!(vector::<f32>(empty).is_empty());
                (vector::<f64>(submit(engine, "d", Operation::Adasum, input(rank)).wait_one()), narrow)
            });
            assert!(results.iter().all(|result| *result == results[0]), "the same bits everywhere");
            let largest = expected.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
            for ((wide, narrow), expected) in results[0].0.iter().zip(&results[0].1).zip(&expected) {
                assert!((wide - expected).abs() < 1e-12 * largest, "{wide} is not {expected}");
                assert!((f64::from(*narrow) - expected).abs() < 1e-5 * largest, "{narrow} is not {expected}");
            }
        }
    }
}

#[test]
fn several_threads_may_hand_in_tensors() {
    each(&make::arena, 2, &settings(), |engine| {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for step in 0..25 {
                        let ticket = sum(engine, &format!("thread {thread}"), vec![step as f32; 100]);
                        assert_eq!(vector::<f32>(ticket.wait_one()), [2.0 * step as f32; 100]);
                    }
                });
            }
        });
    });
}

#[test]
fn a_rank_may_be_late_without_failing() {
    each(&make::arena, 2, &settings(), |engine| {
        for step in 0..8 {
            if step == 6 && engine.group().rank() == 1 {
                std::thread::sleep(Duration::from_millis(1500));
            }
            assert_eq!(vector::<i32>(sum(engine, "t", vec![1_i32]).wait_one()), [2]);
        }
    });
}

#[test]
fn a_rank_that_leaves_is_named_to_those_who_need_it() {
    let texts = each(&make::arena, 3, &settings(), |engine| {
        for _ in 0..4 {
            assert_eq!(vector::<i32>(sum(engine, "t", vec![1_i32]).wait_one()), [3]);
        }
        if engine.group().rank() == 1 {
            return None;
        }
        Some(sum(engine, "t", vec![1_i32]).wait_one().unwrap_err().to_string())
    });
    let (zero, two) = (texts[0].clone().unwrap(), texts[2].clone().unwrap());
    assert_eq!(zero, two);
    assert!(zero.starts_with("\"t\" was not done: rank 1 ") && zero.contains("left"), "{zero}");
}

#[test]
fn a_number_now_and_then_does_not_hold_up_the_steps() {
    let (done, finished) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let settings = Settings { patience: Duration::from_secs(3600), ..settings() };
        for (period, first) in [(2, true), (3, false), (10, true), (10, false)] {
            each(&(make::arena as fn(usize) -> _), 2, &settings, |engine| {
                let number = |step: usize| {
                    if step.is_multiple_of(period) {
                        assert_eq!(
                            vector::<f32>(sum(engine, "loss", vec![step as f32]).wait_one()),
                            [2.0 * step as f32]
                        );
                    }
                };
                for step in 0..60 {
                    if first {
                        number(step);
                    }
                    let gradients = ["a", "b"].map(|name| sum(engine, name, vec![1.0_f32; 100]));
                    gradients.into_iter().for_each(|ticket| assert_eq!(vector::<f32>(ticket.wait_one()), [2.0; 100]));
                    if !first {
                        number(step);
                    }
                }
            });
            done.send(()).unwrap();
        }
    });
    for _ in 0..4 {
        finished.recv_timeout(Duration::from_secs(300)).expect("nobody waits for what does not come");
    }
}
