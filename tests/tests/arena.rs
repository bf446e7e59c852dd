//! Ranks that share memory pass all checks.

use sirtaki_comm::{Communicator, DType, ReduceOp, Reduction, SliceMut, collective::Algorithm};
use sirtaki_tests::{make, team::Team};

sirtaki_tests::conformance!(arena, make::arena, [2, 3, 4, 7]);

/// The same with every algorithm a user may force.
fn forced(algorithm: Algorithm) -> impl Fn(usize) -> Vec<Box<dyn Communicator>> + Sync {
    move |size| {
        let mut ranks = make::arena(size);
        ranks.iter_mut().for_each(|comm| comm.force(Some(algorithm)).expect("every algorithm is there"));
        ranks
    }
}

sirtaki_tests::conformance!(over_rings, forced(Algorithm::Ring), [3]);
sirtaki_tests::conformance!(by_halving, forced(Algorithm::Halving), [5]);

fn in_small_pieces(size: usize) -> Vec<Box<dyn Communicator>> {
    let mut ranks = make::arena(size);
    ranks.iter_mut().for_each(|comm| comm.set_piece(Some(1000)));
    ranks
}

sirtaki_tests::conformance!(in_pieces, in_small_pieces, [3]);

#[test]
fn pieces_of_different_sizes_are_noticed() {
    let texts = Team::new(&make::arena, 2).each(|comm| {
        comm.set_piece((comm.group().rank() == 1).then_some(4096));
        comm.all_reduce((&mut vec![0_f32; 100_000]).into(), Reduction::SUM).unwrap_err().to_string()
    });
    assert!(texts.iter().all(|text| text.contains("pieces")), "{texts:?}");
}

#[test]
fn buffers_in_shared_memory_are_reduced_in_place() {
    for size in [2, 3, 4] {
        Team::new(&make::arena, size).each(|comm| {
            let rank = comm.group().rank();
            let mut buffer = comm.buffer(400_004).unwrap();
            for (op, expected) in [(ReduceOp::Sum, size * (size + 1) / 2), (ReduceOp::Max, size)] {
                bytemuck::cast_slice_mut(&mut buffer).fill(rank as f32 + 1.0);
                comm.all_reduce(SliceMut::new(DType::F32, &mut buffer).unwrap(), Reduction::new(op)).unwrap();
                assert!(bytemuck::cast_slice(&buffer).iter().all(|&x: &f32| x == expected as f32));
            }
            // Parts at different offsets cannot be reduced in place, but they are reduced.
            bytemuck::cast_slice_mut(&mut buffer).fill(1.0_f32);
            let part = &mut buffer[rank * 8..rank * 8 + 100_000];
            comm.all_reduce(SliceMut::new(DType::F32, part).unwrap(), Reduction::SUM).unwrap();
            assert!(bytemuck::cast_slice(part).iter().all(|&x: &f32| x == size as f32));
        });
    }
}

#[test]
fn a_rank_that_waits_for_a_message_hears_of_others_that_differ() {
    let results = Team::new(&make::arena, 3).each(|comm| match comm.group().rank() {
        0 => comm.receive((&mut vec![0_u8; 9]).into(), 1),
        1 => comm.all_reduce((&mut vec![0_f32; 5]).into(), Reduction::SUM),
        _ => comm.barrier(),
    });
    let texts: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
    assert!(texts[0].contains("all_reduce(sum) of 5 f32") && texts[0].contains("barrier"), "{}", texts[0]);
}

#[test]
fn a_panic_in_one_rank_is_told_to_the_others() {
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let join = |(rank, mut comm): (usize, Box<dyn Communicator>)| {
            scope.spawn(move || {
                assert!(rank != 1, "this rank fails on purpose");
                comm.barrier().map_err(|error| error.to_string())
            })
        };
        let threads: Vec<_> = make::arena(3).into_iter().enumerate().map(join).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for rank in [0, 2] {
        let text = outcomes[rank].as_ref().unwrap().as_ref().unwrap_err();
        assert!(text.contains("rank 1 ") && text.contains("panicked"), "{text}");
    }
}
