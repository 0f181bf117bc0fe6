//! Generates `docs/configuration.md` from the declarations. `config reference` prints it. Tests check that every key is described, and that
//! the checked-in file is this text.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use clap::CommandFactory;

use super::declare::{DeclaredKey, DeclaredTable, Shape, below};
use super::settings::Config;
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

/// Generates the text.
pub fn reference() -> Result<String> {
    let file = Config::declaration();
    let mut text = HEAD.to_owned();
    flags(&mut text, &file)?;
    section(&mut text, "", &file, &toml::Table::try_from(Config::default())?)?;
    Ok(text)
}

/// A table, and those in it.
fn section(text: &mut String, path: &str, table: &DeclaredTable, defaults: &toml::Table) -> Result<()> {
    let (rows, tables): (Vec<_>, Vec<_>) = table.keys.iter().partition(|key| !key.about.is_empty());
    if !rows.is_empty() || table.names.is_some() {
        let heading = if path.is_empty() { "Top level".to_owned() } else { format!("[{path}]") };
        write!(text, "\n## {heading}\n\n{}\n\n", table.about)?;
        text.push_str("| Key | Type | Default | Meaning |\n|---|---|---|---|\n");
    }
    for key in &rows {
        let default = defaults.get(key.name).with_context(|| format!("no key {}", key.name))?;
        row(text, key, &format!("`{default}`"))?;
    }
    if let Some(names) = &table.names {
        let own = defaults.iter().filter(|(name, _)| table.fixed(name).is_none());
        let own: Vec<String> = own.map(|(name, value)| format!("`\"{name}\" = {value}`")).collect();
        row(text, names, &if own.is_empty() { "none".to_owned() } else { own.join(", ") })?;
    }
    for key in tables {
        let (Shape::Table(inner), Some(toml::Value::Table(defaults))) = (&key.shape, defaults.get(key.name))
        else {
            bail!("{} has no description", below(path, key.name));
        };
        section(text, &below(path, key.name), inner, defaults)?;
    }
    Ok(())
}

fn row(text: &mut String, key: &DeclaredKey, default: &str) -> std::fmt::Result {
    writeln!(text, "| `{}` | {} | {default} | {} |", key.name, key.takes(), key.about)
}

/// Flags of every command and of `serve` that have a variable, and keys that have only a variable.
fn flags(text: &mut String, file: &DeclaredTable) -> Result<()> {
    let program = Cli::command();
    let serve = program.find_subcommand("serve").context("no command serve")?;
    let mut keys = Vec::new();
    variables("", file, &mut keys);
    for flag in program.get_arguments().chain(serve.get_arguments()) {
        let (Some(long), Some(variable)) = (flag.get_long(), flag.get_env()) else { continue };
        let value = flag.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
        let key = keys.extract_if(.., |(own, _)| variable.to_str() == Some(*own)).next();
        let key = key.map(|(_, path)| format!("`{path}`")).unwrap_or_default();
        writeln!(text, "| `--{long} {value}` | `{}` | {key} |", variable.to_string_lossy())?;
    }
    for (variable, path) in keys {
        writeln!(text, "| | `{variable}` | `{path}` |")?;
    }
    Ok(())
}

/// The environment variables that override keys, each with the path of its key.
fn variables(path: &str, table: &DeclaredTable, found: &mut Vec<(&'static str, String)>) {
    for key in &table.keys {
        let path = below(path, key.name);
        if let Shape::Table(inner) = &key.shape {
            variables(&path, inner, found);
        }
        found.extend(key.variable.map(|variable| (variable, path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_described(path: &str, table: &DeclaredTable) {
        assert!(!table.about.is_empty(), "[{path}]");
        for key in &table.keys {
            let path = below(path, key.name);
            match &key.shape {
                Shape::Table(inner) if key.about.is_empty() => assert_described(&path, inner),
                _ => assert!(!key.about.is_empty() && !key.kind.is_empty(), "{path}"),
            }
        }
    }

    #[test]
    fn every_table_and_key_is_described() {
        assert_described("", &Config::declaration());
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
