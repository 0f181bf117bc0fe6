//! Snapshots: which layers a sandbox above one gets, and what requests may ask for.

use std::collections::BTreeMap;

use api::bounds::{FORK_COUNT, SNAPSHOT_NAME_CHARS};
use api::{ForkBody, NAME_KEY, SandboxConfig, SandboxId, SandboxName, SnapshotBody};

use crate::config::{env, metadata, take_name};
use crate::listing::{QueryError, list_query, repeated};
use crate::{ConfigError, ConfigRules, IsolationRules};

/// The most snapshots among the layers of a sandbox. Each costs a lookup for every path, and a loop device.
pub const MAX_SNAPSHOT_LAYERS: usize = 8;

/// What a sandbox above a snapshot begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseLayers<T> {
    /// Copied as the first content of its disk.
    pub disk_from: Option<T>,
    pub layers: Vec<T>,
}

/// The base of a sandbox above a snapshot. `snapshots` are the disk of the snapshot and those below it, topmost first; `image` are
/// the layers of the image. A chain of snapshots that is too long is shortened: its topmost disk is copied instead of shared.
pub fn base_layers<T: Clone>(snapshots: &[T], image: &[T]) -> BaseLayers<T> {
    let (disk_from, shared) = match snapshots {
        [top, rest @ ..] if rest.len() >= MAX_SNAPSHOT_LAYERS => (Some(top.clone()), rest),
        all => (None, all),
    };
    BaseLayers { disk_from, layers: [shared, image].concat() }
}

/// A checked request for a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotRequest {
    pub name: Option<String>,
    pub metadata: BTreeMap<String, String>,
    /// With the processes.
    pub memory: bool,
}

/// Checks a request for a snapshot.
pub fn snapshot_request(body: SnapshotBody, rules: &ConfigRules) -> Result<SnapshotRequest, ConfigError> {
    let name = body.name;
    if let Some(name) = &name {
        let chars = name.chars().count();
        if chars == 0 || chars > SNAPSHOT_NAME_CHARS || name.chars().any(|c| c.is_ascii_control()) {
            let allowed = format!("1 to {SNAPSHOT_NAME_CHARS} characters without control characters");
            return Err(ConfigError::text("name", name, allowed));
        }
    }
    let metadata = metadata(body.metadata.unwrap_or_default(), rules)?;
    Ok(SnapshotRequest { name, metadata, memory: body.memory.unwrap_or(false) })
}

/// A checked request for a fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkRequest {
    pub count: u32,
    pub env: BTreeMap<String, String>,
    /// The name of the only new sandbox. None of several has one.
    pub name: Option<SandboxName>,
    /// `None` keeps the tags of the sandbox, without its name.
    pub metadata: Option<BTreeMap<String, String>>,
    /// With the processes.
    pub memory: bool,
    /// The current rules of the account, which may be stricter than those at the create of the sandbox.
    pub isolation: IsolationRules,
}

impl ForkRequest {
    /// The configuration of the new sandboxes.
    pub fn config(&self, source: &SandboxConfig) -> Result<SandboxConfig, ConfigError> {
        let mut config = source.clone();
        config.isolation = config.isolation.max(self.isolation.minimum(&config.image));
        config.env.extend(self.env.clone());
        config.env = env(config.env)?;
        if let Some(metadata) = &self.metadata {
            config.metadata.clone_from(metadata);
        }
        // The sandbox keeps its own.
        config.metadata.remove(NAME_KEY);
        if let Some(name) = &self.name {
            config.metadata.insert(NAME_KEY.to_owned(), name.to_string());
        }
        Ok(config)
    }
}

/// Checks a request for forks. Only a single one can have a name.
pub fn fork_request(mut body: ForkBody, rules: &ConfigRules) -> Result<ForkRequest, ConfigError> {
    let range = FORK_COUNT.min..=FORK_COUNT.max;
    let Some(count) = u32::try_from(body.count).ok().filter(|count| range.contains(count)) else {
        let allowed = format!("a whole number from {} to {}", FORK_COUNT.min, FORK_COUNT.max);
        return Err(ConfigError::new("count", body.count.to_string(), allowed));
    };
    let name = take_name(body.name, body.metadata.as_mut())?;
    if let Some(name) = name.as_ref().filter(|_| count > 1) {
        let allowed = "no name if count is above 1: each sandbox has a name of its own";
        return Err(ConfigError::text("name", name.as_str(), allowed));
    }
    Ok(ForkRequest {
        count,
        name,
        env: env(body.env.unwrap_or_default())?,
        metadata: body.metadata.map(|given| metadata(given, rules)).transpose()?,
        memory: body.memory.unwrap_or(false),
        isolation: rules.isolation.clone(),
    })
}

/// A query of the list of snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotQuery {
    pub sandbox: Option<SandboxId>,
    pub name: Option<String>,
    /// All pairs must match.
    pub metadata: BTreeMap<String, String>,
    pub limit: u32,
    pub offset: u64,
}

/// Reads the query of the list of snapshots.
pub fn snapshot_query(
    pairs: impl IntoIterator<Item = (String, String)>,
) -> Result<SnapshotQuery, QueryError> {
    let (mut sandbox, mut name, mut shared): (Option<String>, Option<String>, _) = (None, None, Vec::new());
    for (key, value) in pairs {
        let slot = match key.as_str() {
            "sandboxId" => &mut sandbox,
            "name" => &mut name,
            // Lists of sandboxes have these, lists of snapshots do not.
            "state" | "image" => continue,
            _ => {
                shared.push((key, value));
                continue;
            }
        };
        if let Some(first) = slot {
            return Err(repeated(key, first, &value));
        }
        *slot = Some(value);
    }
    let page = list_query(shared)?;
    let sandbox = match sandbox {
        Some(text) => Some(
            text.parse()
                .map_err(|error: api::BadSandboxId| QueryError::new("sandboxId", &text, error.to_string()))?,
        ),
        None => None,
    };
    Ok(SnapshotQuery { sandbox, name, metadata: page.metadata, limit: page.limit, offset: page.offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_is_shortened_by_a_copy() {
        let image = ["image"];
        assert_eq!(
            base_layers(&["b", "a"], &image),
            BaseLayers { disk_from: None, layers: vec!["b", "a", "image"] }
        );
        let chain: Vec<String> = (0..=MAX_SNAPSHOT_LAYERS).rev().map(|number| number.to_string()).collect();
        let image = ["image".to_owned()];
        let base = base_layers(&chain, &image);
        assert_eq!(base.disk_from.as_ref(), chain.first());
        assert_eq!(base.layers.len(), MAX_SNAPSHOT_LAYERS + 1);
        // The snapshot of the new sandbox replaces the copied one, so that the chain grows no further.
        let next: Vec<String> =
            [vec!["next".to_owned()], base.layers[..MAX_SNAPSHOT_LAYERS].to_vec()].concat();
        assert_eq!(base_layers(&next, &image).layers.len(), MAX_SNAPSHOT_LAYERS + 1);
    }

    #[test]
    fn names_are_checked_and_processes_are_left_out_by_default() {
        for (memory, expected) in [(None, false), (Some(false), false), (Some(true), true)] {
            let body = SnapshotBody { memory, ..SnapshotBody::default() };
            assert_eq!(snapshot_request(body, &ConfigRules::default()).unwrap().memory, expected);
        }
        for name in [String::new(), "x".repeat(129), "a\nb".to_owned()] {
            let body = SnapshotBody { name: Some(name), ..SnapshotBody::default() };
            assert_eq!(snapshot_request(body, &ConfigRules::default()).unwrap_err().field, "name");
        }
    }

    #[test]
    fn a_fork_has_1_to_100_sandboxes() {
        for (count, is_allowed) in
            [(0, false), (1, true), (100, true), (101, false), (-1, false), (1 << 40, false)]
        {
            let body = ForkBody { count, ..ForkBody::default() };
            assert_eq!(fork_request(body, &ConfigRules::default()).is_ok(), is_allowed, "{count}");
        }
    }

    #[test]
    fn a_fork_has_the_tags_of_its_sandbox_and_never_its_name() {
        let tags = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let create = api::CreateBody {
            image: "ubuntu:24.04".to_owned(),
            name: Some("web".to_owned()),
            metadata: Some(tags(&[("a", "1")])),
            ..api::CreateBody::default()
        };
        let source = crate::sandbox_config(create, &ConfigRules::default()).unwrap();
        let fork = |name: Option<&str>, metadata: Option<BTreeMap<String, String>>| {
            let body = ForkBody { count: 1, name: name.map(str::to_owned), metadata, ..ForkBody::default() };
            fork_request(body, &ConfigRules::default())?.config(&source)
        };
        for (name, given, expected) in [
            (None, None, tags(&[("a", "1")])),
            (Some("two"), None, tags(&[("a", "1"), (NAME_KEY, "two")])),
            (Some("web"), None, tags(&[("a", "1"), (NAME_KEY, "web")])),
            (None, Some(tags(&[("b", "2"), (NAME_KEY, "two")])), tags(&[("b", "2"), (NAME_KEY, "two")])),
            (None, Some(tags(&[])), tags(&[])),
        ] {
            assert_eq!(fork(name, given).map(|config| config.metadata), Ok(expected));
        }
        let two = ForkBody { count: 2, name: Some("two".to_owned()), ..ForkBody::default() };
        assert_eq!(fork_request(two, &ConfigRules::default()).unwrap_err().field, "name");
    }

    #[test]
    fn a_query_has_filters_and_a_page() {
        let pairs = |text: &str| -> Vec<(String, String)> {
            let pair =
                |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
            text.split('&').filter_map(pair).collect()
        };
        let query =
            snapshot_query(pairs("name=n&sandboxId=sb_abcdefgh&metadata.a=b&limit=5&state=x")).unwrap();
        assert_eq!((query.name.as_deref(), query.limit, query.offset), (Some("n"), 5, 0));
        assert_eq!(query.metadata["a"], "b");
        assert_eq!(query.sandbox.unwrap().as_str(), "sb_abcdefgh");
        assert_eq!(snapshot_query(pairs("sandboxId=other")).unwrap_err().field, "sandboxId");
        assert_eq!(snapshot_query(pairs("name=a&name=b")).unwrap_err().field, "name");
    }
}
