//! Training stopped and continued from a checkpoint: exactly as if it had not stopped, every sample once, and refused
//! where the checkpoint is not the right one.

#![allow(clippy::unwrap_used, reason = "tests")]

mod convolution;

use std::{collections::BTreeMap, fs, path::Path};

use burn::optim::ModuleOptimizer;
use convolution::{Bits, Folder, Network, SAMPLES, adam, bits, momentum, samples, worker};
use sirtaki::{
    DistributedOptimizer, Result, World,
    checkpoint::Manifest,
    data::{Partition, Plan, Position},
    launch, seed,
};

const BATCH: usize = 4;

/// Trains for some steps at most, to the end of the epoch at most, and saves. Returns the weights and the samples seen.
fn train(world: &World, optimizer: fn() -> ModuleOptimizer, steps: usize, folder: &Path) -> Result<(Bits, Vec<u32>)> {
    let device = world.device().autodiff();
    let mut optimizer = DistributedOptimizer::new(world, optimizer());
    let (mut network, resumed) = world.resume(folder, "network", Network::new(&device, 10, 0.3), &mut optimizer)?;
    let manifest = resumed.map(|resumed| resumed.manifest);
    let position = manifest.as_ref().map_or(Position::start(9), |manifest| manifest.position);
    let mut done = manifest.map_or(0, |manifest| manifest.step);
    let plan = Partition::new(SAMPLES, position, worker(world), BATCH)?;
    let steps = steps.min(plan.batches());
    let mut seen = Vec::new();
    for step in 0..steps {
        let mine = samples(&plan, step);
        seed(&device, plan.stream("forward", step));
        let weight = (mine.len() * world.size()) as f64 / plan.together(step) as f64;
        let gradients = match mine.len() {
            0 => burn::optim::GradientsParams::new(),
            _ => network.gradients(&mine, weight),
        };
        network = optimizer.step(0.01, network, gradients)?;
        seen.extend(mine);
        done += 1;
    }
    network = world.average_statistics(network)?;
    world.save(folder, 2, Manifest::new("network", done, plan.position(steps)), &network, &optimizer)?;
    Ok((bits(&network), seen))
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bits() {
    for optimizer in [momentum, adam] {
        let (whole, halves) = (Folder::new(), Folder::new());
        let uninterrupted = launch(2, |world| train(world, optimizer, 6, &whole.0)).unwrap();
        let first = launch(2, |world| train(world, optimizer, 3, &halves.0)).unwrap();
        let second = launch(2, |world| train(world, optimizer, 3, &halves.0)).unwrap();
        assert!(first[0].0.learned != second[0].0.learned);
        for rank in 0..2 {
            assert!(second[rank].0.learned == uninterrupted[0].0.learned, "rank {rank}");
            assert_eq!([first[rank].1.clone(), second[rank].1.clone()].concat(), uninterrupted[rank].1);
        }
    }
}

#[test]
fn another_number_of_workers_sees_every_sample_once() {
    let folder = Folder::new();
    let mut seen = Vec::new();
    for (workers, steps) in [(3, 2), (2, 1), (1, usize::MAX)] {
        let ranks = launch(workers, |world| train(world, adam, steps, &folder.0)).unwrap();
        seen.extend(ranks.into_iter().flat_map(|(_, seen)| seen));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..SAMPLES as u32).collect::<Vec<_>>());
    // Of three checkpoints, two were to be kept.
    assert_eq!(files(&folder.0).len(), 2 * 3);
}

/// All files below a folder, with what is in them.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = BTreeMap::new();
    for path in entries {
        match path.is_dir() {
            true => files.extend(self::files(&path)),
            false => drop(files.insert(path.display().to_string(), fs::read(&path).unwrap())),
        }
    }
    files
}

/// What every rank of two hears when it wants to go on from there.
#[track_caller]
fn refusals(folder: &Path, model: &str, hidden: usize, optimizer: fn() -> ModuleOptimizer) -> Vec<String> {
    let before = files(folder);
    let refusals = launch(2, |world| -> Result<String> {
        let network = Network::new(&world.device().autodiff(), hidden, 0.3);
        let mut optimizer = DistributedOptimizer::new(world, optimizer());
        let error = world.resume(folder, model, network, &mut optimizer).unwrap_err();
        assert!(error.hint().is_some_and(|hint| !hint.is_empty()));
        // The ranks can still work together.
        assert_eq!(world.average(world.rank() as f64)?, 0.5);
        Ok(error.to_string())
    });
    assert_eq!(files(folder), before);
    refusals.unwrap()
}

#[test]
fn what_does_not_fit_is_refused_on_all_ranks_and_left_alone() {
    let folder = Folder::new();
    launch(1, |world| train(world, adam, 1, &folder.0)).unwrap();
    let refused = |refusals: Vec<String>, reason: &str| {
        assert_eq!(refusals.len(), 2);
        assert!(refusals.iter().all(|refusal| refusal.contains(reason)), "{refusals:?}, not {reason}");
        assert!(refusals[1].starts_with("rank 0: "));
    };
    refused(refusals(&folder.0, "another", 10, adam), "a checkpoint of \"network\", not of \"another\"");
    refused(refusals(&folder.0, "network", 11, adam), "its shape is [216, 10], and the model's is [216, 11]");
    refused(refusals(&folder.0, "network", 10, momentum), "it is the state of another optimizer");
    launch(1, |_| {
        let file = folder.0.join("checkpoint-000001/tensors.safetensors");
        let mut bytes = fs::read(&file)?;
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes)
    })
    .unwrap();
    refused(refusals(&folder.0, "network", 10, adam), "it was changed or cut");
}

#[test]
fn a_checkpoint_that_cannot_be_written_is_everybodys_error() {
    let folder = Folder::new();
    let errors = launch(2, |world| -> Result<String> {
        if world.rank() == 0 {
            fs::write(folder.0.join("file"), "in the way").unwrap();
        }
        let network = Network::new(&world.device().autodiff(), 10, 0.3);
        let optimizer = DistributedOptimizer::new(world, adam());
        let manifest = Manifest::new("network", 0, Position::start(0));
        Ok(world.save(&folder.0.join("file/here"), 0, manifest, &network, &optimizer).unwrap_err().to_string())
    });
    let errors = errors.unwrap();
    assert!(errors.iter().all(|error| error.contains("file/here")), "{errors:?}");
}
