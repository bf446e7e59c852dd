//! The parameters of ResNet-50 as the tensors a training step reduces: 161 of them, 25,557,032 numbers.

/// Numbers per tensor, from the first layer to the last: the weights of every convolution, followed by the scale and
/// the shift of its normalisation, and at the end the classifier's weights and bias.
pub fn tensors() -> Vec<usize> {
    let mut sizes = convolution(3, 64, 7);
    let mut channels = 64;
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            sizes.extend(convolution(channels, width, 1));
            sizes.extend(convolution(width, width, 3));
            sizes.extend(convolution(width, 4 * width, 1));
            if block == 0 {
                sizes.extend(convolution(channels, 4 * width, 1));
            }
            channels = 4 * width;
        }
    }
    sizes.extend([channels * 1000, 1000]);
    sizes
}

fn convolution(from: usize, to: usize, side: usize) -> Vec<usize> {
    vec![from * to * side * side, to, to]
}

/// The numbers `0..count` in an order that depends on `seed`.
pub fn shuffled(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for at in (1..count).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_model() {
        let sizes = tensors();
        assert_eq!(sizes.len(), 161);
        assert_eq!(sizes.iter().sum::<usize>(), 25_557_032);
        assert_eq!(sizes.iter().max(), Some(&(512 * 512 * 9)));
        let mut order = shuffled(161, 3);
        assert_ne!(order, shuffled(161, 4));
        order.sort_unstable();
        assert_eq!(order, (0..161).collect::<Vec<_>>());
    }
}
