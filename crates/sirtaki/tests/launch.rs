//! Closures on several processes: results by rank, and the first error.

#![allow(clippy::unwrap_used, reason = "a test that fails has to panic")]

use std::{convert::Infallible, sync::Mutex};

use sirtaki::{Error, LaunchError, World, launch, mirrored};
use sirtaki_comm::{DType, Reduction};
use sirtaki_engine::{Operation, Output, Request, Tensor};

fn sum(world: &World, mine: f32) -> f32 {
    let request = Request::new("sum", Operation::AllReduce(Reduction::SUM), DType::F32, &[1]);
    match world.engine().submit(request, Tensor::from_vec(vec![mine])).wait_one().unwrap() {
        Output::Tensor(tensor, _) => bytemuck::pod_read_unaligned(tensor.bytes()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn results_come_by_rank_and_calls_follow_each_other() {
    let first = launch(3, |world| Ok::<_, Infallible>((world.rank(), sum(world, world.rank() as f32)))).unwrap();
    assert_eq!(first, [(0, 3.0), (1, 3.0), (2, 3.0)]);
    // Ranks of this call need what the one before returned, and get it.
    let pids = launch(2, |world| Ok::<_, Infallible>((std::process::id(), sum(world, first[2].1)))).unwrap();
    assert!(pids.iter().all(|&(pid, sum)| pid != std::process::id() && sum == 6.0), "{pids:?}");
    for round in 0..2 {
        let rounds = launch(2, |world| Ok::<_, Infallible>(sum(world, round as f32))).unwrap();
        assert_eq!(rounds, [2.0 * round as f32; 2]);
    }
}

#[test]
fn the_first_error_is_returned_and_the_others_end() {
    let error = launch(3, |world| match world.rank() {
        1 => Err("no data here"),
        _ => Ok(sum(world, 1.0)),
    });
    assert_eq!(error, Err(LaunchError::Rank { rank: 1, message: "no data here".into() }));
}

#[test]
fn a_rank_that_panics_or_is_killed_is_named() {
    let error = launch(2, |world| {
        assert_eq!(world.rank(), 0, "this rank is odd");
        Ok::<_, Infallible>(())
    });
    let Err(LaunchError::Ended { rank: 1, last_lines, .. }) = error else { panic!("{error:?}") };
    assert!(last_lines.iter().any(|line| line.contains("this rank is odd")), "{last_lines:?}");
    let error = launch(2, |world| {
        if world.rank() == 0 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
        Ok::<_, Infallible>(())
    });
    let Err(LaunchError::Ended { rank: 0, how, .. }) = error else { panic!("{error:?}") };
    assert!(how.contains("SIGKILL"), "{how}");
}

#[test]
fn ranks_that_end_at_the_same_time_leave_their_own_results() {
    for _ in 0..5 {
        let ranks = launch(8, |world| world.engine().barrier("end").map(|()| world.rank()));
        assert_eq!(ranks.unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

#[test]
fn threads_are_ranks_too() {
    let calls = Mutex::new(Vec::new());
    let ranks = mirrored(4, |world| {
        calls.lock().unwrap().push(world.rank());
        let half = world.split(world.rank() as u64 % 2)?;
        Ok::<_, Error>((world.rank(), world.local_size(), half.sum(world.rank() as f64)?, sum(world, 1.0)))
    });
    assert_eq!(ranks.unwrap(), [(0, 4, 2.0, 4.0), (1, 4, 4.0, 4.0), (2, 4, 2.0, 4.0), (3, 4, 4.0, 4.0)]);
    assert_eq!(calls.lock().unwrap().len(), 4);
    // One device is the process itself.
    let thread = std::thread::current().id();
    let alone = mirrored(1, |world| Ok::<_, Error>((world.size(), std::thread::current().id()))).unwrap();
    assert_eq!(alone, [(1, thread)]);
}

#[test]
fn a_device_that_fails_ends_the_others_with_its_own_error() {
    let error = mirrored(3, |world| match world.rank() {
        1 => Err(Error::setting("no data here", "bring some")),
        _ => world.sum(1.0),
    });
    assert_eq!(error.unwrap_err().to_string(), "no data here");
    let panic = std::panic::catch_unwind(|| {
        mirrored(2, |world| {
            assert_eq!(world.rank(), 0, "this device is odd");
            world.sum(1.0)
        })
    });
    let panic = panic.unwrap_err();
    assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("this device is odd")));
    // Nothing is left over: the next one works.
    assert_eq!(mirrored(2, |world| world.sum(1.0)).unwrap(), [2.0; 2]);
}
