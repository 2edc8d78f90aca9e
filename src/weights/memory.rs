//! What the kernel says of memory: this process, its cgroup, the machine, and the page cache of a file.
