//! The configuration: flags over environment over file over defaults.
//!
//! A key that does not exist is an error that names the nearest one that does: a limit that was mistyped must not be a limit
//! that is silently off.

mod keys;
mod values;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::cli::Global;

pub use values::Config;

const DEFAULT_FILE: &str = "/etc/sandboxd/config.toml";

/// Reads what there is and checks it.
pub fn load(global: &Global) -> Result<Config> {
    let mut config = match &global.config {
        Some(path) => read(path)?,
        None if Path::new(DEFAULT_FILE).exists() => read(Path::new(DEFAULT_FILE))?,
        None => Config::default(),
    };
    let flag = |flag: &Option<PathBuf>, place: &mut PathBuf| {
        if let Some(path) = flag {
            place.clone_from(path);
        }
    };
    flag(&global.data_dir, &mut config.data_dir);
    flag(&global.run_dir, &mut config.run_dir);
    config.check()?;
    Ok(config)
}

fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

fn parse(text: &str) -> Result<Config> {
    let table: toml::Table = text.parse()?;
    if let Some(unknown) = keys::first_unknown(&table, &toml::Table::try_from(Config::default())?) {
        bail!("{unknown}");
    }
    Ok(toml::Value::Table(table).try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_defaults() {
        let config = parse("").unwrap();
        assert_eq!(config.limits.concurrent_executions, 3);
        config.check().unwrap();
    }

    #[test]
    fn a_mistyped_key_names_the_nearest() {
        let error = parse("[capacity]\nmemroy_mb = 5").unwrap_err().to_string();
        assert_eq!(error, "unknown key 'capacity.memroy_mb'; did you mean 'capacity.memory_mb'?");
        let error = parse("[capasity]\ncpu = 5").unwrap_err().to_string();
        assert_eq!(error, "unknown key 'capasity'; did you mean 'capacity'?");
    }

    #[test]
    fn tables_that_map_image_names_take_any_name() {
        let config = parse("[images]\n\"mine:1\" = [\"rootfs:/srv/mine\"]\n[pool]\n\"mine:1\" = 3").unwrap();
        assert_eq!(config.images["mine:1"], ["rootfs:/srv/mine"]);
        assert_eq!(config.pool["mine:1"], 3);
    }

    #[test]
    fn values_are_checked_and_named() {
        let error = parse("[runtime]\nuid_slots = 0").unwrap().check().unwrap_err().to_string();
        assert!(error.contains("runtime.uid_slots") && error.contains('0'), "{error}");
        let error = parse("[capacity]\novercommit_cpu = -1.0").unwrap().check().unwrap_err().to_string();
        assert!(error.contains("capacity.overcommit_cpu"), "{error}");
        assert!(parse("data_dir = \"here\"").unwrap().check().is_err());
    }
}
