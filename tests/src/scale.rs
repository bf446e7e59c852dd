//! What a step of many tensors costs with many ranks, as threads of this process.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sirtaki_engine::{Engine, Settings, Ticket};

use crate::{
    engines::{each, sum, vector},
    make,
};

/// Tensors of a step.
pub const TENSORS: usize = 1000;
/// Steps before the measured ones: names become known and an order is adopted.
const WARM_UP: usize = 3;

/// One step.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// From its beginning to its end: the median of all steps.
    pub wall: Duration,
    /// Processor time of all ranks together.
    pub cpu: Duration,
}

/// Measures `steps` steps of `size` ranks that agree every time or, with `adopt`, know the order by heart.
pub fn measure(size: usize, adopt: bool, steps: usize) -> Cost {
    let settings = Settings { adopt, ..Settings::default() };
    let names: Vec<String> = (0..TENSORS).map(|index| format!("layer.{index}.weight")).collect();
    let costs = each(&make::arena, size, &settings, |engine| {
        (0..WARM_UP).for_each(|_| step(engine, &names));
        let cpu = cpu_time();
        let mut walls: Vec<Duration> = (0..steps)
            .map(|_| {
                let start = Instant::now();
                step(engine, &names);
                start.elapsed()
            })
            .collect();
        let cpu = (cpu_time() - cpu) / steps as u32;
        walls.sort_unstable();
        Cost { wall: walls[steps / 2], cpu }
    });
    costs[0]
}

fn step(engine: &Engine, names: &[String]) {
    let tickets: Vec<Ticket> = names.iter().map(|name| sum(engine, name, vec![1.0_f32; 4])).collect();
    for ticket in tickets {
        assert_eq!(vector::<f32>(ticket.wait_one()), [engine.group().size() as f32; 4]);
    }
}

/// Processor time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
