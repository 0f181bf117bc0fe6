//! The shape of the file: every key with a value of its type.
//!
//! In a table whose names the operator chooses, the entry [`ANY`] stands for all of them.

use anyhow::Result;
use api::Isolation;
use toml::{Table, Value};

use super::images::{AccountImages, ImageSources};
use super::isolation::{ContainerTable, GvisorTable, IsolationTable, Levels};
use super::limits::{AccountRates, Limits};
use super::values::{Config, E2b, E2bTemplate};

/// No image, account or template has this name.
pub const ANY: &str = "*";

pub fn shape() -> Result<Table> {
    let any = || ANY.to_owned();
    let levels = Levels { default: Some(Isolation::Container), minimum: Some(Isolation::Container) };
    let template = E2bTemplate { image: String::new(), cpu: Some(0), memory_mb: Some(0), disk_mb: Some(0) };
    let rates = AccountRates {
        read_per_minute: Some(0),
        write_per_minute: Some(0),
        create_per_minute: Some(0),
        execute_per_minute: Some(0),
        operate_per_minute: Some(0),
    };
    let config = Config {
        limits: Limits { accounts: [(any(), rates)].into(), ..Limits::default() },
        e2b: E2b { templates: [(any(), template)].into(), ..E2b::default() },
        isolation: IsolationTable {
            images: [(any(), levels)].into(),
            accounts: [(any(), levels)].into(),
            container: ContainerTable { pool: [(any(), 0)].into(), ..ContainerTable::default() },
            gvisor: GvisorTable { pool: [(any(), 0)].into(), ..GvisorTable::default() },
            ..IsolationTable::default()
        },
        images: ImageSources {
            named: [(any(), Vec::new())].into(),
            accounts: [(any(), AccountImages::default())].into(),
            ..ImageSources::default()
        },
        pool: [(any(), 0)].into(),
        ..Config::default()
    };
    let mut shape = Table::try_from(config)?;
    // An account can have each quota of all accounts.
    if let Some(Value::Table(quotas)) = shape.get_mut("quotas") {
        let mut of_one = quotas.clone();
        of_one.remove("accounts");
        quotas.insert(
            "accounts".to_owned(),
            Value::Table([(any(), Value::Table(of_one))].into_iter().collect()),
        );
    }
    Ok(shape)
}
