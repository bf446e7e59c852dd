use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::{
    Connectivity, Stitch,
    components::components,
    faces::{Layer, touching},
    overlap::same_objects,
};

/// Objects by flooding, one voxel after the other.
fn flood(classes: &[u32], sizes: [usize; 3], connectivity: Connectivity) -> Vec<u64> {
    let place = |at: [usize; 3]| (at[0] * sizes[1] + at[1]) * sizes[2] + at[2];
    let mut labels = vec![0; classes.len()];
    let mut next = 0;
    for voxel in 0..classes.len() {
        if classes[voxel] == 0 || labels[voxel] != 0 {
            continue;
        }
        next += 1;
        let mut open = vec![voxel];
        labels[voxel] = next;
        while let Some(voxel) = open.pop() {
            let at = [voxel / sizes[2] / sizes[1], voxel / sizes[2] % sizes[1], voxel % sizes[2]];
            for code in 0..27_usize {
                let step = [code / 9, code / 3 % 3, code % 3];
                let moves = step.iter().filter(|step| **step != 1).count();
                let to: Vec<usize> = (0..3).filter_map(|axis| (at[axis] + step[axis]).checked_sub(1)).collect();
                let inside = to.len() == 3 && to.iter().zip(sizes).all(|(at, size)| *at < size);
                if moves == 0 || (moves > 1 && connectivity == Connectivity::Faces) || !inside {
                    continue;
                }
                let other = place([to[0], to[1], to[2]]);
                if labels[other] == 0 && classes[other] == classes[voxel] {
                    labels[other] = next;
                    open.push(other);
                }
            }
        }
    }
    labels
}

/// Whether two arrays of labels have the same objects, whatever their names.
fn same(one: &[u64], two: &[u64]) -> bool {
    let (mut there, mut back) = (HashMap::new(), HashMap::new());
    one.iter().zip(two).all(|(a, b)| {
        (*a == 0) == (*b == 0) && *there.entry(*a).or_insert(*b) == *b && *back.entry(*b).or_insert(*a) == *a
    })
}

fn volume() -> impl Strategy<Value = ([usize; 3], Vec<u32>)> {
    (1_usize..7, 1_usize..7, 1_usize..14).prop_flat_map(|(a, b, c)| {
        let classes = prop::collection::vec(prop_oneof![3 => Just(0_u32), 4 => Just(1), 1 => Just(2)], a * b * c);
        (Just([a, b, c]), classes)
    })
}

fn connectivity() -> impl Strategy<Value = Connectivity> {
    prop_oneof![Just(Connectivity::Faces), Just(Connectivity::Corners)]
}

/// The part of an array between two places along its last axis.
fn slab<T: Copy>(values: &[T], sizes: [usize; 3], from: usize, to: usize) -> Vec<T> {
    values.chunks(sizes[2]).flat_map(|row| row[from..to].to_vec()).collect()
}

proptest! {
    #[test]
    fn components_are_what_flooding_finds((sizes, classes) in volume(), connectivity in connectivity()) {
        let (labels, objects) = components(&classes, &sizes, connectivity).unwrap();
        let want = flood(&classes, sizes, connectivity);
        prop_assert_eq!(objects, want.iter().copied().max().unwrap_or(0));
        prop_assert_eq!(labels, want, "in the order of their first voxels");
    }

    #[test]
    fn slabs_stitched_are_the_whole(
        (sizes, classes) in volume(), connectivity in connectivity(), cut in 0.0_f64..1.0, backwards: bool
    ) {
        let middle = (cut * sizes[2] as f64) as usize;
        let ends: Vec<usize> = [0, middle / 2, middle, sizes[2]].into_iter().collect::<HashSet<_>>().into_iter().collect();
        let mut ends = ends;
        ends.sort_unstable();
        let mut tiles = Vec::new();
        for pair in ends.windows(2) {
            let part = slab(&classes, sizes, pair[0], pair[1]);
            let size = [sizes[0], sizes[1], pair[1] - pair[0]];
            let (labels, objects) = components(&part, &size, connectivity).unwrap();
            tiles.push((size, part, labels, objects));
        }
        let counts = tiles.iter().enumerate().map(|(number, tile)| (number as u64, tile.3));
        let mut stitch = Stitch::new(counts).unwrap();
        let mut faces: Vec<usize> = (1..tiles.len()).collect();
        if backwards {
            faces.reverse();
        }
        for right in faces {
            let (a, b) = (&tiles[right - 1], &tiles[right]);
            let low = (slab(&a.2, a.0, a.0[2] - 1, a.0[2]), slab(&a.1, a.0, a.0[2] - 1, a.0[2]));
            let high = (slab(&b.2, b.0, 0, 1), slab(&b.1, b.0, 0, 1));
            let (low, high) = (Layer { labels: &low.0, classes: &low.1 }, Layer { labels: &high.0, classes: &high.1 });
            for (one, two) in touching(low, high, &sizes[..2], connectivity).unwrap() {
                let offset = |tile: usize| stitch.offset(tile as u64).unwrap();
                let (one, two) = (one + offset(right - 1), two + offset(right));
                stitch.join(one, two).unwrap();
            }
        }
        let offsets: Vec<u64> = (0..tiles.len()).map(|tile| stitch.offset(tile as u64).unwrap()).collect();
        let names = stitch.finish();
        let (want, objects) = components(&classes, &sizes, connectivity).unwrap();
        prop_assert_eq!(names.objects(), objects);
        let mut got = vec![0; classes.len()];
        for (number, pair) in ends.windows(2).enumerate() {
            let own = |label: &u64| if *label == 0 { 0 } else { label + offsets[number] };
            let mut labels: Vec<u64> = tiles[number].2.iter().map(own).collect();
            names.rename(&mut labels).unwrap();
            for (row, part) in got.chunks_mut(sizes[2]).zip(labels.chunks(pair[1] - pair[0])) {
                row[pair[0]..pair[1]].copy_from_slice(part);
            }
        }
        prop_assert!(same(&got, &want));
    }
}

#[test]
fn names_do_not_depend_on_the_order_of_joining() {
    // Tile 0 has labels 1 to 3, tile 1 has 4 and 5, tile 2 has 6 and 7.
    let pairs = [(3, 4), (5, 7), (1, 7), (4, 6)];
    let name = |order: &[usize]| {
        let mut stitch = Stitch::new([(2, 2), (0, 3), (1, 2)]).unwrap();
        assert_eq!([0, 1, 2, 3].map(|tile| stitch.offset(tile)), [Some(0), Some(3), Some(5), None]);
        order.iter().for_each(|at| stitch.join(pairs[*at].0, pairs[*at].1).unwrap());
        let names = stitch.finish();
        let mut labels = [0, 1, 2, 3, 4, 5, 6, 7];
        names.rename(&mut labels).unwrap();
        (labels, names.objects())
    };
    let want = ([0, 1, 2, 3, 3, 1, 3, 1], 3);
    assert_eq!((name(&[0, 1, 2, 3]), name(&[3, 2, 1, 0]), name(&[2, 0, 3, 1])), (want, want, want));
}

#[test]
fn labels_that_do_not_exist_are_named() {
    let mut stitch = Stitch::new([(7, 2)]).unwrap();
    assert_eq!(stitch.join(1, 3).unwrap_err().to_string(), "there are labels 1 to 2, and not 3");
    assert!(stitch.join(0, 1).is_err());
    assert!(stitch.finish().rename(&mut [1, 9]).is_err());
    assert!(Stitch::new([(0, 1 << 40)]).is_err());
}

#[test]
fn a_best_match_must_be_mutual() {
    // Object 1 of one tile lies over 1 and 2 of the other; only the better one is it.
    let one = [1, 1, 1, 1, 1, 2, 2, 0];
    let two = [1, 1, 1, 2, 2, 3, 3, 3];
    assert_eq!(same_objects(&one, &two, 0.3).unwrap(), [(1, 1), (2, 3)]);
    assert_eq!(same_objects(&one, &two, 0.65).unwrap(), [(2, 3)]);
}
