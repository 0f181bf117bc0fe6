//! The tables of sandboxes: how they are built and separated, what they reach, and what they are created from.

use super::Table;

pub const ISOLATION: Table = Table {
    name: "isolation",
    about: "What separates sandboxes from the host: `\"container\"`, or the stronger `\"gvisor\"`; see [isolation.md](isolation.md). A create asks for one of them or for `auto`.",
    rows: &[
        ("default", "`\"container\"` or `\"gvisor\"`", "What `auto` means."),
        (
            "minimum",
            "`\"container\"` or `\"gvisor\"`",
            "Callers cannot choose a weaker one, and `auto` is never weaker.",
        ),
        (
            "images",
            "tables",
            "`default` and `minimum` for single images, as `[isolation.images.\"NAME\"]`. If image and account have one, the stronger counts.",
        ),
        (
            "accounts",
            "tables",
            "`default` and `minimum` for single accounts, as `[isolation.accounts.\"NAME\"]`.",
        ),
    ],
    free: None,
};

pub const ISOLATION_CONTAINER: Table = Table {
    name: "isolation.container",
    about: "Containers.",
    rows: &[
        (
            "program",
            "program",
            "What builds them: `\"auto\"` is the service itself, with its program `sandbox-launcher`; or an OCI runtime by name or path: runc, crun or youki.",
        ),
        ("args", "list of strings", "Arguments of the runtime before the subcommand."),
        (
            "pool",
            "table of counts",
            "Warm containers by image. `[pool]` counts for the isolation that `auto` means; if both name an image, the larger count applies.",
        ),
    ],
    free: None,
};

pub const ISOLATION_GVISOR: Table = Table {
    name: "isolation.gvisor",
    about: "Sandboxes under gVisor.",
    rows: &[
        (
            "program",
            "`\"auto\"`, `\"off\"` or program",
            "gVisor's `runsc`, a release of 2024 or later. `\"auto\"`: in the directory of `sandboxd` or on the path; if there is none, the service has containers only.",
        ),
        (
            "args",
            "list of strings",
            "Additional arguments of `runsc` before the subcommand, such as `--platform=kvm`.",
        ),
        (
            "pool",
            "table of counts",
            "Warm sandboxes under gVisor by image. Each takes some tens of MB of memory. `pool = {}` keeps none.",
        ),
    ],
    free: None,
};

pub const RUNTIME: Table = Table {
    name: "runtime",
    about: "What all sandboxes share.",
    rows: &[
        (
            "path",
            "program",
            "The former name of `isolation.container.program`. `runsc` makes gVisor the isolation of all sandboxes.",
        ),
        ("args", "list of strings", "The former name of the arguments of that program."),
        (
            "agent",
            "path",
            "The static program `sandbox-agent`. `\"auto\"`: in the directory of `sandboxd`. `sandbox-launcher` is beside it.",
        ),
        (
            "cgroup_parent",
            "relative path",
            "The parent cgroup of all sandboxes. If only `data_dir` is changed, the default is `sandboxd-` and the same 8 digits as in `run_dir`.",
        ),
        (
            "uid_base",
            "id, 65536 to 4294836224",
            "First host user id of sandboxes; each takes 65,536 ids. The ranges must not overlap those in `/etc/subuid`.",
        ),
        ("uid_slots", "count", "Number of such ranges, and so the maximum number of sandboxes."),
        ("pids_max", "count, 16 to 4000000", "Processes and threads of one sandbox."),
        (
            "disk_read_mb_per_s",
            "MB a second, 0 to 1000000",
            "Read rate of one sandbox's disk. `0`: unlimited. See [operations.md](operations.md#disk-rates).",
        ),
        (
            "disk_write_mb_per_s",
            "MB a second, 0 to 1000000",
            "Write rate of one sandbox's disk. `0`: unlimited.",
        ),
        (
            "disk_iops",
            "requests a second, 0 to 10000000",
            "Read requests, and write requests, of one sandbox's disk. `0`: unlimited.",
        ),
        (
            "lxcfs",
            "`\"auto\"`, `\"off\"` or directory",
            "With lxcfs, programs see the memory and CPUs of their sandbox instead of those of the host. `\"auto\"` uses the lxcfs of the host or starts one; a directory names the mount of a running lxcfs.",
        ),
    ],
    free: None,
};

pub const EGRESS: Table = Table {
    name: "egress",
    about: "The network of sandboxes; see [network.md](network.md). Private, link-local and metadata addresses and this host are closed under every policy, unless `allow_private` opens them. Other sandboxes are always closed.",
    rows: &[
        (
            "network",
            "`\"nftables\"` or `\"none\"`",
            "`\"nftables\"` connects sandboxes with virtual links and nftables rules, and enforces their policies, in containers and under gVisor. `\"none\"` gives them only loopback.",
        ),
        (
            "resolver",
            "`\"system\"`, address, or list of addresses",
            "DNS resolvers, such as `192.0.2.53` or `192.0.2.53:5353`. `\"system\"` uses those in `/etc/resolv.conf` of this host. With `default: deny` sandboxes reach only the resolver of the daemon; with `allow` also any public one.",
        ),
        (
            "allow_private",
            "list of networks",
            "Private networks and addresses to open, such as `10.1.0.0/16` or `192.168.1.7`. An address of this host is opened only if the list has exactly that address, not a network around it. Policies of sandboxes still apply.",
        ),
        (
            "closed",
            "list of networks",
            "Public networks and addresses to close, such as `203.0.113.0/24` or `203.0.113.7`: for example, the public address of this host behind a NAT, which the daemon cannot detect. Takes precedence over `allow_private`.",
        ),
        (
            "pool",
            "`\"auto\"` or network",
            "IPv4 network for sandbox addresses, with at least `runtime.uid_slots` + 3 addresses. It must not overlap another network of this host. `\"auto\"` chooses one in `10.64.0.0/10` and keeps it.",
        ),
        (
            "rate_mbit",
            "megabits a second, 0 to 100000",
            "Limits what each sandbox sends and, separately, what it receives. Packets above the rate are dropped; bursts of a quarter of a second pass. `0`: unlimited. A change takes effect at the next start, for running sandboxes too.",
        ),
    ],
    free: None,
};

pub const PORTS: Table = Table {
    name: "ports",
    about: "Exposed ports; see [ports.md](ports.md). Host names of ports are directly below the domain.",
    rows: &[
        (
            "domain",
            "domain",
            "Domain of exposed ports. All names below it must resolve to this service, and the certificate must be valid for them; the self-signed one is. Use a domain that serves nothing else.",
        ),
        (
            "public_port",
            "port",
            "The port in URLs. `0`: that of `http.listen`, or 443 behind a proxy in `http.trusted_proxies`.",
        ),
        (
            "max_connections",
            "count, 1 to 1024",
            "Concurrent requests and websockets through all ports of one sandbox. Further ones get 429. All sandboxes together are limited to 4096.",
        ),
        (
            "account_connections",
            "count, 1 to 4096",
            "Concurrent requests and websockets through all ports of one account. Further ones get 429.",
        ),
        (
            "idle_seconds",
            "seconds, 1 to 86400",
            "A request or websocket without traffic for this long is closed.",
        ),
    ],
    free: None,
};

pub const HIBERNATE: Table = Table {
    name: "hibernate",
    about: "What happens to the memory of paused sandboxes; see [hibernation.md](hibernation.md).",
    rows: &[(
        "after_seconds",
        "seconds, 0 to 31536000",
        "The processes of a sandbox that stays paused this long are stored on the disk and leave the memory; the memory of a container is moved to the host's swap space. `0`: only on request, or when the host is short of memory.",
    )],
    free: None,
};

pub const SNAPSHOTS: Table = Table {
    name: "snapshots",
    about: "Copies of snapshots in an object store; see [object-store.md](object-store.md).",
    rows: crate::config::snapshots::ROWS,
    free: None,
};

pub const TEMPLATES: Table = Table {
    name: "templates",
    about: "Builds of templates; see [templates.md](templates.md).",
    rows: &[
        ("concurrent_builds", "count, 1 to 64", "Builds at a time. Others wait."),
        ("max_context_mb", "MB, 1 to 65536", "The largest build context, without compression."),
    ],
    free: None,
};

pub const IMAGES: Table = Table {
    name: "images",
    about: "Sources of images by name; see [images.md](images.md). An entry with the name of a default image replaces its sources.",
    rows: crate::config::images::ROWS,
    free: Some(("\"NAME\"", "list of sources", "Sources of the image, tried in order.")),
};

pub const POOL: Table = Table {
    name: "pool",
    about: "The warm pool: sandboxes provisioned ahead, by image, so that creates are fast. The table replaces the default one as a whole: `pool = {}` disables the warm pool. Images that are missing on this host are skipped until they are pulled.",
    rows: &[],
    free: Some((
        "\"NAME\"",
        "count, 0 to 1000",
        "Sandboxes of this image to keep ready, in the default size.",
    )),
};
