//! Generates `docs/configuration.md` from the defaults and a row for each key. `config reference` prints it.
//!
//! Tests check that every key has one row, every row a key, and that the checked-in file is this text.

use std::fmt::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::tables::TABLES;
use super::values::Config;
use crate::cli::Cli;

const HEAD: &str = "\
# Configuration

<!-- Printed by `sandboxd config reference`; a test compares. Change crates/server/src/config/ instead. -->

The file is TOML, at `/etc/sandboxd/config.toml` or at the path in `--config` or `SANDBOXD_CONFIG`. It may be missing:
every key has a default. Flags override the environment, the environment overrides the file, and the file overrides the
defaults. Changes take effect at the next start; only certificate files are read again when they change. An empty variable
counts as not set, but `SANDBOXD_REDIRECT_LISTEN` and `SANDBOXD_METRICS_LISTEN` turn their listener off if they are empty.

A relative path in the file is below the directory of the file, also in the sources `rootfs:` and `oci-layout:` of images;
in a flag or a variable it is below the current directory.

An error stops the start. `sandboxd config check` finds the same errors without starting anything, for the file that
`serve` would read, or the one in `--config`, and for the variables of `serve`. It prints each with file and line, and exits
with 0 if there is none and with 1 otherwise:

```console
$ sandboxd config check --config config.toml
config.toml:3: limits.read_per_minute is -1; it must be a whole number (count, 0 to 1000000)
config.toml:4: unknown key 'limits.pids_max'; did you mean the one in [runtime]?
config.toml:7: unknown key 'http.lisen'; did you mean 'http.listen'?
correct these errors and check again: programs, files, certificates, images and accounts are checked then
```

Of a table with unknown keys or wrong types, or with words that a key does not allow, only these are reported; of the other tables also
values out of their range. If there are none, the check looks at what the configuration names, as a start does: certificate and key,
logins, the secret of the object store, programs, and levels of isolation. Otherwise its last line says so.

A line with `warning:` is for something that does not stop a start: an image that is neither in the catalogue nor on this
host, and that no account may name; a certificate that has expired or expires within 14 days, or that lacks the names of ports; a
capacity below the smallest sandbox; a mistyped target in `log.level` or `SANDBOXD_LOG`; a private key
or a file with logins that others than its owner can use. `serve` logs the same. `sandboxd doctor` checks the host.

| Flag | Environment | Key |
|---|---|---|
";

/// Flags whose key has another name.
const KEY_OF_FLAG: [(&str, &str); 6] = [
    ("data-dir", "`data_dir`"),
    ("run-dir", "`run_dir`"),
    ("listen", "`http.listen`"),
    ("redirect-listen", "`http.redirect_listen`"),
    ("metrics-listen", "`metrics.listen`"),
    ("e2b", "`e2b.enabled`"),
];

/// Generates the text.
pub fn reference() -> Result<String> {
    let defaults = toml::Table::try_from(Config::default())?;
    let mut text = HEAD.to_owned();
    flags(&mut text)?;
    for table in &TABLES {
        let values = match table.name {
            "" => &defaults,
            name => table_named(&defaults, name).context("a table that is no table")?,
        };
        let heading =
            if table.name.is_empty() { "Top level".to_owned() } else { format!("[{}]", table.name) };
        write!(text, "\n## {heading}\n\n{}\n\n", table.about)?;
        text.push_str("| Key | Type | Default | Meaning |\n|---|---|---|---|\n");
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

/// The table with this path of names.
fn table_named<'a>(within: &'a toml::Table, path: &str) -> Option<&'a toml::Table> {
    path.split('.').try_fold(within, |table, name| table.get(name)?.as_table())
}

/// Flags of every command and of `serve` that have a variable or a key.
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
    use toml::Value;

    use super::*;
    use crate::config::tables::Table;

    /// The keys of a table and of those below it that are described as tables.
    fn keys_of(path: &str, table: &toml::Table) -> Vec<String> {
        let keys = table.iter().flat_map(|(key, value)| {
            let inner = format!("{path}.{key}");
            match value {
                Value::Table(table) if TABLES.iter().any(|described| described.name == inner) => {
                    keys_of(&inner, table)
                }
                _ => vec![inner],
            }
        });
        keys.collect()
    }

    #[test]
    fn every_key_has_one_row_and_every_row_a_key() {
        let defaults = toml::Table::try_from(Config::default()).unwrap();
        let mut keys: Vec<String> = Vec::new();
        for (name, value) in &defaults {
            match value {
                Value::Table(_) if name == "pool" => {}
                Value::Table(table) => keys.extend(keys_of(name, table)),
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
