use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use super::*;
use crate::data::{Draws, FixedShards, Partition, Position, Worker};

/// A reader whose time depends on the sample, so that threads overtake each other.
struct Slow {
    bad: Option<(usize, bool)>,
    reads: AtomicUsize,
}

impl Samples for Slow {
    fn count(&self) -> usize {
        100
    }

    fn shape(&self) -> &[usize] {
        &[2, 3]
    }

    fn classes(&self) -> usize {
        10
    }

    fn read(&self, index: usize, values: &mut [f32]) -> Result<u32> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.bad {
            Some((bad, true)) if bad == index => panic!("sample {index} is bad"),
            Some((bad, false)) if bad == index => return Err(Error::setting("a bad sample", "none")),
            _ => {}
        }
        thread::sleep(Duration::from_micros((index as u64 * 37) % 1500));
        values.fill(index as f32);
        Ok(index as u32 % 10)
    }
}

fn slow(bad: Option<(usize, bool)>) -> Arc<Slow> {
    Arc::new(Slow { bad, reads: AtomicUsize::new(0) })
}

/// A plan without randomness: batch `n` has samples `3n` to `3n + 2`.
struct Lines(usize);

impl Plan for Lines {
    fn batches(&self) -> usize {
        self.0
    }

    fn indices(&self, batch: usize, indices: &mut Vec<u32>) {
        indices.clear();
        indices.extend((0..3).map(|place| (batch * 3 + place) as u32));
    }
}

#[test]
fn order_is_kept_whatever_the_number_of_threads() {
    for (threads, batches) in [(0, 0), (1, 1), (4, 1), (4, 4), (3, 7), (4, 100)] {
        let loader = Loader::new(slow(None), Lines(30), Ahead { threads, batches }).unwrap();
        let mut count = 0;
        for (number, batch) in loader.enumerate() {
            let batch = batch.unwrap();
            let expected: Vec<u32> = (0..3).map(|place| (number * 3 + place) as u32).collect();
            assert_eq!((batch.number(), batch.indices()), (number, expected.as_slice()));
            assert_eq!(batch.labels(), expected.iter().map(|index| index % 10).collect::<Vec<_>>());
            let values: Vec<f32> = expected.iter().flat_map(|&index| [index as f32; 6]).collect();
            assert_eq!(batch.values(), values);
            count += 1;
        }
        assert_eq!(count, 30, "{threads} threads");
    }
}

#[test]
fn input_is_the_same_in_every_run() {
    let worker = Worker { rank: 1, world: 2 };
    let start = Position::start(7);
    let collect = |loader: Loader| -> Vec<(Vec<u32>, Vec<f32>)> {
        loader.map(|batch| batch.unwrap()).map(|mut batch| (batch.indices().to_vec(), batch.take_values())).collect()
    };
    let load = |plan: usize, threads| {
        let ahead = Ahead { threads, batches: 3 };
        let samples = slow(None);
        collect(match plan {
            0 => Loader::new(samples, Partition::new(100, start, worker, 7).unwrap(), ahead).unwrap(),
            1 => Loader::new(samples, FixedShards::new(100, start, worker, 4, 16).unwrap(), ahead).unwrap(),
            _ => Loader::new(samples, Draws::new(100, (7, 0), worker, 5, 12).unwrap(), ahead).unwrap(),
        })
    };
    for plan in 0..3 {
        let one = load(plan, 1);
        assert_eq!(one.len(), [8, 14, 12][plan]);
        assert_eq!(load(plan, 4), one);
    }
}

#[test]
fn an_error_comes_in_its_place_and_ends_the_input() {
    for panics in [false, true] {
        let samples = slow(Some((13, panics)));
        let mut loader = Loader::new(samples, Lines(30), Ahead { threads: 4, batches: 8 }).unwrap();
        for number in 0..4 {
            assert_eq!(loader.next().unwrap().unwrap().number(), number);
        }
        let error = loader.next().unwrap().unwrap_err();
        let expected = if panics { "reading batch 4 panicked: sample 13 is bad" } else { "a bad sample" };
        assert_eq!(error.to_string(), expected);
        assert!(loader.next().is_none());
    }
}

#[test]
fn no_more_is_read_than_may_be_ahead() {
    let samples = slow(None);
    let mut loader = Loader::new(Arc::clone(&samples) as _, Lines(30), Ahead { threads: 2, batches: 3 }).unwrap();
    let first = loader.next().unwrap().unwrap();
    // One was taken, so at most four batches can have been begun, however long the threads had.
    thread::sleep(Duration::from_millis(50));
    assert!(samples.reads.load(Ordering::SeqCst) <= 4 * 3);
    drop(first);
    assert_eq!(loader.count(), 29);
}

#[test]
fn memory_is_used_again() {
    let loader = Loader::new(slow(None), Lines(30), Ahead { threads: 1, batches: 1 }).unwrap();
    let mut places = std::collections::BTreeSet::new();
    for batch in loader {
        places.insert(batch.unwrap().values().as_ptr() as usize);
    }
    assert!(places.len() <= 3, "{} buffers for 30 batches", places.len());
}

#[test]
fn dropping_ends_the_threads_wherever_they_are() {
    for taken in [0, 1, 5, 30] {
        let samples = slow(None);
        let mut loader = Loader::new(Arc::clone(&samples) as _, Lines(30), Ahead { threads: 4, batches: 3 }).unwrap();
        let kept: Vec<Batch> = loader.by_ref().take(taken).map(|batch| batch.unwrap()).collect();
        drop(loader);
        assert_eq!(Arc::strong_count(&samples), 1);
        assert_eq!(kept.len(), taken);
    }
}
