//! What the kernel says about this machine.

use std::fs;

/// The model of its processors.
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let (_, model) = text.lines().find(|line| line.starts_with("model name"))?.split_once(':')?;
    Some(model.trim().to_owned())
}

/// How many of them there are, whoever may use them.
pub fn cores() -> usize {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines().filter(|line| line.starts_with("processor")).count().max(1)
}

/// How many processes wanted a processor in the last minute, on average.
pub fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split_whitespace().next()?.parse().ok()
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
    fn memory_is_read_in_bytes() {
        let info = "MemTotal:       16 kB\nMemAvailable:    4 kB\n";
        assert_eq!((bytes_in(info, "MemTotal"), bytes_in(info, "MemAvailable")), (16 << 10, 4 << 10));
        assert_eq!((bytes_in(info, "Mem"), bytes_in("", "MemTotal")), (0, 0));
        assert!(memory("MemTotal") > 1 << 20 && cores() > 0 && load().is_some());
    }
}
