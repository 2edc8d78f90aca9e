//! The processor cores this process may use: affinity mask, SMT siblings, cgroup quotas.
//!
//! Linux only; elsewhere the standard library's count stands and nothing is bound.

/// Physical cores this process may use, and no more than its cgroup's quota allows; at least 1.
///
/// More threads than that gain nothing: kernels keep a core's vector units and its share of the memory busy alone.
pub fn default_threads() -> usize {
    let cores = physical_cores().len().max(1);
    #[cfg(target_os = "linux")]
    let cores = match linux::quota_cores() {
        // A quota of 1.5 cores is better used by two threads that are throttled a quarter of the time than by one.
        Some(quota) => cores.min((quota + 0.5) as usize),
        None => cores,
    };
    cores.max(1)
}

/// One entry for each physical core: its logical processors that this process may use (none where unknown).
pub(super) fn physical_cores() -> Vec<Vec<usize>> {
    #[cfg(target_os = "linux")]
    if let Some(cores) = linux::physical_cores() {
        return cores;
    }
    vec![Vec::new(); std::thread::available_parallelism().map_or(1, usize::from)]
}

/// Binds the calling thread to these logical processors; no processors or no support leave it free.
pub(super) fn bind_current_thread(processors: &[usize]) {
    #[cfg(target_os = "linux")]
    linux::bind_current_thread(processors);
    #[cfg(not(target_os = "linux"))]
    let _ = processors;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::path::Path;

    use rustix::thread::CpuSet;

    pub(super) fn physical_cores() -> Option<Vec<Vec<usize>>> {
        // The main thread's mask: the calling thread may be bound.
        let mask = rustix::thread::sched_getaffinity(Some(rustix::process::getpid())).ok()?;
        let allowed = (0..CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu));
        let cores = group_siblings(allowed, |cpu| {
            let list = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            std::fs::read_to_string(list).ok()
        });
        (!cores.is_empty()).then_some(cores)
    }

    /// Logical processors with the same list of siblings are one core; without a list each is its own.
    pub(super) fn group_siblings(
        processors: impl Iterator<Item = usize>,
        siblings: impl Fn(usize) -> Option<String>,
    ) -> Vec<Vec<usize>> {
        let mut cores: Vec<Vec<usize>> = Vec::new();
        let mut by_list: BTreeMap<String, usize> = BTreeMap::new();
        for cpu in processors {
            let core = match siblings(cpu) {
                Some(list) => *by_list.entry(list).or_insert(cores.len()),
                None => cores.len(),
            };
            if core == cores.len() {
                cores.push(Vec::new());
            }
            cores[core].push(cpu);
        }
        cores
    }

    pub(super) fn bind_current_thread(processors: &[usize]) {
        if processors.is_empty() {
            return;
        }
        let mut mask = CpuSet::new();
        processors.iter().for_each(|&cpu| mask.set(cpu));
        // A refusal (a mask that shrank meanwhile, a sandbox) costs speed only.
        let _ = rustix::thread::sched_setaffinity(None, &mask);
    }

    pub(super) fn quota_cores() -> Option<f64> {
        let membership = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        quota_under(&membership, Path::new("/sys/fs/cgroup"))
    }

    /// The smallest CPU quota, in cores, on the way from this process's cgroups to the root, given `/proc/self/cgroup`
    /// and the place where cgroups are mounted. `cpu.max` is version 2, `cpu.cfs_*` version 1.
    pub(super) fn quota_under(membership: &str, mount: &Path) -> Option<f64> {
        let mut least: Option<f64> = None;
        for line in membership.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let roots = match controllers {
                "" => vec![mount.to_path_buf(), mount.join("unified")],
                list if list.split(',').any(|c| c == "cpu") => vec![mount.join(list), mount.join("cpu")],
                _ => continue,
            };
            for root in roots {
                let group = root.join(path.trim_start_matches('/'));
                for level in group.ancestors().take_while(|level| level.starts_with(&root)) {
                    if let Some(quota) = quota_at(level) {
                        least = Some(least.map_or(quota, |q| q.min(quota)));
                    }
                }
            }
        }
        least
    }

    fn quota_at(group: &Path) -> Option<f64> {
        let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
        let (quota, period) = match read("cpu.max") {
            Some(both) => {
                let mut fields = both.split_whitespace().map(str::to_owned);
                (fields.next()?, fields.next()?)
            }
            None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
        };
        // "max" and -1 stand for none.
        let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    }
}

#[cfg(all(test, target_os = "linux"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn siblings_of_one_core_count_once() {
        let two_way = |cpu: usize| Some(format!("{},{}", cpu % 4, cpu % 4 + 4));
        assert_eq!(linux::group_siblings(0..8, two_way), [[0, 4], [1, 5], [2, 6], [3, 7]]);
        assert_eq!(linux::group_siblings([1, 3, 5].into_iter(), two_way), [vec![1, 5], vec![3]]);
        assert_eq!(linux::group_siblings(0..3, |_| None), [[0], [1], [2]]);
    }

    #[test]
    fn the_tightest_quota_on_the_way_to_the_root_counts() {
        let mount = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = mount.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let quota = |membership: &str| linux::quota_under(membership, mount.path());
        assert_eq!(quota("0::/a/b\n"), None);
        write("a/b/cpu.max", "max 100000\n");
        assert_eq!(quota("0::/a/b\n"), None);
        write("a/cpu.max", "150000 100000\n");
        assert_eq!(quota("0::/a/b\n"), Some(1.5));
        write("a/b/cpu.max", "50000 100000\n");
        assert_eq!(quota("0::/a/b\n"), Some(0.5));
        write("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n");
        write("cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota("4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n"), None);
        write("cpu,cpuacct/docker/x/cpu.cfs_quota_us", "250000\n");
        assert_eq!(quota("4:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n"), Some(2.5));
    }

    #[test]
    fn there_is_at_least_one_thread_and_no_more_than_processors() {
        let processors: usize = physical_cores().iter().map(Vec::len).sum();
        assert!((1..=processors).contains(&default_threads()));
    }
}
