//! What the kernel says of memory: this process, its cgroup, the machine, and the page cache of a file.

use std::fs;

/// What the process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
}

/// Bytes of a `Key:   123 kB` line of a /proc file.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What this process holds now; zeros where the system does not tell.
pub fn process() -> ProcessMemory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ProcessMemory {
        rss_bytes: field(&status, "VmRSS").unwrap_or(0),
        peak_rss_bytes: field(&status, "VmHWM").unwrap_or(0),
    }
}

/// Memory that the machine could give without swapping.
pub fn available_bytes() -> u64 {
    field(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable").unwrap_or(1 << 30)
}

/// What the machine can spare for the whole process, itself included.
pub fn automatic_budget_bytes() -> u64 {
    const MARGIN: u64 = 256 << 20;
    process().rss_bytes + available_bytes().saturating_sub(MARGIN)
}
