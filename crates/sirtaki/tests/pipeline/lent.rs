//! Networks of whose parameters every worker keeps some rows, and borrows the others while a stage computes.

use std::path::Path;

use burn::module::ParamId;
use sirtaki::{
    checkpoint::Manifest,
    lars::{Lars, LarsSgd},
};

use super::{folder::Folder, *};

/// The bits of all tensors, by the numbers of their layers.
fn bits(chain: &Chain<Part>) -> Result<Vec<(String, Vec<u32>)>> {
    let mut found = Vec::new();
    chain.whole_tensors(|number, bytes| {
        let bits = bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        found.push((number.to_string(), bits));
    })?;
    Ok(found)
}

/// This worker's rows of its layers.
pub(crate) fn rows(data: &World, pipeline: &Pipeline) -> Result<Chain<Part>> {
    let device = data.device().autodiff();
    let chain = Chain::shard_over(data, pipeline.layers(), &device, 9, |number| part(number, &device))?;
    let (here, all) = (chain.num_params(), chain.num_params_of_whole()?);
    assert!(data.size() == 1 || here < all, "{here} of {all} numbers on one of {} workers", data.size());
    Ok(chain)
}

/// Trains with borrowed parameters, layer by layer and in stages, and compares with one process.
pub(crate) fn compare((data, pipe): (&World, &World), run: Run, expected: &[(String, Vec<u32>)]) -> Result<()> {
    let ways = [(PipelineSchedule::GPipe, LAYERS), (PipelineSchedule::OneForwardOneBackward, pipe.size())];
    for (schedule, stages) in ways {
        let plan = plan(run, data)?;
        let mut pipeline = Pipeline::new(pipe, schedule, plan.per_step(), even(stages))?;
        let chain = rows(data, &pipeline)?;
        let alone = data.split(data.rank() as u64)?;
        let mut optimizer = DistributedOptimizer::new(&alone, (run.optimizer)()).clip(run.clip);
        let chain = steps(&mut pipeline, &mut optimizer, chain, &plan, plan.steps().min(STEPS))?;
        for tensor in bits(&chain)? {
            assert!(expected.contains(&tensor), "{schedule:?}: layer {} on {} copies", tensor.0, data.size());
        }
    }
    Ok(())
}

#[test]
fn samples_pass_through_borrowed_layers() {
    launch(2, |world| {
        let (device, alone) = (world.device(), world.split(world.rank() as u64)?);
        let mut pipeline = Pipeline::new(&alone, PipelineSchedule::GPipe, 1, even(LAYERS))?;
        let chain = rows(world, &pipeline)?.valid();
        let whole = Chain::new(0..LAYERS, &device, 9, |number| part(number, &device))?;
        let words = |batch: usize| {
            let words = TensorData::new((0..=batch).map(|at| word(at as u32, 0)).collect(), [batch + 1, 1]);
            Flow::new().with(Tensor::<2, Int>::from_data(words, &device))
        };
        // One worker has more batches than go through a layer at a time, the other none.
        let (count, mut results) = ([11, 0][world.rank()], Vec::new());
        pipeline.forward(
            &chain,
            count,
            |batch| Ok::<_, Error>(words(batch)),
            |batch, mut flow| {
                let expected = whole.forward(words(batch))?.take::<Tensor<2>>()?.into_data();
                results.push(flow.take::<Tensor<2>>()?.into_data() == expected);
                Ok(())
            },
        )?;
        assert_eq!(results, vec![true; count]);
        Ok::<_, Error>(())
    })
    .unwrap();
}

#[test]
fn a_worker_with_another_network_is_refused_on_all_workers() {
    let errors = launch(2, |world| {
        let device = world.device().autodiff();
        // Layer 2 of worker 1 is what layer 1 is elsewhere.
        let other = |number: usize| number - usize::from(number == 2 && world.rank() == 1);
        let chain = Chain::shard_over(world, 0..LAYERS, &device, 9, |number| part(other(number), &device));
        Ok::<_, Error>(chain.map(drop).unwrap_err().to_string())
    });
    assert_eq!(errors.unwrap(), vec!["layer 2 of worker 1 has other parameters than that of worker 0"; 2]);
}

#[test]
fn an_optimizer_that_needs_whole_layers_is_refused_on_all_workers() {
    let errors = launch(2, |world| {
        let alone = world.split(world.rank() as u64)?;
        let run = Run { shards: 4, optimizer: adam, clip: f64::MAX };
        let plan = plan(run, world)?;
        let mut pipeline = Pipeline::new(&alone, PipelineSchedule::GPipe, plan.per_step(), even(LAYERS))?;
        let lars = LarsSgd { lars: Lars { trust: 0.02, decay: 0.0 }, momentum: 0.9 };
        let mut optimizer = DistributedOptimizer::new(&alone, lars);
        let chain = rows(world, &pipeline)?;
        Ok::<_, Error>(steps(&mut pipeline, &mut optimizer, chain, &plan, 1).unwrap_err().to_string())
    });
    for error in errors.unwrap() {
        assert!(error.starts_with("the optimizer needs \"0.Words.weight\" as a whole"), "{error}");
    }
}

/// A layer with one row, of which one of two workers has nothing.
#[derive(Module, Debug)]
struct Row {
    weight: Param<Tensor<2>>,
}

impl Layer for Row {
    fn forward(&self, mut flow: Flow) -> Result<Flow> {
        Ok(Flow::new().with(tanh(flow.take::<Tensor<2>>()? * self.weight.val())))
    }
}

/// The bits of two more steps, saved in a folder.
fn train_rows(world: &World, folder: &Path) -> Result<Vec<u8>> {
    let device = world.device().autodiff();
    let alone = world.split(world.rank() as u64)?;
    let plan = FixedShards::new(16, Position::start(1), world.worker(), 2, 8)?;
    let mut pipeline = Pipeline::new(&alone, PipelineSchedule::GPipe, plan.per_step(), vec![0..1, 1..2])?;
    let row = |_| Ok(Row { weight: Param::initialized(ParamId::new(), Tensor::ones([1, 3], &device).require_grad()) });
    let chain = Chain::shard_over(world, 0..2, &device, 1, row)?;
    let mut optimizer = DistributedOptimizer::new(&alone, adam());
    let (mut chain, _) = pipeline.resume(folder, "rows", chain, &mut optimizer)?;
    for step in 0..2 {
        chain = pipeline.step(
            &mut optimizer,
            0.1,
            chain,
            (&plan, step),
            |shard| Ok::<_, Error>(Flow::new().with(Tensor::<2>::ones([shard.samples, 3], &device))),
            |_, mut flow| Ok(flow.take::<Tensor<2>>()?.mean()),
        )?;
    }
    pipeline.save(folder, 0, Manifest::new("rows", 2, plan.position(2)), &chain, &optimizer)?;
    let mut bits = Vec::new();
    chain.whole_tensors(|_, bytes| bits.extend_from_slice(bytes))?;
    Ok(bits)
}

#[test]
fn a_worker_without_any_row_trains_and_saves_with_the_others() {
    let (one, two) = (Folder::new(), Folder::new());
    let alone = launch(1, |world| {
        train_rows(world, &one.0)?;
        train_rows(world, &one.0)
    });
    let shared = launch(2, |world| {
        train_rows(world, &two.0)?;
        train_rows(world, &two.0)
    });
    let alone = alone.unwrap().remove(0);
    assert!(shared.unwrap().iter().all(|bits| *bits == alone));
}
