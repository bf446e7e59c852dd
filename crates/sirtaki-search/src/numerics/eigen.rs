//! Eigenvalues and eigenvectors of a symmetric matrix, by Jacobi's rotations: short, accurate, and fast enough for the
//! few dozen dimensions of a search space.

/// The eigenvalues of the symmetric `matrix` (`size` rows, one after the other) and, in the columns of the second
/// result, their eigenvectors.
pub(crate) fn symmetric(matrix: &[f64], size: usize) -> (Vec<f64>, Vec<f64>) {
    let n = size;
    let mut a = matrix.to_vec();
    let mut vectors: Vec<f64> = (0..n * n).map(|i| if i / n == i % n { 1.0 } else { 0.0 }).collect();
    for _sweep in 0..60 {
        let outside: f64 = (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i * n + j].powi(2)).sum();
        let diagonal: f64 = (0..n).map(|i| a[i * n + i].powi(2)).sum();
        if outside <= 1e-30 * diagonal {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                rotate(&mut a, &mut vectors, n, p, q);
            }
        }
    }
    ((0..n).map(|i| a[i * n + i]).collect(), vectors)
}

/// Makes the element (p, q) zero.
fn rotate(a: &mut [f64], vectors: &mut [f64], n: usize, p: usize, q: usize) {
    let element = a[p * n + q];
    if element == 0.0 {
        return;
    }
    let theta = (a[q * n + q] - a[p * n + p]) / (2.0 * element);
    let tangent = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
    let cosine = 1.0 / (tangent * tangent + 1.0).sqrt();
    let sine = tangent * cosine;
    for k in 0..n {
        let (x, y) = (a[k * n + p], a[k * n + q]);
        a[k * n + p] = cosine * x - sine * y;
        a[k * n + q] = sine * x + cosine * y;
    }
    for k in 0..n {
        let (x, y) = (a[p * n + k], a[q * n + k]);
        a[p * n + k] = cosine * x - sine * y;
        a[q * n + k] = sine * x + cosine * y;
        let (x, y) = (vectors[k * n + p], vectors[k * n + q]);
        vectors[k * n + p] = cosine * x - sine * y;
        vectors[k * n + q] = sine * x + cosine * y;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn vectors_times_values_give_the_matrix_back() {
        let n = 9;
        let mut random = Random::new(4, &[]);
        let mut matrix = vec![0.0; n * n];
        for i in 0..n {
            for j in 0..=i {
                matrix[i * n + j] = random.normal();
                matrix[j * n + i] = matrix[i * n + j];
            }
        }
        let (values, vectors) = symmetric(&matrix, n);
        for i in 0..n {
            for j in 0..n {
                let rebuilt: f64 = (0..n).map(|k| vectors[i * n + k] * values[k] * vectors[j * n + k]).sum();
                let product: f64 = (0..n).map(|k| vectors[k * n + i] * vectors[k * n + j]).sum();
                assert!((rebuilt - matrix[i * n + j]).abs() < 1e-12);
                assert!((product - f64::from(u8::from(i == j))).abs() < 1e-12);
            }
        }
    }
}
