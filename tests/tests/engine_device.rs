//! Engines with tensors in the memory of devices, ranks as threads, with the stand-in for the CUDA driver and NCCL.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{sync::Arc, thread};

use sirtaki_comm::{DType, ReduceOp, Reduction, device::Stream};
use sirtaki_engine::{
    DeviceSettings, Engine, EngineError, Operation, Output, Request, Settings, Tensor, TensorPlace, Ticket, Way,
};
use sirtaki_tests::{
    data::Data,
    engines::{each, sum, vector},
    make,
    stand_in::{download, gpu, library, upload},
};

fn settings(way: Option<Way>) -> Settings {
    let (nccl, driver) = (Some(library()), Some(library()));
    Settings { device: DeviceSettings { way, nccl, driver, ..Default::default() }, ..Settings::default() }
}

/// A rank's own device.
fn stream(rank: usize) -> Stream {
    gpu(rank as u32).stream(false).unwrap()
}

/// Hands in elements in the memory of a device.
fn submit(engine: &Engine, name: &str, operation: Operation, data: &Data, stream: &Stream) -> Ticket {
    let (memory, view) = upload(data, stream);
    let request = Request::new(name, operation, view.dtype(), &[view.len()]).placed(TensorPlace::Device);
    // SAFETY: the memory is the owner, and nobody else has it.
    let tensor = unsafe { Tensor::on_device(view, Arc::new(stream.record().unwrap()), Box::new(memory)) };
    engine.submit(request, tensor)
}

/// The numbers of a result, read on a stream.
fn numbers(output: Result<Output, EngineError>, stream: &Stream) -> Vec<f64> {
    let mut tensor = output.unwrap().into_tensor().unwrap();
    tensor.await_on(stream).unwrap();
    download(tensor.view().unwrap(), stream).numbers()
}

fn ones(rank: usize, count: usize) -> Data {
    Data::new(DType::F32, &vec![(rank + 1) as f64; count])
}

#[test]
fn every_operation_gives_what_it_should() {
    for way in [Way::Nccl, Way::Staged] {
        for size in [1, 2, 4] {
            each(&make::arena, size, &settings(Some(way)), |engine| {
                let rank = engine.group().rank();
                let stream = stream(rank);
                let total = (size * (size + 1) / 2) as f64;
                let run = |name: &str, operation: Operation, data: &Data| {
                    numbers(submit(engine, name, operation, data, &stream).wait_one(), &stream)
                };
                for step in 0..3 {
                    let all = run("sum", Operation::AllReduce(Reduction::SUM), &ones(rank, 1000));
                    assert_eq!(all, vec![total; 1000], "{way:?} {size} step {step}");
                }
                // More than is copied at a time, and no whole number of pieces.
                let large = run("large", Operation::AllReduce(Reduction::AVERAGE), &ones(rank, (5 << 20) + 3));
                assert!(large.iter().all(|x| *x == total / size as f64) && large.len() == (5 << 20) + 3);
                let most = run("max", Operation::AllReduce(Reduction::new(ReduceOp::Max)), &ones(rank, 7));
                assert_eq!(most, vec![size as f64; 7]);
                let scaled = Reduction::new(ReduceOp::Min).scaled(2.0, 3.0);
                assert_eq!(run("scaled", Operation::AllReduce(scaled), &ones(rank, 2)), vec![6.0; 2], "staged");
                let root = size - 1;
                assert_eq!(run("root", Operation::Broadcast { root }, &ones(rank, 5)), vec![size as f64; 5]);
                let gathered = run("gather", Operation::AllGather, &ones(rank, rank + 1));
                assert_eq!(gathered.len(), size * (size + 1) / 2);
                assert_eq!(gathered.last(), Some(&(size as f64)));
                let part = run("scatter", Operation::ReduceScatter(Reduction::SUM), &ones(rank, 2 * size + 1));
                assert_eq!(part, vec![total; if rank == 0 { 3 } else { 2 }]);
                let moved = run("move", Operation::AllToAll { splits: vec![1; size] }, &ones(rank, size));
                assert_eq!(moved, (1..=size).map(|x| x as f64).collect::<Vec<_>>());
                assert!(engine.device_way().unwrap().contains("it was asked for"));
            });
        }
    }
}

#[test]
fn ranks_with_devices_of_their_own_take_nccl_by_themselves() {
    let ways = each(&make::arena, 2, &settings(None), |engine| {
        let stream = stream(engine.group().rank());
        let data = ones(0, 4);
        let _ = submit(engine, "a", Operation::AllReduce(Reduction::SUM), &data, &stream).wait_one().unwrap();
        engine.device_way().unwrap().to_owned()
    });
    assert!(ways.iter().all(|way| way.starts_with("by NCCL 2.28.9 (") && way.contains("libsirtaki_stand_in.so")));
}

#[test]
fn a_group_may_lie_in_several_places() {
    each(&make::arena, 2, &settings(Some(Way::Nccl)), |engine| {
        let rank = engine.group().rank();
        let stream = stream(rank);
        let (memory, view) = upload(&ones(rank, 10), &stream);
        // SAFETY: the memory is the owner, and nobody else has it.
        let device = unsafe { Tensor::on_device(view, Arc::new(stream.record().unwrap()), Box::new(memory)) };
        let request = |name: &str| Request::new(name, Operation::AllReduce(Reduction::SUM), DType::F32, &[10]);
        let host = Tensor::from_vec(vec![rank as f32 + 1.0; 10]);
        let requests = vec![(request("d").placed(TensorPlace::Device), device), (request("h"), host)];
        let mut outputs = engine.submit_group("both", requests).wait().unwrap();
        assert_eq!(outputs.pop().unwrap().into_vec::<f32>().unwrap(), [3.0; 10]);
        assert_eq!(numbers(Ok(outputs.pop().unwrap()), &stream), [3.0; 10]);
    });
}

#[test]
fn a_tensor_in_different_places_is_an_error_on_all_ranks_that_go_on() {
    each(&make::arena, 2, &settings(Some(Way::Nccl)), |engine| {
        let rank = engine.group().rank();
        let stream = stream(rank);
        let outcome = match rank {
            0 => sum(engine, "x", vec![1.0_f32; 4]).wait_one(),
            _ => submit(engine, "x", Operation::AllReduce(Reduction::SUM), &ones(0, 4), &stream).wait_one(),
        };
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("rank 0 in the host's memory, rank 1 in a GPU's memory"), "{text}");
        let again: Vec<f32> = vector(sum(engine, "y", vec![1.0_f32; 4]).wait_one());
        assert_eq!(again, [2.0; 4]);
    });
}

#[test]
fn a_rank_that_has_joined_changes_nothing() {
    for way in [Way::Nccl, Way::Staged] {
        each(&make::arena, 2, &settings(Some(way)), |engine| {
            let rank = engine.group().rank();
            if rank == 1 {
                engine.join().unwrap();
                return;
            }
            let stream = stream(rank);
            for (op, count) in [(ReduceOp::Sum, 10), (ReduceOp::Product, 10), (ReduceOp::Min, (2 << 20) + 1)] {
                let operation = Operation::AllReduce(Reduction::new(op));
                let ticket = submit(engine, op.name(), operation, &ones(6, count), &stream);
                assert_eq!(numbers(ticket.wait_one(), &stream), vec![7.0; count], "{way:?} {op:?}");
            }
            engine.join().unwrap();
        });
    }
}

#[test]
fn overlapping_sets_that_go_through_in_opposite_orders_do_not_block_each_other() {
    const ROUNDS: usize = 200;
    each(&make::arena, 3, &settings(Some(Way::Nccl)), |engine| {
        let rank = engine.group().rank();
        let members = [[0, 1], [1, 2], [0, 2]];
        let sets: Vec<Option<Engine>> = members
            .iter()
            .enumerate()
            .map(|(set, ranks)| engine.process_set(&format!("set {set}"), ranks).unwrap())
            .collect();
        let stream = stream(rank);
        let mut mine: Vec<(usize, &Engine)> =
            sets.iter().enumerate().filter_map(|(set, engine)| Some((set, engine.as_ref()?))).collect();
        if rank % 2 == 1 {
            mine.reverse();
        }
        mine.push((3, engine));
        thread::scope(|scope| {
            for (set, engine) in mine {
                let stream = &stream;
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let operation = Operation::AllReduce(Reduction::SUM);
                        let ticket = submit(engine, "x", operation, &ones(0, 8), stream);
                        let expected = engine.group().size() as f64;
                        assert_eq!(numbers(ticket.wait_one(), stream), vec![expected; 8], "set {set}");
                    }
                });
            }
        });
    });
}

#[test]
fn a_way_that_cannot_be_taken_is_an_error_on_all_ranks() {
    let errors = each(&make::arena, 2, &settings(Some(Way::Shared)), |engine| {
        let stream = stream(engine.group().rank());
        let ticket = submit(engine, "x", Operation::AllReduce(Reduction::SUM), &ones(0, 4), &stream);
        ticket.wait_one().unwrap_err().to_string()
    });
    // The stand-in refuses kernels unless it is told otherwise.
    assert!(errors.iter().all(|text| text.contains("cannot compile kernels")), "{errors:?}");
}
