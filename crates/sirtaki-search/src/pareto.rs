//! Which points no other point beats in every objective. All objectives are losses: less is better.

/// Whether `a` is nowhere worse than `b` and somewhere better.
pub fn dominates(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a.iter().zip(b).any(|(a, b)| a < b)
}

/// The front to which each point belongs: 0 for those that no other dominates, 1 for those that only these dominate, and
/// so on.
pub fn ranks(losses: &[&[f64]]) -> Vec<usize> {
    let mut ranks = vec![0; losses.len()];
    // In lexical order a point can be dominated by earlier ones only.
    let mut order: Vec<usize> = (0..losses.len()).collect();
    let lexical = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne());
    order.sort_by(|&a, &b| lexical(losses[a], losses[b]).unwrap_or(std::cmp::Ordering::Equal));
    let mut fronts: Vec<Vec<usize>> = Vec::new();
    for point in order {
        let beaten = |front: &Vec<usize>| front.iter().rev().any(|&other| dominates(losses[other], losses[point]));
        let rank = fronts.iter().position(|front| !beaten(front)).unwrap_or(fronts.len());
        if rank == fronts.len() {
            fronts.push(Vec::new());
        }
        fronts[rank].push(point);
        ranks[point] = rank;
    }
    ranks
}

/// How far each point of one front is from its neighbours, in widths of the front; infinite at its ends.
pub fn crowding(losses: &[&[f64]]) -> Vec<f64> {
    let mut distance = vec![0.0; losses.len()];
    let objectives = losses.first().map_or(0, |loss| loss.len());
    for objective in 0..objectives {
        let mut order: Vec<usize> = (0..losses.len()).collect();
        order.sort_by(|&a, &b| losses[a][objective].total_cmp(&losses[b][objective]));
        let (Some(&first), Some(&last)) = (order.first(), order.last()) else { continue };
        distance[first] = f64::INFINITY;
        distance[last] = f64::INFINITY;
        let width = losses[last][objective] - losses[first][objective];
        if width > 0.0 {
            for triple in order.windows(3) {
                distance[triple[1]] += (losses[triple[2]][objective] - losses[triple[0]][objective]) / width;
            }
        }
    }
    distance
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ends_of_a_front_are_the_least_crowded() {
        let points: [&[f64]; 4] = [&[0.0, 4.0], &[1.0, 3.0], &[1.1, 2.9], &[4.0, 0.0]];
        let distance = crowding(&points);
        assert!(distance[0].is_infinite() && distance[3].is_infinite());
        assert!(distance[1] < distance[2]);
    }

    proptest! {
        #[test]
        fn ranks_are_those_of_the_definition(points in prop::collection::vec(prop::collection::vec(0..5u8, 3), 0..30)) {
            let points: Vec<Vec<f64>> = points.iter().map(|p| p.iter().map(|v| f64::from(*v)).collect()).collect();
            let losses: Vec<&[f64]> = points.iter().map(Vec::as_slice).collect();
            let ranks = ranks(&losses);
            for (point, rank) in ranks.iter().enumerate() {
                let above = (0..points.len()).filter(|&o| dominates(&points[o], &points[point])).map(|o| ranks[o]).max();
                prop_assert_eq!(*rank, above.map_or(0, |rank| rank + 1));
            }
        }
    }
}
