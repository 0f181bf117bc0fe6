//! The tables of the service itself: its directories and addresses, its records, its log, and the APIs beside the native one.

use super::Table;

pub const DIRECTORIES: Table = Table {
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
};

pub const HTTP: Table = Table {
    name: "http",
    about: "Addresses, certificate and connection limits of the service.",
    rows: &[
        (
            "listen",
            "address",
            "Address and port of the service, such as `0.0.0.0:443` or `[::]:443`. Port 0 selects a free port.",
        ),
        ("redirect_listen", "address", "Address that redirects plain HTTP to HTTPS. `\"\"` turns it off."),
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
        (
            "tls_key",
            "path",
            "PEM file with its private key, without a passphrase. Only its owner should be able to read it (mode 600).",
        ),
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
};

pub const E2B: Table = Table {
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
            "Templates by name, such as `[e2b.templates.\"large\"]` with `image` and, optionally, `cpu`, `memory_mb` and `disk_mb`. By default, `base` is the image `e2b-base`, and `code-interpreter-v1` the image `code-interpreter`. Another name is the name of an image.",
        ),
    ],
    free: None,
};

pub const RETENTION: Table = Table {
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
};

pub const MCP: Table = Table {
    name: "mcp",
    about: "The MCP server at `/mcp`, for AI assistants. See [mcp.md](mcp.md).",
    rows: crate::config::mcp::ROWS,
    free: None,
};

pub const METRICS: Table = Table {
    name: "metrics",
    about: "Metrics for Prometheus.",
    rows: &[(
        "listen",
        "address",
        "Plain HTTP without authentication, at `/metrics`: use loopback or a private network. `\"\"` turns it off.",
    )],
    free: None,
};

pub const LOG: Table = Table {
    name: "log",
    about: "The log on standard error.",
    rows: &[
        ("format", "`\"text\"` or `\"json\"`", "Format of a line."),
        (
            "level",
            "filter",
            "`error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,engine=debug`. The environment variable `SANDBOXD_LOG` overrides it and is checked in the same way. Messages of the HTTP/2 library below `error` are dropped, unless the filter names `h2`. At `info` each request is a line, except successful reads, which are at `debug`.",
        ),
    ],
    free: None,
};
