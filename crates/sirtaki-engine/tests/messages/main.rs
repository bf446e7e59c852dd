//! Messages between two ranks, ranks as threads: over shared memory, TCP, TLS and across hosts.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

mod ranks;

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use self::ranks::{Way, each, sum};
use sirtaki_comm::DType;
use sirtaki_engine::{
    Engine, EngineError, Expected, MessageForm, Output, Settings, Source, Tensor, Ticket,
    telemetry::{
        counts::CollectiveKind,
        recorder::{Recorder, Stage},
    },
};

/// Ranks on one host with and without shared memory, encrypted, and on several hosts.
fn everywhere(size: usize, work: impl Fn(&Engine) + Sync) {
    Way::ALL.into_iter().for_each(|way| drop(each(way, size, &Settings::default(), &work)));
}

/// Waits for what other threads do.
fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(300), "waited in vain");
        thread::sleep(Duration::from_millis(10));
    }
}

fn send<T: sirtaki_comm::Element + Send>(engine: &Engine, to: usize, tag: u64, data: Vec<T>) -> Ticket {
    let shape = [data.len()];
    engine.send(to, tag, "numbers", &shape, Tensor::from_vec(data))
}

fn receive(engine: &Engine, from: usize, tag: u64) -> Ticket {
    engine.receive(Source::Rank(from), tag, "numbers", Expected::Anything)
}

fn message(outcome: Result<Output, EngineError>) -> (usize, Vec<i32>, Vec<usize>) {
    match outcome.unwrap() {
        Output::Message { from, tensor, shape } => (from, tensor.into_vec().unwrap(), shape),
        other => panic!("not a message: {other:?}"),
    }
}

#[test]
fn every_rank_sends_to_all_before_it_receives() {
    const LARGE: usize = 300_000;
    everywhere(3, |engine| {
        let (rank, size) = (engine.group().rank(), engine.group().size());
        let others = || (0..size).filter(move |&other| other != rank);
        let sizes = [0, 1, 1000, LARGE];
        let sends: Vec<Ticket> = others()
            .flat_map(|to| sizes.map(|length| send(engine, to, 5, vec![(rank * 10 + to) as i32; length])))
            .collect();
        for from in others() {
            for length in sizes {
                let (sender, data, shape) = message(receive(engine, from, 5).wait_one());
                assert_eq!((sender, shape), (from, vec![length]));
                assert_eq!(data, vec![(from * 10 + rank) as i32; length]);
            }
        }
        for ticket in sends {
            let back: Vec<i32> = ticket.wait_one().unwrap().into_vec().unwrap();
            assert!(sizes.contains(&back.len()));
        }
    });
}

#[test]
fn messages_of_a_tag_keep_their_order_and_tags_do_not_mix() {
    everywhere(2, |engine| {
        let rank = engine.group().rank();
        if rank == 0 {
            let sends: Vec<Ticket> = (0..200_i32).map(|n| send(engine, 1, (n % 2) as u64, vec![n])).collect();
            sends.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
        } else {
            // All of tag 1 first, and some receives long before they are waited for.
            let odd: Vec<Ticket> = (0..100).map(|_| receive(engine, 0, 1)).collect();
            let odd: Vec<i32> = odd.into_iter().map(|ticket| message(ticket.wait_one()).1[0]).collect();
            let even: Vec<i32> = (0..100).map(|_| message(receive(engine, 0, 0).wait_one()).1[0]).collect();
            assert_eq!(odd, (0..100).map(|n| 2 * n + 1).collect::<Vec<i32>>());
            assert_eq!(even, (0..100).map(|n| 2 * n).collect::<Vec<i32>>());
        }
    });
}

#[test]
fn a_receive_from_any_rank_gets_every_message_once() {
    everywhere(4, |engine| {
        let (rank, size) = (engine.group().rank(), engine.group().size());
        if rank == 0 {
            let any = || engine.receive(Source::Any, 9, "whoever is first", Expected::Anything);
            let tickets: Vec<Ticket> = (0..2 * (size - 1)).map(|_| any()).collect();
            let mut got: Vec<(usize, i32)> = tickets
                .into_iter()
                .map(|ticket| {
                    let (from, data, _) = message(ticket.wait_one());
                    (from, data[0])
                })
                .collect();
            // In order from each rank.
            for from in 1..size {
                assert_eq!(got.iter().filter(|(sender, _)| *sender == from).count(), 2);
            }
            got.sort_by_key(|(from, _)| *from);
            assert_eq!(got, (1..size).flat_map(|from| [(from, 0), (from, 1)]).collect::<Vec<_>>());
        } else {
            let sends = [0_i32, 1].map(|number| send(engine, 0, 9, vec![number]));
            sends.into_iter().for_each(|ticket| drop(ticket.wait().unwrap()));
        }
    });
}

#[test]
fn messages_pass_while_collectives_run() {
    everywhere(3, |engine| {
        let (rank, size) = (engine.group().rank(), engine.group().size());
        for step in 0..50_i32 {
            let total = sum(engine, "gradient", vec![rank as f32 + step as f32; 5000]);
            let sent = send(engine, (rank + 1) % size, 1, vec![step; 2000]);
            let (_, data, _) = message(receive(engine, (rank + size - 1) % size, 1).wait_one());
            assert_eq!(data, vec![step; 2000]);
            let total: Vec<f32> = total.wait_one().unwrap().into_vec().unwrap();
            assert_eq!(total[0], (0..size).map(|rank| rank as f32 + step as f32).sum::<f32>());
            sent.wait().unwrap();
        }
    });
}

#[test]
fn memory_that_is_given_is_filled_and_given_back() {
    everywhere(2, |engine| match engine.group().rank() {
        0 => drop(engine.send(1, 0, "rows", &[2, 3], Tensor::from_vec((0..6_i32).collect())).wait().unwrap()),
        _ => {
            let place = vec![0_i32; 6];
            let address = place.as_ptr();
            let expected = Expected::Into(Tensor::from_vec(place), vec![2, 3]);
            let output = engine.receive(Source::Rank(0), 0, "rows", expected).wait_one().unwrap();
            assert_eq!(output.shape(), Some(&[2, 3][..]));
            let rows: Vec<i32> = output.into_vec().unwrap();
            assert_eq!((rows.as_ptr(), rows), (address, (0..6).collect()));
        }
    });
}

#[test]
fn a_message_of_another_form_fails_on_both_sides_and_the_next_one_passes() {
    let texts = Mutex::new(Vec::new());
    everywhere(2, |engine| {
        let rank = engine.group().rank();
        let form = MessageForm { dtype: DType::I32, shape: vec![4] };
        let wrong = match rank {
            0 => send(engine, 1, 2, vec![1_i32; 3]),
            _ => engine.receive(Source::Rank(0), 2, "numbers", Expected::Form(form)),
        };
        let error = wrong.wait().unwrap_err();
        assert!(error.is_recoverable());
        texts.lock().unwrap().push(error.to_string());
        match rank {
            0 => drop(send(engine, 1, 2, vec![7_i32; 4]).wait().unwrap()),
            _ => assert_eq!(message(receive(engine, 0, 2).wait_one()).1, [7; 4]),
        }
    });
    let texts = texts.into_inner().unwrap();
    let expected = "ranks disagree: message \"numbers\" (tag 2) from rank 0 to rank 1: different shapes: the sender \
                    brings i32 of shape [3], the receiver expects i32 of shape [4]";
    assert!(texts.len() == 8 && texts.iter().all(|text| text == expected), "{texts:#?}");
}

#[test]
fn what_cannot_be_is_refused_here() {
    each(Way::Memory, 2, &Settings::default(), |engine| {
        let rank = engine.group().rank();
        let text = |ticket: Ticket| ticket.wait().unwrap_err().to_string();
        assert!(text(send(engine, 2, 0, vec![1_i32])).contains("there is no rank 2 among 2"));
        assert!(text(receive(engine, rank, 0)).contains("with itself"));
        let short = engine.send(1 - rank, 0, "short", &[3], Tensor::from_vec(vec![1_i32]));
        assert!(text(short).contains("1 i32 do not make i32 of shape [3]"));
        let huge = Expected::Form(MessageForm { dtype: DType::F64, shape: vec![usize::MAX, 2] });
        assert!(text(engine.receive(Source::Any, 0, "huge", huge)).contains("there is no tensor of shape"));
    });
}

#[test]
fn ranks_that_wait_for_each_others_messages_are_told() {
    let texts = Mutex::new(Vec::new());
    each(Way::Memory, 2, &Settings::default(), |engine| {
        let rank = engine.group().rank();
        // One step together, repeated until it is an adopted order.
        (0..20).for_each(|_| drop(sum(engine, "step", vec![1.0_f32]).wait().unwrap()));
        let ticket = engine.receive(Source::Rank(1 - rank), 3, "the other's turn", Expected::Anything);
        let text = ticket.wait().unwrap_err().to_string();
        texts.lock().unwrap().push(text);
    });
    for text in texts.into_inner().unwrap() {
        let expected = "ranks wait for each other's messages: rank 0 waits for \"the other's turn\" (tag 3) from rank 1, \
                        rank 1 waits for \"the other's turn\" (tag 3) from rank 0; ";
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_message_under_way_is_no_deadlock() {
    everywhere(2, |engine| {
        let rank = engine.group().rank();
        // Both ranks wait nearly all the time, and every wait ends by a message.
        for round in 0..300_i32 {
            if rank == 0 {
                send(engine, 1, 0, vec![round]).wait().unwrap();
            }
            let (_, data, _) = message(receive(engine, 1 - rank, 0).wait_one());
            assert_eq!(data, [round]);
            if rank == 1 {
                send(engine, 0, 0, vec![round]).wait().unwrap();
            }
        }
    });
}

#[test]
fn a_long_wait_is_explained() {
    let warnings: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = warnings.clone();
    let settings = Settings {
        warn_after: Some(Duration::from_millis(200)),
        warn: Arc::new(move |text| heard.lock().unwrap().push(text.into())),
        current_work: Arc::new(|| Some("load (train.py:7)".into())),
        ..Settings::default()
    };
    let explained = || {
        let warnings = warnings.lock().unwrap();
        warnings.iter().any(|text| {
            text.contains("has waited for \"activations of micro-batch 3\" (tag 3) from rank 1")
                && text.contains(", which is")
                && text.contains("load (train.py:7)")
        })
    };
    each(Way::Memory, 3, &settings, |engine| match engine.group().rank() {
        2 => {
            let expected = Expected::Anything;
            let ticket = engine.receive(Source::Rank(1), 3, "activations of micro-batch 3", expected);
            assert_eq!(message(ticket.wait_one()).1, [1]);
        }
        1 => {
            until(explained);
            send(engine, 2, 3, vec![1_i32]).wait().unwrap();
        }
        _ => until(explained),
    });
}

#[test]
fn messages_are_seen_in_flight_record_counts_and_timeline() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("timeline.json");
    let settings = Settings { timeline: Some(file.clone()), ..Settings::default() };
    each(Way::Memory, 2, &settings, |engine| {
        let rank = engine.group().rank();
        match rank {
            0 => drop(engine.send(1, 4, "activations", &[2], Tensor::from_vec(vec![1_i32, 2])).wait().unwrap()),
            _ => drop(engine.receive(Source::Rank(0), 4, "activations", Expected::Anything).wait().unwrap()),
        }
        let (pid, descriptor) = engine.record_address();
        let record = Recorder::open(pid, descriptor).unwrap();
        let (first, last, kind) = match rank {
            0 => (Stage::Sending, Stage::Sent, CollectiveKind::Send),
            _ => (Stage::Receiving, Stage::Received, CollectiveKind::Receive),
        };
        let seen = |stage| record.read().iter().any(|entry| entry.stage == stage && entry.name == "activations");
        assert!(seen(first) && seen(last), "{:?}", record.read());
        let counts = record.counts();
        assert_eq!((counts.tensors(kind), counts.tensor_bytes(kind)), (1, 8));
        engine.barrier("end").unwrap();
    });
    let text = std::fs::read_to_string(&file).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for lane in ["messages to rank 1", "messages from rank 0"] {
        assert!(events.iter().any(|event| event["args"]["name"] == lane), "{lane}");
    }
    let messages = events.iter().filter(|event| event["name"] == "activations" && event["args"]["tag"] == 4);
    assert_eq!(messages.count(), 2);
}

#[test]
fn a_rank_that_leaves_is_missed_by_those_who_need_it_only() {
    let texts = Mutex::new(Vec::new());
    for way in Way::ALL {
        each(way, 3, &Settings::default(), |engine| match engine.group().rank() {
            // It sends one message, and it is read after this rank has left.
            0 => drop(send(engine, 1, 0, vec![5_i32; 100_000]).wait().unwrap()),
            1 => {
                assert_eq!(message(receive(engine, 0, 0).wait_one()).1, [5; 100_000]);
                let error = receive(engine, 0, 0).wait().unwrap_err();
                texts.lock().unwrap().push(error.to_string());
            }
            _ => {}
        });
    }
    for text in texts.into_inner().unwrap() {
        assert!(text.starts_with("\"numbers\" was not done: rank 0"), "{text}");
    }
}
