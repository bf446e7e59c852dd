//! Plans of who reads what, against a file that Python's plans are compared with, too: both packages deal out the same
//! samples, today and in every later version.

use serde_json::{Value, json};
use sirtaki::data::{Draws, Partition, Plan, Position, Worker};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/tests/plans.json");

fn all(plan: &impl Plan) -> Vec<Vec<u32>> {
    let batch = |number| {
        let mut indices = Vec::new();
        plan.indices(number, &mut indices);
        indices
    };
    (0..plan.batches()).map(batch).collect()
}

fn partition(samples: usize, position: Position, world: usize, batch: usize) -> Value {
    let new = |rank| Partition::new(samples, position, Worker { rank, world }, batch).expect("a plan");
    let plans: Vec<Partition> = (0..world).map(new).collect();
    let last = plans[0].batches().saturating_sub(1);
    let next = plans[0].position(1);
    json!({
        "samples": samples,
        "position": [position.seed, position.epoch, position.seen],
        "batch": batch,
        "workers": plans.iter().map(all).collect::<Vec<_>>(),
        "next": [next.seed, next.epoch, next.seen],
        "weights": plans.iter().map(|plan| plan.weight(last)).collect::<Vec<_>>(),
    })
}

fn draws(samples: usize, (seed, first): (u64, u64), rank: usize, batch: usize, batches: usize) -> Value {
    let plan = Draws::new(samples, (seed, first), Worker { rank, world: rank + 1 }, batch, batches).expect("a plan");
    json!({ "samples": samples, "key": [seed, first, rank as u64], "batches": all(&plan) })
}

#[test]
fn rust_and_python_deal_out_the_same_samples() {
    let at = |seed, epoch, seen| Position { seed, epoch, seen };
    let computed = json!({
        "partitions": [
            partition(12, at(42, 0, 0), 1, 12),
            partition(50, at(0, 0, 0), 2, 4),
            partition(50, at(0, 1, 0), 2, 4),
            partition(33, at(7, 2, 16), 4, 2),
            partition(7, at(u64::MAX, 1 << 40, 0), 3, 2),
            partition(257, at(123_456_789, 5, 0), 3, 32),
        ],
        "draws": [
            draws(20, (1, 0), 0, 5, 3),
            draws(1_000_000, (u64::MAX, 4), 3, 4, 2),
            draws(u32::MAX as usize, (9, 0), 1, 3, 1),
        ],
    });
    // Read back like the file: reading may change the last digit of a weight.
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let stored = std::fs::read_to_string(FILE).expect("the file");
    assert!(parse(&computed.to_string()) == parse(&stored), "{computed}");
}
