use std::collections::HashSet;

use proptest::prelude::*;

use super::{
    choose::{Limits, choose},
    halo::Halo,
    order::{Queue, ordered},
    plan::{Plan, PlanSpec, Reads},
    region::{Extent, Region},
};

fn extent(sizes: &[u64]) -> Extent {
    Extent::new(sizes).unwrap()
}

/// Sizes, chunk, chunks per core, halo, stride of one axis.
fn axis() -> impl Strategy<Value = (u64, u64, u64, Halo)> {
    let halo = (-3_i64..20, -3_i64..20, 1_u64..6).prop_map(|(before, after, stride)| Halo {
        before,
        after,
        input: stride,
        output: stride,
    });
    (1_u64..60, 1_u64..12, 1_u64..5, halo)
}

fn spec(axes: &[(u64, u64, u64, Halo)], uniform: bool, wanted: Option<Region>) -> PlanSpec {
    let pick = |f: fn(&(u64, u64, u64, Halo)) -> u64| extent(&axes.iter().map(f).collect::<Vec<_>>());
    PlanSpec {
        input: pick(|axis| axis.0),
        output: pick(|axis| axis.0),
        chunk: pick(|axis| axis.1),
        core: pick(|axis| axis.1 * axis.2),
        halo: axes.iter().map(|axis| axis.3).collect(),
        reads: if uniform { Reads::Alike } else { Reads::Least },
        wanted,
    }
}

fn voxels(region: &Region) -> Vec<Vec<u64>> {
    let mut all = vec![vec![]];
    for (start, end) in region.start().iter().zip(region.end()) {
        all = all.iter().flat_map(|v| (*start..end).map(|at| [v.as_slice(), &[at]].concat())).collect();
    }
    all
}

proptest! {
    #[test]
    fn cores_divide_the_volume_and_no_chunk_has_two_tiles(axes in prop::collection::vec(axis(), 1..3), uniform: bool) {
        let spec = spec(&axes, uniform, None);
        let plan = Plan::new(spec.clone()).unwrap();
        let (mut seen, mut chunks) = (HashSet::new(), HashSet::new());
        for number in 0..plan.tiles() {
            let tile = plan.tile(number);
            prop_assert_eq!(tile.number, number);
            let mut own = HashSet::new();
            for voxel in voxels(&tile.core) {
                own.insert(voxel.iter().zip(spec.chunk.sizes()).map(|(at, chunk)| at / chunk).collect::<Vec<_>>());
                prop_assert!(seen.insert(voxel));
            }
            for chunk in own {
                prop_assert!(chunks.insert(chunk));
            }
        }
        prop_assert_eq!(seen.len() as u64, spec.output.voxels());
    }

    #[test]
    fn what_is_read_covers_the_halo_and_keeps_the_stride(axes in prop::collection::vec(axis(), 1..4), uniform: bool) {
        let spec = spec(&axes, uniform, None);
        let plan = Plan::new(spec.clone()).unwrap();
        let largest = plan.largest_read();
        for number in 0..plan.tiles() {
            let tile = plan.tile(number);
            prop_assert!(tile.read.is_within(&spec.input));
            for axis in 0..axes.len() {
                let (halo, size) = (spec.halo[axis], spec.input.sizes()[axis] as i64);
                let (begin, end) = (tile.read.start()[axis] as i64, tile.read.end()[axis] as i64);
                let core = (tile.core.start()[axis] as i64, tile.core.end()[axis] as i64);
                prop_assert!(begin <= (core.0 - halo.before).clamp(0, size - 1));
                prop_assert!(end >= (core.1 + halo.after).clamp(1, size));
                prop_assert_eq!(begin as u64 % halo.input, 0);
                prop_assert_eq!((size - end) as u64 % halo.input, 0);
                prop_assert_eq!(tile.crop.start()[axis] as i64, (core.0 - begin).max(0));
                prop_assert!(tile.read.size()[axis] <= largest.sizes()[axis]);
                if uniform {
                    prop_assert_eq!(tile.read.size()[axis], largest.sizes()[axis]);
                }
            }
        }
        let sum: u128 = (0..plan.tiles()).map(|number| u128::from(plan.tile(number).read.voxels())).sum();
        prop_assert_eq!(sum, plan.voxels_read());
    }

    #[test]
    fn a_wanted_region_is_divided_exactly(
        axes in prop::collection::vec(axis(), 2), cuts in prop::collection::vec((0.0..1.0, 0.0..1.0), 2)
    ) {
        let part = |size: u64, (a, b): (f64, f64)| {
            let start = (a * size as f64) as u64;
            (start, 1 + (b * (size - start - 1) as f64) as u64)
        };
        let parts: Vec<(u64, u64)> = axes.iter().zip(cuts).map(|(axis, cut)| part(axis.0, cut)).collect();
        let wanted = Region::new(
            parts.iter().map(|part| part.0).collect::<Vec<_>>(),
            parts.iter().map(|part| part.1).collect::<Vec<_>>(),
        ).unwrap();
        let plan = Plan::new(spec(&axes, false, Some(wanted.clone()))).unwrap();
        let cores: Vec<Region> = (0..plan.tiles()).map(|number| plan.tile(number).core).collect();
        prop_assert!(cores.iter().all(|core| !core.is_empty() && wanted.contains(core)));
        prop_assert_eq!(cores.iter().map(Region::voxels).sum::<u64>(), wanted.voxels());
    }

    #[test]
    fn each_tile_is_a_neighbour_of_the_one_before(shape in prop::collection::vec(1_u64..6, 1..4)) {
        let axes: Vec<_> = shape.iter().map(|count| (count * 4, 4, 1, Halo::NONE)).collect();
        let plan = Plan::new(spec(&axes, false, None)).unwrap();
        let order = ordered(&plan, |_| Ok(true)).unwrap();
        prop_assert_eq!(order.iter().collect::<HashSet<_>>().len() as u64, plan.tiles());
        for pair in order.windows(2) {
            let (a, b) = (plan.tile(pair[0]).core, plan.tile(pair[1]).core);
            let distance: u64 = a.start().iter().zip(b.start()).map(|(a, b)| a.abs_diff(*b)).sum();
            prop_assert_eq!(distance, 4);
        }
    }

    #[test]
    fn every_tile_is_finished_once_whoever_is_lost(
        count in 0_usize..40, workers in 1_usize..5, events in prop::collection::vec((0_usize..5, 0_u8..4), 0..200)
    ) {
        let mut queue = Queue::new((0..count as u64).collect(), workers);
        let (mut held, mut done) = (vec![Vec::new(); 5], HashSet::new());
        let end = (0..400).map(|turn| (turn % 5, [0, 2][turn / 5 % 2]));
        for (worker, event) in events.into_iter().chain(end) {
            match event {
                0 => held[worker].extend(queue.next(worker)),
                1 => held[worker].extend(queue.again(worker)),
                2 => {
                    for tile in std::mem::take(&mut held[worker]) {
                        prop_assert_eq!(queue.finish(tile), done.insert(tile));
                    }
                }
                _ => { queue.lose(worker); held[worker].clear(); }
            }
        }
        prop_assert_eq!(done.len(), count);
        prop_assert_eq!(queue.left(), (0, 0));
    }
}

#[test]
fn a_free_worker_takes_half_of_the_longest_stretch() {
    let mut queue = Queue::new((0..8).collect(), 2);
    assert_eq!((queue.next(0), queue.next(1), queue.next(1)), (Some(0), Some(4), Some(5)));
    assert_eq!(queue.next(2), Some(2), "tiles 1 to 3 were left to worker 0");
    assert_eq!(queue.next(0), Some(1));
    assert_eq!(queue.next(0), Some(7), "and of the two that worker 1 had left, one");
}

#[test]
fn a_tile_ends_where_the_volume_ends() {
    let axis = (100, 32, 1, Halo::symmetric(6, 4));
    let plan = Plan::new(spec(&[axis], false, None)).unwrap();
    let reads: Vec<String> = (0..4).map(|number| plan.tile(number).read.to_string()).collect();
    assert_eq!(reads, ["[0..40]", "[24..72]", "[56..100]", "[88..100]"]);
    assert!((plan.cost() - 1.44).abs() < 1e-9);
}

#[test]
fn shared_chunks_and_regions_outside_are_refused() {
    let mut wrong = spec(&[(100, 32, 1, Halo::NONE)], false, None);
    wrong.core = extent(&[48]);
    assert!(Plan::new(wrong).unwrap_err().hint().unwrap().contains("multiple of 32"));
    let outside = Region::new([90], [20]).unwrap();
    let problem = Plan::new(spec(&[(100, 32, 1, Halo::NONE)], false, Some(outside))).unwrap_err();
    assert!(problem.to_string().contains("[90..110]"), "{problem}");
}

#[test]
fn tiles_grow_as_far_as_the_memory_goes() {
    let axis = (256, 32, 1, Halo::symmetric(8, 1));
    let limits = |memory| Limits { memory, tiles: 1 };
    let bytes = |read: &Extent, _: &Extent| read.voxels() * 4;
    let sizes =
        |memory| choose(spec(&[axis; 3], false, None), limits(memory), bytes).map(|plan| plan.spec().core.clone());
    assert_eq!(sizes(80 * 80 * 80 * 4).unwrap(), extent(&[64, 64, 64]));
    assert_eq!(sizes(u64::MAX).unwrap(), extent(&[256, 256, 256]));
    let problem = sizes(1000).unwrap_err();
    assert!(problem.to_string().contains("32 × 32 × 32") && problem.hint().is_some(), "{problem}");
    let shared = choose(spec(&[axis; 3], false, None), Limits { memory: u64::MAX, tiles: 8 }, bytes).unwrap();
    assert!(shared.tiles() >= 8);
    // 192 voxels in two tiles: 96 and 96, not 160 and 32.
    let halves = choose(spec(&[(192, 32, 1, Halo::NONE)], false, None), Limits { memory: u64::MAX, tiles: 2 }, bytes);
    assert_eq!(halves.unwrap().spec().core, extent(&[96]));
}

#[test]
fn a_model_with_a_fixed_input_reads_that_much_everywhere() {
    let mut fixed = spec(&[(100, 8, 1, Halo::symmetric(6, 4))], false, None);
    fixed.reads = Reads::Exactly(extent(&[48]));
    let plan = choose(fixed.clone(), Limits { memory: u64::MAX, tiles: 1 }, |read, _| read.voxels()).unwrap();
    assert_eq!(plan.spec().core, extent(&[32]));
    let reads: Vec<String> = (0..plan.tiles()).map(|number| plan.tile(number).read.to_string()).collect();
    assert_eq!(reads, ["[0..48]", "[24..72]", "[52..100]", "[52..100]"]);
    for (width, why) in [(104, "has 100"), (46, "no multiple"), (16, "needs 24")] {
        fixed.reads = Reads::Exactly(extent(&[width]));
        let problem = Plan::new(fixed.clone()).unwrap_err();
        assert!(problem.to_string().contains(why) && problem.hint().is_some(), "{problem}");
    }
}
