//! The memory limit that the process runs under, of cgroups version 1 and 2, wherever they are mounted.

use std::fs;
use std::path::{Path, PathBuf};

/// The limit that leaves the least room, of the process's cgroup or one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CgroupMemory {
    pub limit_bytes: u64,
    pub usage_bytes: u64,
    /// Page cache that the kernel would drop first.
    pub inactive_file_bytes: u64,
}

impl CgroupMemory {
    /// What may still be taken.
    pub fn room_bytes(&self) -> u64 {
        let held = self.usage_bytes.saturating_sub(self.inactive_file_bytes);
        self.limit_bytes.saturating_sub(held)
    }
}

/// The tightest memory limit of this process; `None` without one.
pub fn cgroup() -> Option<CgroupMemory> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    folders(&own, &mounts).iter().filter_map(Folder::tightest).min_by_key(CgroupMemory::room_bytes)
}

/// The folder of the process's cgroup in a hierarchy that may limit memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Folder {
    pub(super) mount: PathBuf,
    pub(super) path: PathBuf,
    pub(super) unified: bool,
}

impl Folder {
    /// From the process's own cgroup up to the mount.
    fn tightest(&self) -> Option<CgroupMemory> {
        let chain = self.path.ancestors().take_while(|folder| folder.starts_with(&self.mount));
        chain.filter_map(|folder| limit(folder, self.unified)).min_by_key(CgroupMemory::room_bytes)
    }
}

/// Version 1 writes "no limit" as the largest multiple of the page.
const UNLIMITED: u64 = 1 << 60;

fn limit(folder: &Path, unified: bool) -> Option<CgroupMemory> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let (limit, usage, inactive) = if unified {
        ("memory.max", "memory.current", "inactive_file")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    };
    // "max" is no number, and no limit.
    let limit_bytes = number(limit).filter(|&limit| limit < UNLIMITED)?;
    let stat = read("memory.stat").unwrap_or_default();
    let inactive_file_bytes = stat
        .lines()
        .find_map(|line| line.strip_prefix(inactive)?.strip_prefix(' '))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0);
    Some(CgroupMemory { limit_bytes, usage_bytes: number(usage)?, inactive_file_bytes })
}

/// Where /proc/self/cgroup and /proc/self/mountinfo place the process (man 7 cgroups, man 5 proc).
pub(super) fn folders(own: &str, mounts: &str) -> Vec<Folder> {
    let mut found = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let unified = controllers.is_empty();
        if !unified && !controllers.split(',').any(|controller| controller == "memory") {
            continue;
        }
        for mount in mounts.lines().filter_map(Mount::parse) {
            let fits = if unified { mount.kind == "cgroup2" } else { mount.kind == "cgroup" && mount.has_memory };
            if !fits {
                continue;
            }
            // A container sees its own cgroup as the root of the mount.
            let inner = Path::new(path).strip_prefix(mount.root).unwrap_or(Path::new(""));
            let inner = inner.strip_prefix("/").unwrap_or(inner);
            let mount = PathBuf::from(mount.point.replace("\\040", " "));
            found.push(Folder { path: mount.join(inner), mount, unified });
        }
    }
    found
}

struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    has_memory: bool,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, point) = (left.next()?, left.next()?);
        let mut right = right.split(' ');
        let kind = right.next()?;
        let options = right.nth(1).unwrap_or("");
        Some(Self { root, point, kind, has_memory: options.split(',').any(|option| option == "memory") })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn folder(mount: &str, path: &str, unified: bool) -> Folder {
        Folder { mount: mount.into(), path: path.into(), unified }
    }

    #[test]
    fn the_own_cgroup_is_found_in_every_kind_of_mount() {
        let v1 = "9:name=systemd:/\n4:memory:/user/a\n0::/\n";
        let v1_mounts = "30 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                         31 24 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        assert_eq!(folders(v1, v1_mounts), [folder("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/user/a", false)]);

        let v2 = "0::/system.slice/x.service\n";
        let v2_mounts = "24 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let expected = folder("/sys/fs/cgroup", "/sys/fs/cgroup/system.slice/x.service", true);
        assert_eq!(folders(v2, v2_mounts), [expected]);

        // A container whose own cgroup is the root of the mount.
        let docker = "5:memory:/docker/abc\n";
        let docker_mounts = "99 98 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup memory rw,memory\n";
        assert_eq!(folders(docker, docker_mounts), [folder("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory", false)]);
        assert!(folders("garbage", "more garbage").is_empty());
    }

    #[test]
    fn the_tightest_limit_above_the_process_counts() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "1000000\n");
        write("a/memory.current", "900000\n");
        write("a/memory.stat", "anon 5\ninactive_file 300000\nactive_file 7\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "1\n");
        write("a/b/c/memory.max", "5000000\n");
        write("a/b/c/memory.current", "100\n");
        let unified = Folder { mount: root.path().into(), path: root.path().join("a/b/c"), unified: true };
        let tightest = unified.tightest().unwrap();
        assert_eq!((tightest.limit_bytes, tightest.room_bytes()), (1_000_000, 400_000));

        write("v1/memory.limit_in_bytes", "9223372036854771712\n");
        write("v1/memory.usage_in_bytes", "5\n");
        write("v1/x/memory.limit_in_bytes", "800\n");
        write("v1/x/memory.usage_in_bytes", "500\n");
        write("v1/x/memory.stat", "inactive_file 1\ntotal_inactive_file 40\n");
        let v1 = Folder { mount: root.path().join("v1"), path: root.path().join("v1/x"), unified: false };
        assert_eq!(v1.tightest().unwrap().room_bytes(), 340);
        let free = Folder { mount: root.path().join("v1"), path: root.path().join("v1"), unified: false };
        assert_eq!(free.tightest(), None);
    }
}
