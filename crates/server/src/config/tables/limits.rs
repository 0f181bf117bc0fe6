//! The tables that bound what keys, sandboxes and accounts use, and what it costs.

use super::Table;

pub const LIMITS: Table = Table {
    name: "limits",
    about: "Limits of one key and one sandbox, and of the memory for unread output. For the limits per minute, `0` is unlimited. `sandboxd serve --no-rate-limits` sets all of them to `0`. A key that was created with `--limits` has its own in place of them.",
    rows: &[
        (
            "read_per_minute",
            "count, 0 to 1000000",
            "GET and HEAD requests of a key in any 60 seconds, except those of `operate_per_minute`.",
        ),
        (
            "write_per_minute",
            "count, 0 to 1000000",
            "All other requests of a key in any 60 seconds, including creates, but not those of `execute_per_minute` and `operate_per_minute`. Terminations count here as long as others leave room, and are refused only after as many terminations.",
        ),
        ("create_per_minute", "count, 0 to 1000000", "Creates, forks and builds of a key in any 60 seconds."),
        ("execute_per_minute", "count, 0 to 1000000", "Commands in one sandbox in any 60 seconds."),
        (
            "operate_per_minute",
            "count, 0 to 1000000",
            "Requests for files, ports, terminals, executions, code, network, timeout, events and metrics of one sandbox in any 60 seconds.",
        ),
        (
            "concurrent_executions",
            "count, 1 to 200",
            "Concurrent commands in a sandbox, without detached ones.",
        ),
        (
            "detached_executions",
            "count, 1 to 200",
            "Concurrent detached commands and terminals in a sandbox.",
        ),
        (
            "execution_queue",
            "count, 0 to 10000",
            "Commands that wait for a slot; further ones get 429. Detached ones have a queue of the same length.",
        ),
        (
            "max_output_bytes",
            "bytes, 1024 to 1073741824",
            "Bytes of stdout and of stderr in a buffered response. If the output is longer, the response has its beginning and its end, each half of this limit.",
        ),
        (
            "buffered_output_bytes",
            "bytes, 1048576 to 1099511627776",
            "Memory for buffered output and other large responses that clients have not read yet. If a command's output does not fit, the command waits for up to 10 s, is then killed, and gets 503. A quarter is reserved for outputs of up to 64 KiB. Streams do not count. The minimum is four thirds of the memory of one command with `max_output_bytes` on both streams; a lower value is raised to it.",
        ),
        (
            "buffered_output_bytes_per_account",
            "bytes, 1048576 to 1099511627776",
            "The part of `buffered_output_bytes` that one account can use. Raised in the same way.",
        ),
        (
            "accounts",
            "tables",
            "Limits per minute of single accounts, as `[limits.accounts.\"NAME\"]` with any of the five keys. A name that no key has is a warning.",
        ),
    ],
    free: None,
};

pub const RESOURCES_MINIMUM: Table = Table {
    name: "resources.minimum",
    about: "The least that a request may ask for. The defaults are those of the API; lower values allow smaller sandboxes. What a request gets that asks for nothing does not change.",
    rows: &[
        ("cpu", "vCPUs, 1 to 2", "vCPUs. `1` allows sandboxes with one."),
        ("memory_mb", "MB, 128 to 2048", "Memory."),
        ("disk_mb", "MB, 512 to 5120", "Disk."),
    ],
    free: None,
};

pub const CAPACITY: Table = Table {
    name: "capacity",
    about: "Capacity for all sandboxes together. A create or resume that exceeds it gets 503, which names the key. A running sandbox is allocated its vCPUs, memory and disk, a paused one only its disk. The defaults fit a hundred mostly idle sandboxes on a personal machine: sandboxes share CPU time, and the daemon monitors the memory and disk that are in use.",
    rows: &[
        ("cpu", "vCPUs", "CPUs that sandboxes can be allocated, before overcommit. `0`: those of the host."),
        (
            "memory_mb",
            "MB",
            "Memory that sandboxes can be allocated, before overcommit. `0`: that of the host.",
        ),
        (
            "disk_mb",
            "MB",
            "Disk that sandboxes can be allocated, before overcommit. The maximum, and the meaning of `0`, is the free space of the file system that holds `data_dir`, plus the space that disks of sandboxes occupy, minus the reserve. Images, records and logs on that file system reduce it.",
        ),
        ("overcommit_cpu", "factor above 0", "Overcommit factor of `cpu`."),
        (
            "overcommit_memory",
            "factor above 0",
            "Overcommit factor of `memory_mb`. With any factor, all sandboxes together use at most 90 % of the host's memory.",
        ),
        (
            "overcommit_disk",
            "factor above 0",
            "Overcommit factor of `disk_mb`. Above 1, sandboxes that fill their disks can reach the reserve and are then paused. With 1, each sandbox can fill its disk.",
        ),
        (
            "reserve_disk_mb",
            "MB",
            "Reserve of free disk space. Below it, sandboxes that write are paused with the reason `disk_pressure`, and creates, resumes, snapshots, forks, rollbacks and uploads get 503 until one and a half times the reserve is free. The reserve keeps the daemon's records writable. `0`: 5 % of the file system, at most 2048.",
        ),
        (
            "reserve_memory_mb",
            "MB",
            "Reserve of available memory. Below it, creates get 503, and so do resumes of sandboxes whose processes have ended. `0`: 5 % of the host's memory, at most 2048.",
        ),
    ],
    free: None,
};

pub const QUOTAS: Table = Table {
    name: "quotas",
    about: "Quotas of one account. `0` is unlimited. A request that exceeds a quota gets `429 QUOTA_EXCEEDED`; for stored events and responses, the oldest are evicted instead.",
    rows: &[
        ("sandboxes", "count", "Sandboxes that are not terminated, paused ones included."),
        ("vcpus", "vCPUs", "vCPUs of running sandboxes."),
        ("memory_mb", "MB", "Memory of running sandboxes."),
        (
            "disk_mb",
            "MB",
            "Disks of sandboxes that are not terminated, copies below forks, deleted snapshots that are still needed, and stored processes.",
        ),
        ("snapshots", "snapshots", "Snapshots."),
        (
            "snapshots_mb",
            "MB",
            "Disk space of snapshots, of the steps of templates, of copies below forks, and of deleted snapshots that are still needed. What a snapshot shares with the image and with other snapshots is not counted twice.",
        ),
        ("templates", "count", "Templates, those that are built and failed builds included."),
        (
            "execution_logs_mb",
            "MB",
            "Logs of detached executions. Above the quota no further detached execution starts.",
        ),
        (
            "idempotency_mb",
            "MB",
            "Stored responses to requests with an `Idempotency-Key`, compressed. Above the quota the oldest are evicted; a repetition of such a request is then executed again.",
        ),
        ("events_mb", "MB", "Stored events of the service. Above the quota the oldest are evicted."),
        (
            "posted_events_mb",
            "MB",
            "Stored events that clients posted. Above the quota the oldest are evicted.",
        ),
        ("connections", "count", "Requests in flight, streams included."),
        ("streams", "count", "Event streams, output streams and attached terminals."),
        (
            "accounts",
            "tables",
            "Quotas of single accounts, as `[quotas.accounts.\"NAME\"]` with any of the keys above. A name that no key has is a warning.",
        ),
    ],
    free: None,
};

pub const PRICES: Table = Table {
    name: "prices",
    about: "The price of running time. With a price above 0, each period of running time ends with an event `cost.runtime`.",
    rows: &[
        ("cpu_hour", "price, 0 to 1000000", "One vCPU for an hour, rounded to billionths."),
        ("memory_gb_hour", "price, 0 to 1000000", "1024 MB of memory for an hour, rounded to billionths."),
        ("currency", "three capital letters", "Currency of the prices; events contain it."),
    ],
    free: None,
};
