//! The meaning of each configuration key: a row per key, by table. `reference` prints them.

/// One table of the file.
pub struct Table {
    /// Empty for the top level.
    pub name: &'static str,
    pub about: &'static str,
    /// Key, type, meaning.
    pub rows: &'static [(&'static str, &'static str, &'static str)],
    /// Keys that the operator chooses: placeholder, type, meaning.
    pub free: Option<(&'static str, &'static str, &'static str)>,
}

pub const TABLES: [Table; 23] = [
    Table {
        name: "",
        about: "Directories.",
        rows: &[
            (
                "data_dir",
                "path",
                "Disks, images, records, certificate and local key. On a file system that survives a reboot.",
            ),
            (
                "run_dir",
                "path",
                "Sockets and the state of running sandboxes. On a file system that a reboot empties. If only `data_dir` is changed, the default is `/run/sandboxd-` and 8 hexadecimal digits derived from `data_dir`.",
            ),
        ],
        free: None,
    },
    Table {
        name: "http",
        about: "Addresses, certificate and connection limits of the service.",
        rows: &[
            (
                "listen",
                "address",
                "Address and port of the service, such as `0.0.0.0:443` or `[::]:443`. Port 0 selects a free port.",
            ),
            (
                "redirect_listen",
                "address",
                "Address that redirects plain HTTP to HTTPS. `\"\"` turns it off.",
            ),
            (
                "tls",
                "`\"self-signed\"`, `\"files\"` or `\"off\"`",
                "`\"self-signed\"` generates a certificate at the first start. `\"files\"` reads yours from `tls_cert` and `tls_key`. `\"off\"` serves plain HTTP, without a redirect, for use behind a proxy on this host or one in `trusted_proxies`.",
            ),
            (
                "tls_cert",
                "path",
                "PEM file with your certificate and the intermediate certificates. Read again when it changes.",
            ),
            ("tls_key", "path", "PEM file with its private key."),
            ("tls_names", "list of names", "Names and addresses in the self-signed certificate."),
            (
                "trusted_proxies",
                "list of networks",
                "Addresses or networks (`10.0.0.0/8`) of reverse proxies. The client address in the log comes from their `X-Forwarded-For`. Their `X-Forwarded-Proto` is the scheme of exposed ports: redirects use it, and private ports accept the token cookie only from pages with that scheme, so the proxy must set this header and not pass on the client's.",
            ),
            (
                "allowed_origins",
                "list of origins",
                "Origins of web pages whose scripts may call the API, such as `https://app.example.com` (CORS). `\"*\"` allows all pages. They need an API key like any other client, and whoever opens such a page can read its key.",
            ),
            ("max_connections", "count, 1 to 1000000", "Open connections. Further ones are closed at once."),
            (
                "max_connections_per_address",
                "count, 0 to 1000000",
                "Open connections of one source address, counted before authentication. Further ones are closed. `0`: a quarter of `max_connections`, at least 256. An IPv6 client counts by its /64. Loopback addresses count like all others; `trusted_proxies` do not count.",
            ),
            (
                "max_handshakes_per_address",
                "count, 1 to 1000000",
                "TLS handshakes in progress of one source address. Further ones wait for at most `handshake_seconds`.",
            ),
            (
                "handshake_seconds",
                "seconds, 1 to 300",
                "Time for a TLS handshake. A client that takes longer is disconnected.",
            ),
        ],
        free: None,
    },
    Table {
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
            (
                "create_per_minute",
                "count, 0 to 1000000",
                "Creates, forks and builds of a key in any 60 seconds.",
            ),
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
                "Limits per minute of single accounts, as `[limits.accounts.\"NAME\"]` with any of the five keys.",
            ),
        ],
        free: None,
    },
    Table {
        name: "resources.minimum",
        about: "The least that a request may ask for. The defaults are those of the API; lower values allow smaller sandboxes. What a request gets that asks for nothing does not change.",
        rows: &[
            ("cpu", "vCPUs, 1 to 2", "vCPUs. `1` allows sandboxes with one."),
            ("memory_mb", "MB, 128 to 2048", "Memory."),
            ("disk_mb", "MB, 512 to 5120", "Disk."),
        ],
        free: None,
    },
    Table {
        name: "capacity",
        about: "Capacity for all sandboxes together. A create or resume that exceeds it gets 503, which names the key. A running sandbox is allocated its vCPUs, memory and disk, a paused one only its disk. The defaults fit a hundred mostly idle sandboxes on a personal machine: sandboxes share CPU time, and the daemon monitors the memory and disk that are in use.",
        rows: &[
            (
                "cpu",
                "vCPUs",
                "CPUs that sandboxes can be allocated, before overcommit. `0`: those of the host.",
            ),
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
    },
    Table {
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
                "Quotas of single accounts, as `[quotas.accounts.\"NAME\"]` with any of the keys above.",
            ),
        ],
        free: None,
    },
    Table {
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
    },
    Table {
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
    },
    Table {
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
    },
    Table {
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
    },
    Table {
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
    },
    Table {
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
    },
    Table {
        name: "e2b",
        about: "The E2B-compatible API; see [e2b.md](e2b.md). It is served at `api.DOMAIN` and `sandbox.DOMAIN` below `ports.domain`, and at the paths of that API on `http.listen`.",
        rows: &[
            ("enabled", "boolean", "Serve the API."),
            (
                "public_ports",
                "boolean",
                "All ports of a sandbox that was created through this API are open to everybody who knows its id, unless the create says otherwise, as with E2B. `false`: they always need the traffic token.",
            ),
            (
                "templates",
                "table of templates",
                "Templates by name, such as `[e2b.templates.\"large\"]` with `image` and, optionally, `cpu`, `memory_mb` and `disk_mb`. By default, `base` is the image `python:3.12`, and `code-interpreter-v1` the image `code-interpreter`. Another name is the name of an image.",
            ),
        ],
        free: None,
    },
    Table {
        name: "retention",
        about: "How long records are stored, and how much of them for each account.",
        rows: &[
            ("paused_days", "days", "A sandbox that stays paused this long is terminated. `0`: never."),
            (
                "terminated_days",
                "days",
                "Records and events of terminated sandboxes are listed this long. `0`: forever.",
            ),
            (
                "snapshot_days",
                "days",
                "A snapshot is deleted after this time. Those of templates are kept. `0`: never.",
            ),
            (
                "records_mb",
                "MB, 0 to 1048576",
                "Records of terminated sandboxes of one account. Above it the oldest are removed with their events, within a minute. `0`: unlimited.",
            ),
            (
                "build_logs_mb",
                "MB, 0 to 1048576",
                "Logs of finished builds of one account. Above it the oldest logs are removed, also those of templates, which remain. `0`: unlimited.",
            ),
        ],
        free: None,
    },
    Table {
        name: "hibernate",
        about: "What happens to the memory of paused sandboxes; see [hibernation.md](hibernation.md).",
        rows: &[(
            "after_seconds",
            "seconds, 0 to 31536000",
            "The processes of a sandbox that stays paused this long are stored on the disk and leave the memory; the memory of a container is moved to the host's swap space. `0`: only on request, or when the host is short of memory.",
        )],
        free: None,
    },
    Table {
        name: "snapshots",
        about: "Copies of snapshots in an object store; see [object-store.md](object-store.md).",
        rows: &[
            (
                "store",
                "`\"file:\"`, `\"s3://BUCKET/PREFIX\"` or `\"file:/DIR\"`",
                "Where copies of snapshots are stored: a bucket, or a directory such as that of a network file system. `\"file:\"`: snapshots are on this host only.",
            ),
            (
                "endpoint",
                "URL",
                "Address of an S3 server. `\"\"`: `AWS_ENDPOINT_URL` of the environment, or that of the region.",
            ),
            (
                "region",
                "name",
                "Region of the bucket. `\"\"`: `AWS_REGION` of the environment, or `us-east-1`.",
            ),
            (
                "access_key_id",
                "text",
                "Key of the S3 server. `\"\"`: `AWS_ACCESS_KEY_ID` of the environment, or the credentials of the cloud's machine.",
            ),
            (
                "secret_access_key",
                "text",
                "Its secret. Nobody but root may be able to read the file then. `\"\"`: `AWS_SECRET_ACCESS_KEY` of the environment.",
            ),
            (
                "secret_file",
                "path",
                "File with the secret that all hosts with this store share; only its owner may be able to read it. `\"\"`: `snapshots.secret` in the data directory, which is made at the first start.",
            ),
            (
                "accept_unauthenticated",
                "boolean",
                "Accepts copies that earlier releases have stored, which have no authentication code. Whoever can write to the store can then replace snapshots.",
            ),
            (
                "local_hours",
                "hours, 0 to 87600",
                "Snapshots that are in the object store and that nothing has used for this time are removed from this host; the next use copies them back. `0`: never.",
            ),
        ],
        free: None,
    },
    Table {
        name: "templates",
        about: "Builds of templates; see [templates.md](templates.md).",
        rows: &[
            ("concurrent_builds", "count, 1 to 64", "Builds at a time. Others wait."),
            ("max_context_mb", "MB, 1 to 65536", "The largest build context, without compression."),
        ],
        free: None,
    },
    Table {
        name: "prices",
        about: "The price of running time. With a price above 0, each period of running time ends with an event `cost.runtime`.",
        rows: &[
            ("cpu_hour", "price, 0 to 1000000", "One vCPU for an hour, rounded to billionths."),
            (
                "memory_gb_hour",
                "price, 0 to 1000000",
                "1024 MB of memory for an hour, rounded to billionths.",
            ),
            ("currency", "three capital letters", "Currency of the prices; events contain it."),
        ],
        free: None,
    },
    Table {
        name: "mcp",
        about: "The MCP server at `/mcp`, for AI assistants. See [mcp.md](mcp.md).",
        rows: &[
            ("enabled", "boolean", "Whether the service has `/mcp`. Every request needs an API key."),
            ("image", "image", "Image of sandboxes, unless a call names another one."),
            (
                "max_sessions",
                "count, 1 to 100000",
                "Open sessions. One account can have a quarter of them. Further ones get 429.",
            ),
            (
                "idle_minutes",
                "minutes, 6 to 1440",
                "A session without a request or a message for this time ends, and its sandbox is terminated.",
            ),
            (
                "sandbox_minutes",
                "minutes, 1 to 1440",
                "Lifetime of the sandbox of a session. It ends the sandbox if the daemon is killed before the session ends.",
            ),
        ],
        free: None,
    },
    Table {
        name: "metrics",
        about: "Metrics for Prometheus.",
        rows: &[(
            "listen",
            "address",
            "Plain HTTP without authentication, at `/metrics`: use loopback or a private network. `\"\"` turns it off.",
        )],
        free: None,
    },
    Table {
        name: "log",
        about: "The log on standard error.",
        rows: &[
            ("format", "`\"text\"` or `\"json\"`", "Format of a line."),
            (
                "level",
                "filter",
                "`error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,engine=debug`. The environment variable `SANDBOXD_LOG` overrides it. Messages of the HTTP/2 library below `error` are dropped, unless the filter names `h2`. At `info` each request is a line, except successful reads, which are at `debug`.",
            ),
        ],
        free: None,
    },
    Table {
        name: "images",
        about: "Sources of images by name; see [images.md](images.md). An entry with the name of a default image replaces its sources.",
        rows: &[
            (
                "allow_any",
                "true or false",
                "Allows creates to use any image of a registry, such as `registry.example.com/team/mine:3`. The registry, its token server and its storage must have public addresses and TLS, and are reached without a proxy.",
            ),
            (
                "private_registries",
                "list of `HOST` or `HOST:PORT`",
                "Registries that creates may name with `allow_any` although they are on this host or in a private network. Their answers can lead the service to any address.",
            ),
        ],
        free: Some(("\"NAME\"", "list of sources", "Sources of the image, tried in order.")),
    },
    Table {
        name: "pool",
        about: "The warm pool: sandboxes provisioned ahead, by image, so that creates are fast. The table replaces the default one as a whole: `pool = {}` disables the warm pool. Images that are missing on this host are skipped until they are pulled.",
        rows: &[],
        free: Some((
            "\"NAME\"",
            "count, 0 to 1000",
            "Sandboxes of this image to keep ready, in the default size.",
        )),
    },
];
