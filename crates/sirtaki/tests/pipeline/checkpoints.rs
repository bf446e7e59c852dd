//! A network goes on from what other stages, copies or parts of it have saved.

use std::path::Path;

use sirtaki::checkpoint::Manifest;

use super::{folder::Folder, *};

/// How a run goes on: with so many stages, for so many steps.
#[derive(Clone, Copy)]
struct Leg {
    stages: usize,
    steps: usize,
    /// Whether every copy keeps some rows of all parameters.
    lent: bool,
}

/// Some steps from where the folder says, saved there.
fn go_on((data, pipe): (&World, &World), run: Run, leg: Leg, folder: &Path) -> Result<()> {
    let device = data.device().autodiff();
    let (micros, stages) = (run.shards / data.size(), even(leg.stages));
    let mut pipeline = Pipeline::new(pipe, PipelineSchedule::Interleaved, micros, stages)?;
    let (chain, whose) = match leg.lent {
        true => (lent::rows(data, &pipeline)?, data.split(data.rank() as u64)?),
        false => (Chain::new(pipeline.layers(), &device, 9, |number| part(number, &device))?, data.clone()),
    };
    let optimizer = DistributedOptimizer::new(&whose, (run.optimizer)()).clip(run.clip);
    // The first run keeps the whole state on every worker, the last one splits it.
    let mut update: Box<dyn Update<Chain<Part>>> =
        if leg.stages == 8 && !leg.lent { Box::new(optimizer.shard()) } else { Box::new(optimizer) };
    let (chain, resumed) = pipeline.resume(folder, "parts", chain, update.as_mut())?;
    assert_eq!(resumed.is_some(), leg.stages == 8);
    let start = resumed.map_or((Position::start(5), 0), |resumed| (resumed.manifest.position, resumed.manifest.step));
    let plan = FixedShards::new(SAMPLES, start.0, data.worker(), run.shards, 12)?;
    let chain = steps(&mut pipeline, update.as_mut(), chain, &plan, leg.steps)?;
    let manifest = Manifest::new("parts", start.1 + leg.steps as u64, plan.position(leg.steps));
    pipeline.save(folder, 0, manifest, &chain, update.as_ref()).map(drop)
}

#[test]
fn stages_go_on_as_other_stages_and_in_one_process() {
    let folder = Folder::new();
    let run = Run { shards: 4, optimizer: adam, clip: 0.5 };
    let path = folder.0.as_path();
    launch(4, |world| {
        let mesh = world.mesh(&[("data", 2), ("pipe", 2)])?;
        let axes = (mesh.axis("data")?, mesh.axis("pipe")?);
        go_on(axes, run, Leg { stages: 4, steps: 2, lent: false }, path)?;
        go_on(axes, run, Leg { stages: 8, steps: 1, lent: true }, path)
    })
    .unwrap();
    launch(4, |world| {
        let mesh = world.mesh(&[("data", 1), ("pipe", 4)])?;
        let axes = (mesh.axis("data")?, mesh.axis("pipe")?);
        go_on(axes, run, Leg { stages: 8, steps: 1, lent: false }, path)
    })
    .unwrap();
    let ends = launch(1, |world| {
        let device = world.device().autodiff();
        let chain = Chain::new(0..LAYERS, &device, 1, |number| part(number, &device))?;
        let mut optimizer = DistributedOptimizer::new(world, adam());
        let (chain, resumed) = world.resume(path, "parts", chain, &mut optimizer)?;
        assert!(resumed.is_some());
        Ok::<_, Error>(numbers(&chain) == whole(world, run)?)
    });
    assert_eq!(ends.unwrap(), [true]);
}
