//! Worlds that are cut in pieces, on processes of their own.

use sirtaki::{Result, World, launch};

#[test]
fn a_split_has_the_ranks_of_one_colour_and_its_own_collectives() {
    let sums = launch(4, |world: &World| -> Result<_> {
        let part = world.split((world.rank() % 2) as u64)?;
        Ok((part.rank(), part.size(), part.sum(world.rank() as f64)?))
    });
    assert_eq!(sums.unwrap(), [(0, 2, 2.0), (0, 2, 4.0), (1, 2, 2.0), (1, 2, 4.0)]);
}

#[test]
fn every_axis_of_a_mesh_is_a_world() {
    let seen = launch(4, |world: &World| -> Result<_> {
        let mesh = world.mesh(&[("data", 2), ("pipe", 2), ("tensor", 1)])?;
        let rank = world.rank() as f64;
        let sums = [mesh.axis("data")?.sum(rank)?, mesh.axis("pipe")?.sum(rank)?, mesh.axis("tensor")?.sum(rank)?];
        let shape: Vec<(String, usize)> = mesh.shape().map(|(name, size)| (name.to_owned(), size)).collect();
        Ok((mesh.axis("data")?.rank(), mesh.axis("pipe")?.rank(), sums, shape))
    });
    let seen = seen.unwrap();
    let shape = [("data", 2), ("pipe", 2), ("tensor", 1)].map(|(name, size)| (name.to_owned(), size)).to_vec();
    assert_eq!(seen[0], (0, 0, [2.0, 1.0, 0.0], shape.clone()));
    assert_eq!(seen[1], (0, 1, [4.0, 1.0, 1.0], shape.clone()));
    assert_eq!(seen[2], (1, 0, [2.0, 5.0, 2.0], shape.clone()));
    assert_eq!(seen[3], (1, 1, [4.0, 5.0, 3.0], shape));
}

#[test]
fn a_mesh_that_does_not_fit_is_refused_on_every_rank() {
    let errors = launch(2, |world: &World| -> Result<_> {
        let error = world.mesh(&[("data", 2), ("pipe", 2)]).unwrap_err();
        // Nobody waits for anybody, so all go on.
        world.sum(1.0)?;
        Ok(error.to_string())
    });
    let problem = "a mesh of data 2 × pipe 2 needs 4, but there are 2 workers";
    assert_eq!(errors.unwrap(), [problem, problem]);
}
