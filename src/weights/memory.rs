//! What the kernel says of memory: this process, its cgroup, the machine, and the page cache of a file.
//!
//! Linux tells all of it in /proc and /sys; elsewhere what is not known is 0 or absent. Files of the kernel are parsed by
//! pure functions, which the tests feed with files of other machines.

mod cgroup;
mod file_cache;
mod heap;
mod pressure;

use std::fs;

pub use cgroup::{CgroupMemory, cgroup};
pub use file_cache::file_cache_bytes;
pub use heap::{give_back_freed, keep_small as keep_heap_small};
pub use pressure::{Pressure, PressureWatch, pressure};

/// What stays free for everybody else when the budget is automatic.
const MARGIN_BYTES: u64 = 256 << 20;
/// What stays free of a cgroup's limit: page cache on its way through, page tables, kernel stacks.
const CGROUP_MARGIN_BYTES: u64 = 24 << 20;
/// Where the system does not tell what it can spare.
const UNKNOWN_AVAILABLE_BYTES: u64 = 1 << 30;

/// What the process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    pub rss_bytes: u64,
    pub peak_rss_bytes: u64,
    /// Of the resident set: anonymous memory, and pages of files (code, maps).
    pub anonymous_bytes: u64,
    pub file_bytes: u64,
    /// What the kernel has swapped out.
    pub swap_bytes: u64,
}

/// Bytes of a `Key:   123 kB` line of a /proc file.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What this process holds now; zeros where the system does not tell.
pub fn process() -> ProcessMemory {
    parse_status(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

fn parse_status(status: &str) -> ProcessMemory {
    let bytes = |key| field(status, key).unwrap_or(0);
    ProcessMemory {
        rss_bytes: bytes("VmRSS"),
        peak_rss_bytes: bytes("VmHWM"),
        anonymous_bytes: bytes("RssAnon"),
        file_bytes: bytes("RssFile") + bytes("RssShmem"),
        swap_bytes: bytes("VmSwap"),
    }
}

/// Memory that the machine could give without swapping.
pub fn available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    field(&text, "MemAvailable").unwrap_or(UNKNOWN_AVAILABLE_BYTES)
}

/// What the machine and the process's cgroups can spare for the whole process, itself included.
pub fn automatic_budget_bytes() -> u64 {
    spare(process().rss_bytes, available_bytes(), cgroup())
}

fn spare(rss_bytes: u64, available_bytes: u64, cgroup: Option<CgroupMemory>) -> u64 {
    let of_machine = available_bytes.saturating_sub(MARGIN_BYTES.min(available_bytes / 4));
    let of_cgroup = cgroup.map_or(u64::MAX, |cgroup| cgroup.room_bytes().saturating_sub(CGROUP_MARGIN_BYTES));
    rss_bytes.saturating_add(of_machine.min(of_cgroup))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_status_of_a_process_is_read_in_bytes() {
        let status = "Name:\tx\nVmPeak:\t  999 kB\nVmHWM:\t   600 kB\nVmRSS:\t   512 kB\nRssAnon:\t     300 kB\n\
                      RssFile:\t     200 kB\nRssShmem:\t      12 kB\nVmSwap:\t       8 kB\n";
        let memory = parse_status(status);
        assert_eq!(memory.rss_bytes, 512 << 10);
        assert_eq!(memory.peak_rss_bytes, 600 << 10);
        assert_eq!((memory.anonymous_bytes, memory.file_bytes, memory.swap_bytes), (300 << 10, 212 << 10, 8 << 10));
        assert_eq!(parse_status("VmRSS: garbage kB"), ProcessMemory::default());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_a_resident_set_under_its_peak() {
        let memory = process();
        assert!(memory.rss_bytes > MIB && memory.peak_rss_bytes >= memory.rss_bytes);
        assert!(available_bytes() > MIB);
    }

    #[test]
    fn the_automatic_budget_is_the_tighter_of_machine_and_cgroup() {
        let cgroup = CgroupMemory { limit_bytes: 512 * MIB, usage_bytes: 100 * MIB, inactive_file_bytes: 60 * MIB };
        assert_eq!(spare(30 * MIB, 4096 * MIB, None), (30 + 4096 - 256) * MIB);
        assert_eq!(spare(30 * MIB, 4096 * MIB, Some(cgroup)), (30 + 512 - 40 - 24) * MIB);
        assert_eq!(spare(30 * MIB, 300 * MIB, Some(cgroup)), (30 + 225) * MIB);
        let full = CgroupMemory { limit_bytes: MIB, usage_bytes: 2 * MIB, inactive_file_bytes: 0 };
        assert_eq!(spare(30 * MIB, 300 * MIB, Some(full)), 30 * MIB);
    }
}
