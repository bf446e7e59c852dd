//! NCCL libraries that are refused, calls that fail, and ranks that never come, with the stand-in for NCCL.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
    sync::mpsc::channel,
    thread,
};

use sirtaki_comm::{
    CommError, DType, ReduceOp, Reduction, Stopper,
    device::{DeviceMemory, Nccl, NcclGroup, UniqueId},
};
use sirtaki_tests::{
    data::Data,
    stand_in::{Killed, Member, alone, another, connect, download, each, finish, gpu, library, nccl, turn, upload},
    wait,
};

#[test]
fn the_library_says_what_it_is() {
    let _turn = turn();
    let nccl = nccl();
    assert_eq!(nccl.version(), "2.28.9");
    assert_eq!(nccl.path().canonicalize().unwrap(), library().canonicalize().unwrap());
    assert_ne!(nccl.unique_id().unwrap(), nccl.unique_id().unwrap());
}

#[test]
fn a_version_that_is_too_old_is_refused_by_name() {
    if alone("a_version_that_is_too_old_is_refused_by_name", &[("STAND_IN_NCCL_VERSION", "21304")]) {
        let error = Nccl::load(Some(&library())).unwrap_err().to_string();
        assert!(error.contains("libsirtaki_stand_in.so"), "{error}");
        assert!(error.contains("it is version 2.13.4, and 2.14.0 or later is needed"), "{error}");
    }
}

#[test]
fn the_oldest_version_that_will_do_is_taken() {
    if alone("the_oldest_version_that_will_do_is_taken", &[("STAND_IN_NCCL_VERSION", "21403")]) {
        assert_eq!(nccl().version(), "2.14.3");
    }
}

#[test]
fn a_library_without_a_function_is_refused() {
    if !alone("a_library_without_a_function_is_refused", &[]) {
        return;
    }
    // A symbol of another name is found no more.
    let mut bytes = fs::read(library()).unwrap();
    let (known, unknown) = (b"\0ncclRedOpDestroy\0", b"\0ncclRedOpDestrox\0");
    let places: Vec<usize> =
        bytes.windows(known.len()).enumerate().filter(|(_, name)| name == known).map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places.iter().for_each(|at| bytes[*at..at + known.len()].copy_from_slice(unknown));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("libnccl.so.2");
    fs::write(&path, bytes).unwrap();
    let error = Nccl::load(Some(&path)).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()) && error.contains("ncclRedOpDestroy"), "{error}");
}

#[test]
fn a_library_that_is_not_nccl_is_refused() {
    if alone("a_library_that_is_not_nccl_is_refused", &[]) {
        let error = Nccl::load(Some(Path::new("libc.so.6"))).unwrap_err().to_string();
        assert!(error.contains("libc.so.6") && error.contains("does not say which version"), "{error}");
    }
}

#[test]
fn a_call_that_fails_is_an_error_that_says_why() {
    if !alone("a_call_that_fails_is_an_error_that_says_why", &[("STAND_IN_NCCL_FAIL", "3")]) {
        return;
    }
    each(2, |member| {
        let (_memory, view) = upload(&Data::new(DType::F32, &[1.0]), &member.stream);
        member.group.all_reduce(&[view, view], Reduction::SUM, &member.stream).unwrap();
        let error = member.group.all_reduce(&[view], Reduction::SUM, &member.stream).unwrap_err();
        assert!(matches!(error, CommError::Device { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("NCCL 2.28.9") && text.contains("unhandled system error"), "{text}");
        assert!(text.contains("call 3 fails, as it was told"), "{text}");
        // What was before is done, and nothing else.
        assert_eq!(download(view, &member.stream).numbers(), [4.0]);
    });
}

#[test]
fn a_failure_that_shows_later_is_noticed() {
    if !alone("a_failure_that_shows_later_is_noticed", &[("STAND_IN_NCCL_FAIL_LATER", "1")]) {
        return;
    }
    each(2, |member| {
        let (_memory, view) = upload(&Data::new(DType::F32, &[1.0]), &member.stream);
        // Whether the call itself says so depends on how fast the stream is.
        let called = member.group.all_reduce(&[view], Reduction::SUM, &member.stream);
        wait::until("the failure", || member.group.check().is_err());
        for error in [called.err(), member.group.check().err()].into_iter().flatten() {
            assert!(error.to_string().contains("unhandled system error"), "{error}");
        }
        assert!(member.group.all_reduce(&[view], Reduction::SUM, &member.stream).is_err());
        finish(&member.stream);
    });
}

#[test]
fn a_reduction_that_nccl_does_not_have_leaves_the_group_usable() {
    let _turn = turn();
    each(2, |member| {
        let (_floats, floats) = upload(&Data::new(DType::F32, &[1.0, 2.0]), &member.stream);
        let (_integers, integers) = upload(&Data::new(DType::I32, &[1.0, 2.0]), &member.stream);
        let error = member.group.all_reduce(&[floats, integers], Reduction::AVERAGE, &member.stream).unwrap_err();
        assert!(matches!(error, CommError::Invalid { .. }) && error.to_string().contains("i32"), "{error}");
        member.group.all_reduce(&[integers], Reduction::new(ReduceOp::Max), &member.stream).unwrap();
        assert_eq!(download(integers, &member.stream).numbers(), [1.0, 2.0]);
    });
}

#[test]
fn ranks_that_do_different_things_fail_instead_of_waiting() {
    let _turn = turn();
    each(2, |member| {
        let count = 1 + member.rank;
        let (_memory, view) = upload(&Data::zeros(DType::F32, count), &member.stream);
        let _ = member.group.all_reduce(&[view], Reduction::SUM, &member.stream);
        wait::until("the failure", || member.group.check().is_err());
        let error = member.group.check().unwrap_err().to_string();
        assert!(error.contains("internal error") && error.contains("does something else"), "{error}");
    });
}

#[test]
fn connecting_ends_when_it_is_told_to() {
    let _turn = turn();
    let (id, stopper) = (nccl().unique_id().unwrap(), Stopper::new());
    let stop = stopper.clone();
    let (ready, begun) = channel();
    let rank = thread::spawn(move || {
        let gpu = gpu(0);
        ready.send(()).unwrap();
        NcclGroup::connect(nccl(), gpu, id, (0, 2), stopper)
    });
    begun.recv().unwrap();
    stop.stop("rank 1 died");
    let error = rank.join().unwrap().unwrap_err();
    assert!(matches!(&error, CommError::Stopped { reason } if reason == "rank 1 died"), "{error:?}");
}

#[test]
fn a_group_that_is_stopped_ends_what_is_queued() {
    let _turn = turn();
    let mut ranks = connect(2);
    let Member { group, stream, stopper, .. } = &mut ranks[0];
    let (_memory, view) = upload(&Data::new(DType::F32, &[1.0]), stream);
    group.all_reduce(&[view], Reduction::SUM, stream).unwrap();
    assert!(!stream.is_done().unwrap());
    stopper.stop("rank 1 died");
    finish(stream);
    wait::until("the group to be gone", || group.check().is_err());
    let error = group.all_reduce(&[view], Reduction::SUM, stream).unwrap_err();
    assert!(matches!(error, CommError::Stopped { .. }), "{error:?}");
}

#[test]
fn a_group_that_is_stopped_ends_a_call_that_waits_for_others() {
    if !alone("a_group_that_is_stopped_ends_a_call_that_waits_for_others", &[("STAND_IN_NCCL_LAZY", "1")]) {
        return;
    }
    each(2, |member| {
        let (_memory, view) = upload(&Data::new(DType::F32, &[1.0]), &member.stream);
        member.group.all_reduce(&[view], Reduction::SUM, &member.stream).unwrap();
        assert_eq!(download(view, &member.stream).numbers(), [2.0]);
    });
    let mut ranks = connect(2);
    let mut member = ranks.remove(0);
    let (stop, (ready, begun)) = (member.stopper.clone(), channel());
    let rank = thread::spawn(move || {
        let (_memory, view) = upload(&Data::new(DType::F32, &[1.0]), &member.stream);
        ready.send(()).unwrap();
        member.group.all_reduce(&[view], Reduction::SUM, &member.stream)
    });
    begun.recv().unwrap();
    stop.stop("rank 1 died");
    assert!(rank.join().unwrap().is_err());
}

#[test]
fn a_rank_is_refused_that_does_not_fit() {
    let _turn = turn();
    let id = nccl().unique_id().unwrap();
    let connect = |id: UniqueId, place| NcclGroup::connect(nccl(), gpu(0), id, place, Stopper::new());
    let error = connect([7; 128], (0, 1)).unwrap_err().to_string();
    assert!(error.contains("cannot connect its ranks: invalid argument"), "{error}");
    assert!(connect(id, (2, 2)).is_err());
    connect(id, (0, 1)).unwrap();
    assert!(connect(id, (0, 1)).is_err(), "an identity is used once");
}

#[test]
fn an_abort_ends_what_is_queued_and_gives_memory_back() {
    let _turn = turn();
    let mut ranks = connect(2);
    let Member { group, stream, .. } = &mut ranks[0];
    let (memory, view) = upload(&Data::new(DType::F32, &[1.0]), stream);
    // The other rank never comes.
    for _ in 0..3 {
        group.all_reduce(&[view], Reduction::SUM, stream).unwrap();
    }
    let event = stream.record().unwrap();
    drop(memory);
    assert!(!event.is_past().unwrap() && !stream.is_done().unwrap());
    group.check().unwrap();
    group.abort();
    finish(stream);
    assert!(event.is_past().unwrap());
    assert!(group.all_reduce(&[view], Reduction::SUM, stream).is_err());
    // Waits for everything that the device has to do.
    drop(DeviceMemory::new(stream.gpu(), 1).unwrap());
}

#[test]
fn an_abort_ends_transfers() {
    let _turn = turn();
    let mut ranks = connect(2);
    let Member { group, stream, .. } = &mut ranks[1];
    let (_memory, view) = upload(&Data::zeros(DType::U8, 4), stream);
    group.all_to_all((view, &[2, 2]), (view, &[2, 2]), stream).unwrap();
    assert!(!stream.is_done().unwrap());
    group.abort();
    finish(stream);
}

/// One rank that is a process: it says when a first collective is done, and queues a second one.
#[allow(clippy::print_stdout, reason = "the test that started it reads this")]
fn rank_of_two(text: &str) {
    let id: UniqueId = std::array::from_fn(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap());
    let rank: usize = env::var("TEST_RANK").unwrap().parse().unwrap();
    let mut member = Member::connect(id, rank, 2);
    let (_memory, view) = upload(&Data::new(DType::F64, &[1.0, rank as f64]), &member.stream);
    member.group.all_reduce(&[view], Reduction::SUM, &member.stream).unwrap();
    assert_eq!(download(view, &member.stream).numbers(), [2.0, 1.0]);
    println!("did");
    if rank == 1 {
        // Until it is killed.
        loop {
            thread::park();
        }
    }
    member.group.all_reduce(&[view], Reduction::SUM, &member.stream).unwrap();
    println!("queued");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert!(!member.stream.is_done().unwrap());
    member.group.abort();
    finish(&member.stream);
}

#[test]
fn ranks_may_be_processes_and_a_killed_one_leaves_nothing_behind() {
    let _turn = turn();
    let test = "ranks_may_be_processes_and_a_killed_one_leaves_nothing_behind";
    if let Ok(id) = env::var("TEST_ID") {
        return rank_of_two(&id);
    }
    let id: String = nccl().unique_id().unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |rank: &str| {
        let mut command = another(test, &[("TEST_ID", &id), ("TEST_RANK", rank)]);
        let mut child = Killed(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
        (child, lines.map_while(Result::ok))
    };
    let (mut first, mut said) = start("0");
    let (second, mut said_by_second) = start("1");
    assert!(said_by_second.any(|line| line.ends_with("did")) && said.any(|line| line.ends_with("did")));
    assert!(said.any(|line| line == "queued"));
    drop(second);
    drop(first.0.stdin.take());
    assert!(said.any(|line| line.contains("1 passed")));
    assert!(first.0.wait().unwrap().success());
    let left: Vec<_> = fs::read_dir("/dev/shm").unwrap().filter_map(Result::ok).map(|entry| entry.path()).collect();
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("stand-in")), "{left:?}");
}

#[test]
fn a_group_that_is_left_keeps_no_descriptor() {
    if !alone("a_group_that_is_left_keeps_no_descriptor", &[]) {
        return;
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    each(2, |_| ());
    let before = open();
    for _ in 0..3 {
        each(2, |_| ());
        connect(2);
    }
    assert_eq!(open(), before);
}
