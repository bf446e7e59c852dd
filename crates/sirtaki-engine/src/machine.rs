//! What the kernel says about this machine.

use std::fs;

/// Seconds in which the kernel's load average forgets two thirds of the past.
const LOAD_FADES: f64 = 60.0;
/// Seconds below which the load is not reported: the kernel samples it every five.
const SHORTEST: f64 = 10.0;

/// The model of its processors.
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(model.trim().to_owned())
}

/// How many of them there are, regardless of which processes may use them.
pub fn cores() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// How many processes wanted a processor in the last minute, on average.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
}

/// How many processes wanted a processor on average during the last `seconds`, from [`load`] at their beginning and at
/// their end. The kernel lets the time before fade away over minutes, and that part is subtracted. Not known for times
/// that are short compared with the kernel's sampling.
pub fn load_during(before: f64, after: f64, seconds: f64) -> Option<f64> {
    let faded = (-seconds / LOAD_FADES).exp();
    (seconds >= SHORTEST).then(|| ((after - before * faded) / (1.0 - faded)).max(0.0))
}

/// Whether more processes want a processor than the job's `own`.
pub fn is_busy(load: f64, own: usize) -> bool {
    load > own as f64 + 0.5
}

/// Bytes of memory by the kernel's name for them, such as `MemTotal`.
pub fn memory(name: &str) -> u64 {
    bytes_in(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), name)
}

fn bytes_in(info: &str, name: &str) -> u64 {
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_of_a_run_leaves_out_what_was_before() {
        let fade = |before: f64, during: f64, seconds: f64| during + (before - during) * (-seconds / 60.0).exp();
        for (before, during, seconds) in [(4.0, 2.0, 30.0), (0.0, 5.0, 10.0), (8.0, 0.5, 600.0)] {
            let found = load_during(before, fade(before, during, seconds), seconds).unwrap();
            assert!((found - during).abs() < 1e-9, "{found}");
        }
        assert_eq!(load_during(1.0, 5.0, 2.0), None, "too short");
        assert_eq!(load_during(9.0, 0.0, 60.0), Some(0.0));
    }

    #[test]
    fn a_job_alone_does_not_make_its_machine_busy() {
        assert!(is_busy(5.0, 2) && !is_busy(2.1, 2));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let info = "MemTotal:       16 kB\nMemAvailable:    4 kB\n";
        assert_eq!((bytes_in(info, "MemTotal"), bytes_in(info, "MemAvailable")), (16 << 10, 4 << 10));
        assert_eq!((bytes_in(info, "Mem"), bytes_in("", "MemTotal")), (0, 0));
        assert!(memory("MemTotal") > 1 << 20 && cores() > 0 && load().is_some());
    }
}
