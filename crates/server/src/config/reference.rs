//! `docs/configuration.md`, made of the defaults that hold and a line for each key. `config reference` prints it.
//!
//! Tests see to it that every key has one line, every line a key, and that the checked-in file is this text.

use std::fmt::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;
use toml::Value;

use super::values::Config;
use crate::cli::Cli;

const HEAD: &str = "\
# Configuration

<!-- Printed by `sandboxd config reference`; a test compares. Change crates/server/src/config/ instead. -->

The file is TOML, at `/etc/sandboxd/config.toml` or where `--config` or `SANDBOXD_CONFIG` says. It may be missing: every key
has a default. A flag goes over the environment, the environment over the file, the file over the default. A key that does not
exist is an error that names the nearest one that does, and a value out of its range stops the start with a message that says
what is allowed. Changes take effect at the next start; only certificate files are read again when they change.

| Flag | Environment | Key |
|---|---|---|
";

/// What is no key of the file, or has another name there.
const KEY_OF_FLAG: [(&str, &str); 5] = [
    ("data-dir", "`data_dir`"),
    ("run-dir", "`run_dir`"),
    ("listen", "`http.listen`"),
    ("redirect-listen", "`http.redirect_listen`"),
    ("metrics-listen", "`metrics.listen`"),
];

struct Table {
    /// Empty for the keys above all tables.
    name: &'static str,
    about: &'static str,
    /// Key, type, meaning.
    rows: &'static [(&'static str, &'static str, &'static str)],
    /// Keys that the operator names: how they are shown, type, meaning.
    free: Option<(&'static str, &'static str, &'static str)>,
}

const TABLES: [Table; 13] = [
    Table {
        name: "",
        about: "Where things are.",
        rows: &[
            (
                "data_dir",
                "path",
                "Disks, images, records, certificate and first key. Survives a reboot. Has to be absolute.",
            ),
            (
                "run_dir",
                "path",
                "Sockets and the state of running sandboxes. Belongs on a file system that a reboot empties. Has to be absolute. With another `data_dir` it is, unless set, one of its own beside the usual one.",
            ),
        ],
        free: None,
    },
    Table {
        name: "http",
        about: "Where the service listens, and its certificate.",
        rows: &[
            (
                "listen",
                "address",
                "Address and port of the service, as `0.0.0.0:443` or `[::]:443`. Port 0 takes a free one.",
            ),
            (
                "redirect_listen",
                "address",
                "Plain HTTP here is answered with a redirect to HTTPS. `\"\"` turns it off.",
            ),
            (
                "tls",
                "`\"self-signed\"`, `\"files\"` or `\"off\"`",
                "`\"self-signed\"` makes a certificate at the first start. `\"files\"` takes yours from `tls_cert` and `tls_key`. `\"off\"` speaks plain HTTP, for use behind a proxy on this host or one that `trusted_proxies` names; there is no redirect then.",
            ),
            (
                "tls_cert",
                "path",
                "PEM file with your certificate and those between it and its root. Read again when it changes.",
            ),
            ("tls_key", "path", "PEM file with its private key."),
            ("tls_names", "list of names", "Names and addresses in the self-signed certificate."),
            (
                "trusted_proxies",
                "list of networks",
                "Addresses or networks, as `10.0.0.0/8`, of reverse proxies. The log takes the client's address from their `X-Forwarded-For`. Their `X-Forwarded-Proto` is the scheme of ports: redirects use it, and private ports accept the token cookie only from pages of that scheme, so the proxy has to set this header itself.",
            ),
            (
                "max_connections",
                "count, 1 to 1000000",
                "Connections open at once. Further ones are closed as soon as they come.",
            ),
            (
                "max_connections_per_address",
                "count, 0 to 1000000",
                "Connections open at once from one source address, before any key is checked; further ones are closed. `0`: a quarter of `max_connections`, at least 256. An IPv6 client counts by its /64. Loopback addresses count like all others; `trusted_proxies` do not count.",
            ),
            (
                "max_handshakes_per_address",
                "count, 1 to 1000000",
                "TLS handshakes in progress at once from one source address. Further ones wait, at most `handshake_seconds`.",
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
        about: "What one key and one sandbox may do. `0` means no limit for the four that count a minute.",
        rows: &[
            ("read_per_minute", "count, 0 to 1000000", "GET requests of a key in any 60 s."),
            (
                "write_per_minute",
                "count, 0 to 1000000",
                "All other requests of a key but execute, in any 60 s. Creating counts here too.",
            ),
            ("create_per_minute", "count, 0 to 1000000", "Sandboxes that a key may create in any 60 s."),
            ("execute_per_minute", "count, 0 to 1000000", "Commands in one sandbox in any 60 s."),
            ("concurrent_executions", "count, 1 to 200", "Commands that run at once in a sandbox."),
            (
                "execution_queue",
                "count, 0 to 10000",
                "Commands that wait in front of them; further ones get 429.",
            ),
            (
                "max_output_bytes",
                "bytes, 1024 to 1073741824",
                "Kept of each stream of a buffered command; past it the first and the last half.",
            ),
            (
                "buffered_output_bytes",
                "bytes, 1048576 to 1099511627776",
                "Memory for the outputs of commands, and other large responses, that clients have not read yet. A command whose output does not fit waits up to 10 s and is then killed, with 503; a quarter is kept for outputs up to 64 KiB. Streams do not count. Raised, if necessary, to four thirds of what one command with `max_output_bytes` on both streams needs.",
            ),
            (
                "buffered_output_bytes_per_account",
                "bytes, 1048576 to 1099511627776",
                "The part of it that one account can occupy. Raised in the same way.",
            ),
        ],
        free: None,
    },
    Table {
        name: "capacity",
        about: "What all sandboxes together may have. A create that does not fit gets 503.",
        rows: &[
            ("cpu", "vCPUs", "Processors there are to give. `0`: those of the host."),
            ("memory_mb", "MB", "Memory there is to give. `0`: that of the host."),
            (
                "disk_mb",
                "MB",
                "Disk there is to give. `0`: the size of the file system that holds `data_dir`.",
            ),
            ("overcommit_cpu", "factor above 0", "Processors are given away so many times."),
            (
                "overcommit_memory",
                "factor above 0",
                "Memory is given away so many times. Whatever it says, sandboxes together never get more than 90 % of the host's.",
            ),
            (
                "overcommit_disk",
                "factor above 0",
                "Disk is given away so many times. Above 1, sandboxes that fill their disks can fill the host's.",
            ),
        ],
        free: None,
    },
    Table {
        name: "runtime",
        about: "The isolation backend.",
        rows: &[
            (
                "path",
                "program",
                "An OCI runtime, by name or path. `\"auto\"` takes the first of runc, crun and runsc that is installed.",
            ),
            (
                "args",
                "list of strings",
                "Its arguments before the verb, such as `--platform=systrap` for runsc.",
            ),
            ("agent", "path", "The static program `sandbox-agent`. `\"auto\"`: beside this program."),
            (
                "cgroup_parent",
                "relative path",
                "The cgroup that holds all sandboxes. With another `data_dir` it is, unless set, one of its own.",
            ),
            (
                "uid_base",
                "id, 65536 to 4294836224",
                "First host user id of sandboxes. Each takes 65,536 ids from here upwards. Keep `/etc/subuid` clear of them.",
            ),
            (
                "uid_slots",
                "count",
                "How many such ranges there are: at most so many sandboxes exist at once.",
            ),
            ("pids_max", "count, 16 to 4000000", "Processes and threads of one sandbox."),
            (
                "disk_read_mb_per_s",
                "MB a second, 0 to 1000000",
                "Limit of what one sandbox reads from its disk. `0`: none. See [operations.md](operations.md#disk-rates).",
            ),
            (
                "disk_write_mb_per_s",
                "MB a second, 0 to 1000000",
                "Limit of what one sandbox writes to its disk. `0`: none.",
            ),
            (
                "disk_iops",
                "requests a second, 0 to 10000000",
                "Limit of one sandbox's reads, and of its writes. `0`: none.",
            ),
            (
                "lxcfs",
                "`\"auto\"`, `\"off\"` or directory",
                "Shows programs inside the sandbox's own memory and processors. `\"auto\"` uses the lxcfs of the host or starts one; a directory is where one is mounted.",
            ),
        ],
        free: None,
    },
    Table {
        name: "egress",
        about: "What sandboxes reach; see [network.md](network.md). Private, link-local and metadata addresses, this host and other sandboxes are closed to every sandbox, whatever its policy says.",
        rows: &[
            (
                "network",
                "`\"nftables\"` or `\"none\"`",
                "`\"nftables\"` connects sandboxes with links and rules of this host's kernel, and holds each to its policy. `\"none\"` leaves them their loopback alone. Under gVisor they have that alone too.",
            ),
            (
                "resolver",
                "`\"system\"`, address, or list of addresses",
                "Who is asked for the addresses of names, as `192.0.2.53` or `192.0.2.53:5353`. `\"system\"` asks whom `/etc/resolv.conf` of this host names. Under `default: deny` sandboxes reach no other resolver than the daemon's; under `allow` any public one.",
            ),
            (
                "allow_private",
                "list of networks",
                "What is open although it is private, as `10.1.0.0/16` or `192.168.1.7`. An address of this host has to be named alone. Names still go by each sandbox's policy.",
            ),
            (
                "closed",
                "list of networks",
                "What is closed although it is public, as `203.0.113.0/24` or `203.0.113.7`: the public address that this host has behind a NAT, which it cannot know itself, and neighbours that are no business of sandboxes. Goes before `allow_private`.",
            ),
            (
                "pool",
                "`\"auto\"` or network",
                "IPv4 network that sandboxes have their addresses from, with at least `runtime.uid_slots` and 3 addresses. It may overlap no other network of this host. `\"auto\"` finds one in `10.64.0.0/10` and keeps to it.",
            ),
            (
                "rate_mbit",
                "megabits a second, 0 to 100000; 0: unlimited",
                "Limits what each sandbox sends and, separately, what it receives. Packets above the rate are dropped; bursts of a quarter of a second pass. A change takes effect at the next start, for running sandboxes too.",
            ),
        ],
        free: None,
    },
    Table {
        name: "ports",
        about: "How exposed ports are reached; see [ports.md](ports.md). A port's name is right below the domain.",
        rows: &[
            (
                "domain",
                "domain",
                "Every name below it has to lead to this service, and the certificate to hold for them: the self-signed one does. Best one that nothing else of yours is below.",
            ),
            (
                "public_port",
                "port",
                "The port in the URLs. `0`: that of `http.listen`, or the usual one behind a proxy that `http.trusted_proxies` names.",
            ),
            (
                "max_connections",
                "count, 1 to 1024",
                "Requests and websockets at once through all ports of one sandbox. Further ones get 429. All sandboxes together have 4096.",
            ),
            (
                "account_connections",
                "count, 1 to 4096",
                "The same through all ports of one account, so that it leaves room for the others. Further ones get 429.",
            ),
            (
                "idle_seconds",
                "seconds, 1 to 86400",
                "A request or a websocket on which nothing moves for so long is ended.",
            ),
        ],
        free: None,
    },
    Table {
        name: "retention",
        about: "How long things are kept.",
        rows: &[
            (
                "paused_days",
                "days",
                "A sandbox that stays paused so long is terminated. `0` keeps it for ever.",
            ),
            (
                "terminated_days",
                "days",
                "Records and events of terminated sandboxes stay in lists so long. `0` keeps them for ever.",
            ),
        ],
        free: None,
    },
    Table {
        name: "prices",
        about: "What running time costs. With a price above 0, each stretch of running time ends with an event `cost.runtime`.",
        rows: &[
            ("cpu_hour", "price, 0 to 1000000", "One vCPU for an hour. Taken to the billionth."),
            (
                "memory_gb_hour",
                "price, 0 to 1000000",
                "1024 MB of memory for an hour. Taken to the billionth.",
            ),
            ("currency", "three capital letters", "What the prices are in; said in the events."),
        ],
        free: None,
    },
    Table {
        name: "metrics",
        about: "For Prometheus.",
        rows: &[(
            "listen",
            "address",
            "Plain HTTP, without a key, at `/metrics`: keep it on loopback or a private network. `\"\"` turns it off.",
        )],
        free: None,
    },
    Table {
        name: "log",
        about: "What the daemon says on standard error.",
        rows: &[
            ("format", "`\"text\"` or `\"json\"`", "How a line is written."),
            (
                "level",
                "filter",
                "`error`, `warn`, `info`, `debug` or `trace`, or a filter such as `info,engine=debug`. The environment variable `SANDBOXD_LOG` goes over it. What the HTTP/2 library says below `error` is left out, unless the filter names `h2`. At `info` each request is a line but reads that went well, which are at `debug`.",
            ),
        ],
        free: None,
    },
    Table {
        name: "images",
        about: "Sources of images by name; see [images.md](images.md). Names of the default catalogue may be given other sources.",
        rows: &[(
            "allow_any",
            "true or false",
            "Lets a create name any image of a registry, as `registry.example.com/team/mine:3`, that no catalogue has.",
        )],
        free: Some(("\"NAME\"", "list of sources", "Tried in order.")),
    },
    Table {
        name: "pool",
        about: "Sandboxes made ahead, by image, so that a create is fast. This table takes the place of the default one as a whole: `pool = {}` keeps none. An image that is not on this host is passed over until it is.",
        rows: &[],
        free: Some(("\"NAME\"", "count, 0 to 1000", "Kept ready of this image, in the default size.")),
    },
];

/// The whole text.
pub fn reference() -> Result<String> {
    let defaults = toml::Table::try_from(Config::default())?;
    let mut text = HEAD.to_owned();
    flags(&mut text)?;
    for table in &TABLES {
        let values = match table.name {
            "" => &defaults,
            name => defaults.get(name).and_then(Value::as_table).context("a table that is no table")?,
        };
        let heading =
            if table.name.is_empty() { "Top level".to_owned() } else { format!("[{}]", table.name) };
        write!(text, "\n## {heading}\n\n{}\n\n", table.about)?;
        text.push_str("| Key | Type | Default | What it is |\n|---|---|---|---|\n");
        for (key, kind, about) in table.rows {
            let default = values.get(*key).with_context(|| format!("no key {key}"))?;
            writeln!(text, "| `{key}` | {kind} | `{default}` | {about} |")?;
        }
        if let Some((shown, kind, about)) = table.free {
            let named = table.rows.iter().map(|(key, _, _)| *key).collect::<Vec<_>>();
            let own: Vec<String> = values
                .iter()
                .filter(|(key, _)| !named.contains(&key.as_str()))
                .map(|(key, value)| format!("`\"{key}\" = {value}`"))
                .collect();
            let default = if own.is_empty() { "none".to_owned() } else { own.join(", ") };
            writeln!(text, "| `{shown}` | {kind} | {default} | {about} |")?;
        }
    }
    Ok(text)
}

/// Those of every command and those of `serve` that have a variable or a key.
fn flags(text: &mut String) -> Result<()> {
    let program = Cli::command();
    let serve = program.find_subcommand("serve").context("no command serve")?;
    for flag in program.get_arguments().chain(serve.get_arguments()) {
        let (Some(long), Some(variable)) = (flag.get_long(), flag.get_env()) else { continue };
        let value = flag.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let key = KEY_OF_FLAG.iter().find(|(flag, _)| *flag == long).map_or("", |(_, key)| key);
        writeln!(text, "| `--{long} {value}` | `{}` | {key} |", variable.to_string_lossy())?;
    }
    writeln!(text, "| | `SANDBOXD_LOG` | `log.level` |")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_one_row_and_every_row_a_key() {
        let defaults = toml::Table::try_from(Config::default()).unwrap();
        let mut keys: Vec<String> = Vec::new();
        for (name, value) in &defaults {
            match value {
                Value::Table(_) if name == "pool" => {}
                Value::Table(table) => keys.extend(table.keys().map(|key| format!("{name}.{key}"))),
                _ => keys.push(format!(".{name}")),
            }
        }
        let row =
            |table: &Table| table.rows.iter().map(|(key, ..)| format!("{}.{key}", table.name)).collect();
        let mut rows: Vec<String> = TABLES.iter().flat_map::<Vec<String>, _>(row).collect();
        keys.sort();
        rows.sort();
        assert_eq!(keys, rows);
        assert!(TABLES.iter().any(|table| table.name == "pool" && table.free.is_some()));
    }

    #[test]
    fn the_checked_in_file_is_this_text() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            file == reference().unwrap(),
            "docs/configuration.md is not what it should be; run: target/bin/sandboxd config reference > docs/configuration.md"
        );
    }
}
