//! Groups of workers: a world cut in pieces, and a world as a product of named axes.
//!
//! Every axis of a mesh is a [`World`] of its own, so whatever works on a world works along an axis, and strategies
//! compose: data parallelism along one, a pipeline along another.

mod layout;

use std::collections::BTreeSet;

use sirtaki_comm::{DType, Rank};
use sirtaki_engine::{Operation, Request, Tensor};

use crate::{
    Error, Result, World,
    world::{elements, wrong_type},
};

/// A world as a product of named axes, from the point of view of one worker.
///
/// ```no_run
/// # fn main() -> sirtaki::Result<()> {
/// let world = sirtaki::init()?;
/// let mesh = world.mesh(&[("data", 2), ("pipe", 2)])?;
/// let (data, pipe) = (mesh.axis("data")?, mesh.axis("pipe")?);
/// println!("stage {} of {}, copy {}", pipe.rank(), pipe.size(), data.rank());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Mesh {
    world: World,
    axes: Vec<(String, World)>,
}

impl World {
    /// The workers that give the same colour as this one. All ranks call it.
    pub fn split(&self, colour: u64) -> Result<World> {
        let number = self.next_split();
        let colours = self.gather(&format!("colours of split {number}"), colour)?;
        self.members(number, &colours)
    }

    /// The workers as a product of axes whose sizes multiply to their number. All ranks call it with the same axes.
    ///
    /// The last axis is the one whose workers talk most, such as the parts of a layer: they share a host wherever a host
    /// has enough of them.
    pub fn mesh(&self, axes: &[(&str, usize)]) -> Result<Mesh> {
        layout::check(axes, self.size())?;
        let sizes: Vec<usize> = axes.iter().map(|(_, size)| *size).collect();
        let order = layout::arrange(&self.hosts(), &sizes);
        let mut places = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &rank)| places[rank] = place);
        let mut mesh = Mesh { world: self.clone(), axes: Vec::new() };
        let mut stride = 1;
        for (name, size) in axes.iter().rev() {
            // Along an axis, everything but its own coordinate is the same.
            let colour = |place: usize| (place / (stride * size) * stride + place % stride) as u64;
            let colours: Vec<u64> = places.iter().map(|&place| colour(place)).collect();
            let axis = self.members(self.next_split(), &colours)?;
            mesh.axes.insert(0, ((*name).to_owned(), axis));
            stride *= size;
        }
        Ok(mesh)
    }

    /// The world of this rank's colour, after all ranks have made those of all colours in the same order.
    fn members(&self, number: usize, colours: &[u64]) -> Result<World> {
        let mut mine = None;
        for colour in colours.iter().collect::<BTreeSet<_>>() {
            let members: Vec<Rank> = (0..colours.len()).filter(|&rank| colours[rank] == *colour).collect();
            let part = self.subset(&format!("split {number}, colour {colour}"), &members)?;
            mine = part.or(mine);
        }
        mine.ok_or_else(|| wrong_type("split"))
    }

    /// Every rank's value.
    pub(crate) fn gather(&self, name: &str, value: u64) -> Result<Vec<u64>> {
        let request = Request::new(name, Operation::AllGather, DType::I64, &[1]);
        let mine = Tensor::from_vec(vec![value.cast_signed()]);
        let all: Vec<i64> = elements(name, self.engine().submit(request, mine).wait_one()?)?;
        Ok(all.into_iter().map(i64::cast_unsigned).collect())
    }

    /// A number for the host of each rank.
    fn hosts(&self) -> Vec<usize> {
        let members = self.engine().group().members();
        let first = |id: &str| members.iter().position(|other| other.host_id == id).unwrap_or(0);
        members.iter().map(|member| first(&member.host_id)).collect()
    }
}

impl Mesh {
    /// All workers.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The workers that differ from this one in their coordinate along one axis only; the rank there is the coordinate.
    pub fn axis(&self, name: &str) -> Result<&World> {
        let found = self.axes.iter().find(|(axis, _)| axis == name).map(|(_, world)| world);
        found.ok_or_else(|| {
            let names: Vec<&str> = self.axes.iter().map(|(axis, _)| axis.as_str()).collect();
            Error::setting(format!("the mesh has no axis \"{name}\""), format!("its axes are {}", names.join(", ")))
        })
    }

    /// The axes with their sizes, in the order in which they were given.
    pub fn shape(&self) -> impl Iterator<Item = (&str, usize)> {
        self.axes.iter().map(|(name, world)| (name.as_str(), world.size()))
    }
}
