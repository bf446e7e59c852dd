//! Labels the objects of a raw volume tile by tile and stitches them: `stitch IN Z Y X TILE faces|corners OUT`. The input
//! has a byte per voxel, the output eight. Prints a line of JSON.
#![allow(clippy::print_stdout)]

use std::{env, error::Error, fs, time::Instant};

use sirtaki_volume::{
    Extent, Region,
    grid::{
        halo::Halo,
        plan::{Plan, PlanSpec, Reads},
    },
    stitch::{
        Connectivity, Stitch,
        components::components,
        faces::{Layer, touching},
    },
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [input, z, y, x, tile, connectivity, output] = arguments.as_slice() else {
        return Err("usage: stitch IN Z Y X TILE faces|corners OUT".into());
    };
    let volume = Extent::new([z.parse()?, y.parse()?, x.parse()?])?;
    let connectivity = if connectivity == "corners" { Connectivity::Corners } else { Connectivity::Faces };
    let classes: Vec<u32> = fs::read(input)?.into_iter().map(u32::from).collect();
    let core = Extent::new([tile.parse::<u64>()?; 3])?;
    let spec = PlanSpec {
        input: volume.clone(),
        output: volume.clone(),
        chunk: core.clone(),
        core,
        halo: vec![Halo::NONE; 3],
        reads: Reads::Least,
        wanted: None,
    };
    let plan = Plan::new(spec)?;
    let (mut labels, mut counts) = (vec![0; classes.len()], Vec::new());
    for number in 0..plan.tiles() {
        let region = plan.tile(number).core;
        let sizes: Vec<usize> = region.size().iter().map(|size| *size as usize).collect();
        let (own, count) = components(&cut(&classes, &volume, &region), &sizes, connectivity)?;
        paste(&mut labels, &volume, &region, &own);
        counts.push((number, count));
    }
    let started = Instant::now();
    let mut stitch = Stitch::new(counts.iter().copied())?;
    for number in 0..plan.tiles() {
        let (region, offset) = (plan.tile(number).core, stitch.offset(number).unwrap_or(0));
        let own: Vec<u64> = cut(&labels, &volume, &region);
        let moved: Vec<u64> = own.into_iter().map(|label| if label == 0 { 0 } else { label + offset }).collect();
        paste(&mut labels, &volume, &region, &moved);
    }
    let contacts = join(&mut stitch, &plan, &volume, &labels, &classes, connectivity)?;
    let names = stitch.finish();
    names.rename(&mut labels)?;
    let (seconds, all) = (started.elapsed().as_secs_f64(), counts.iter().map(|(_, count)| count).sum::<u64>());
    fs::write(output, labels.iter().flat_map(|label| label.to_le_bytes()).collect::<Vec<u8>>())?;
    println!("{{\"labels\":{all},\"contacts\":{contacts},\"objects\":{},\"stitch_s\":{seconds:.2}}}", names.objects());
    Ok(())
}

/// Joins what touches across all planes between tiles.
fn join(
    stitch: &mut Stitch,
    plan: &Plan,
    volume: &Extent,
    labels: &[u64],
    classes: &[u32],
    connectivity: Connectivity,
) -> Result<u64, Box<dyn Error>> {
    let mut contacts = 0;
    for (axis, tiles) in plan.shape().into_iter().enumerate() {
        for number in 1..tiles {
            let at = number * plan.spec().core.sizes()[axis];
            let layer = |at: u64| {
                let (mut start, mut size) = (vec![0; 3], volume.sizes().to_vec());
                (start[axis], size[axis]) = (at, 1);
                let region = Region::new(start, size)?;
                Ok::<_, Box<dyn Error>>((cut(labels, volume, &region), cut(classes, volume, &region)))
            };
            let (low, high) = (layer(at - 1)?, layer(at)?);
            let sizes: Vec<usize> =
                (0..3).filter(|other| *other != axis).map(|other| volume.sizes()[other] as usize).collect();
            let low = Layer { labels: &low.0, classes: &low.1 };
            let high = Layer { labels: &high.0, classes: &high.1 };
            for (one, two) in touching(low, high, &sizes, connectivity)? {
                stitch.join(one, two)?;
                contacts += 1;
            }
        }
    }
    Ok(contacts)
}

/// Where each row of a region begins in the volume.
fn rows(volume: &Extent, region: &Region) -> Vec<usize> {
    let (start, size, end) = (region.start(), volume.sizes(), region.end());
    let row = |z: u64, y: u64| ((z * size[1] + y) * size[2] + start[2]) as usize;
    (start[0]..end[0]).flat_map(|z| (start[1]..end[1]).map(move |y| row(z, y))).collect()
}

fn cut<T: Copy>(values: &[T], volume: &Extent, region: &Region) -> Vec<T> {
    let length = region.size()[2] as usize;
    rows(volume, region).into_iter().flat_map(|at| &values[at..at + length]).copied().collect()
}

fn paste(values: &mut [u64], volume: &Extent, region: &Region, part: &[u64]) {
    let length = region.size()[2] as usize;
    for (at, row) in rows(volume, region).into_iter().zip(part.chunks(length)) {
        values[at..at + length].copy_from_slice(row);
    }
}
