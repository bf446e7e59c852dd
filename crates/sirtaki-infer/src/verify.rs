//! Random places computed once more, with more around them than a tile has, and compared with what was written.
//!
//! Places lie where tiles meet, because that is where an error would show. A voxel that is equal in every bit although
//! more was read around it has seen everything that it depends on. Labels have other names in a place of their own, so of
//! them it is compared which voxels belong together.

use sirtaki_volume::{
    Region,
    grid::plan::{PlanSpec, Reads, Tile},
    ledger::Ledger,
};

use crate::{Content, InferError, Job, Model, apply, error::refused, labels, sink::Sink, source::Source};

/// The edge of a place.
const EDGE: u64 = 16;

/// What a comparison showed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Verdict {
    /// Places that were compared.
    pub places: usize,
    /// Those of them in which all bits are equal.
    pub equal: usize,
    /// Values that differ.
    pub differing: u64,
    /// Values that were compared.
    pub values: u64,
}

/// Computes so many places of an output again whose tiles are all done. The same seed gives the same places.
pub fn verify(
    job: &Job,
    model: &mut dyn Model,
    ledger: &Ledger,
    places: usize,
    mut seed: u64,
) -> Result<Verdict, InferError> {
    if job.spec.reads != Reads::Least {
        return Err(refused(
            "a network with a fixed input cannot be given more around a place",
            "export it with dynamic axes to use --verify",
        ));
    }
    let (plan, source, sink) =
        (job.plan()?, Source::open(&job.settings.input, &job.settings.choices)?, Sink::open(job)?);
    let done: Vec<u64> = ledger.done().keys().copied().filter(|tile| *tile < plan.tiles()).collect();
    let mut verdict = Verdict::default();
    for _ in 0..places.min(done.len()) {
        let tile = plan.tile(done[(random(&mut seed) % done.len() as u64) as usize]);
        let place = around(&tile, &job.spec, &mut seed);
        let more = wider(&place, &job.spec)?;
        let (channels, values) = apply::compute(job, model, &more, apply::read(job, &source, &more.read)?)?;
        let width = job.layout.dtype.size();
        let region = job.in_output(&place)?;
        let mut written = vec![0; region.voxels() as usize * width];
        sink.volume().read(&region, &mut written)?;
        let differing = match job.settings.content {
            Content::Labels => labels::differing(&place, &sink.classes(&place, channels, &values)?, &written)?,
            _ => {
                let again = sink.encode(&place, channels, values)?;
                let pairs = again.chunks_exact(width).zip(written.chunks_exact(width));
                pairs.filter(|(one, two)| one != two).count() as u64
            }
        };
        verdict.places += 1;
        verdict.equal += usize::from(differing == 0);
        verdict.differing += differing;
        verdict.values += (written.len() / width) as u64;
    }
    Ok(verdict)
}

/// A place across one of the borders of a tile, within what is wanted.
fn around(tile: &Tile, spec: &PlanSpec, seed: &mut u64) -> Region {
    let wanted = spec.wanted.clone().unwrap_or_else(|| Region::whole(&spec.output));
    let (mut from, mut to) = (Vec::new(), Vec::new());
    for axis in 0..tile.core.axes() {
        let (start, size) = (tile.core.start()[axis], tile.core.size()[axis]);
        let corner = match random(seed) % 3 {
            0 => start,
            1 => start + size,
            _ => start + random(seed) % size,
        };
        let (first, end) = (wanted.start()[axis], wanted.end()[axis]);
        let edge = EDGE.min(end - first);
        let begin = corner.saturating_sub(edge / 2).clamp(first, end - edge);
        from.push(begin);
        to.push(begin + edge);
    }
    Region::between(&from, &to)
}

/// A place with a step more around it than a tile would have.
fn wider(place: &Region, spec: &PlanSpec) -> Result<Tile, InferError> {
    let ranges: Vec<_> = (0..place.axes())
        .map(|axis| {
            let (halo, all) = (spec.halo[axis], spec.output.sizes()[axis]);
            let more = 2 * halo.output + 1;
            let (start, end) = (place.start()[axis], place.end()[axis]);
            halo.read(start.saturating_sub(more)..(end + more).min(all), spec.input.sizes()[axis])
        })
        .collect();
    let read = Region::across(&ranges);
    let crop: Vec<_> = (0..place.axes())
        .map(|axis| {
            let at = spec.halo[axis].position(place.start()[axis], read.start()[axis]);
            at..at + place.size()[axis]
        })
        .collect();
    Ok(Tile { number: 0, core: place.clone(), read, crop: Region::across(&crop) })
}

/// Numbers without any pattern.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
