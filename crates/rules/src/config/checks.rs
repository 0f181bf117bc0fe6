//! Checks of single fields, for create and for execute. Each takes the received value and the name of its field.

use std::collections::BTreeMap;
use std::fmt::Display;

use api::bounds::{
    DOMAIN_BYTES, ENV_BYTES, ENV_VARIABLES, IMAGE_CHARS, LABEL_BYTES, PATH_BYTES, PATH_PART_BYTES, PORT,
};

use super::{ConfigRules, Integer, Range};
use crate::config::error::ConfigError;
use crate::egress::{network_text, parse_network};
use crate::text::quoted::{alternatives, escaped};

/// A variable must fit into one string that Linux passes to a process (128 KiB with its NUL).
const ENV_ENTRY_BYTES_MAX: usize = 128 * 1024 - 1;

pub(crate) fn integer<T>(field: &str, given: Option<Integer>, range: Range<T>) -> Result<T, ConfigError>
where
    T: Copy + Display + PartialOrd + TryFrom<Integer>,
{
    let Some(given) = given else { return Ok(range.default) };
    match T::try_from(given) {
        Ok(value) if range.min <= value && value <= range.max => Ok(value),
        _ => Err(ConfigError::new(field, given, format!("{} to {}", range.min, range.max))),
    }
}

pub(super) fn cpu(given: Option<Integer>, rules: &ConfigRules) -> Result<u32, ConfigError> {
    let Some(given) = given else { return Ok(rules.cpu_default) };
    let known = rules.cpu_allowed.iter().copied().find(|cpu| Integer::from(*cpu) == given);
    known.ok_or_else(|| {
        let names: Vec<String> = rules.cpu_allowed.iter().map(u32::to_string).collect();
        ConfigError::new("resources.cpu", given, alternatives(&names))
    })
}

pub(super) fn image(name: String) -> Result<String, ConfigError> {
    let good = (1..=IMAGE_CHARS).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic());
    if good {
        return Ok(name);
    }
    let allowed = format!("a name of 1 to {IMAGE_CHARS} visible ASCII characters, such as 'ubuntu:24.04'");
    Err(ConfigError::text("image", &name, allowed))
}

pub(crate) fn absolute_path(field: &str, path: String) -> Result<String, ConfigError> {
    let good = path.starts_with('/')
        && path.len() <= PATH_BYTES
        && !path.contains('\0')
        && path.split('/').all(|part| part.len() <= PATH_PART_BYTES);
    if good {
        return Ok(path);
    }
    let allowed = format!(
        "an absolute path such as '/workspace', at most {PATH_BYTES} bytes, {PATH_PART_BYTES} between slashes, no NUL"
    );
    Err(ConfigError::text(field, &path, allowed))
}

pub(crate) fn env(env: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, ConfigError> {
    if env.len() > ENV_VARIABLES {
        let got = format!("{} variables", env.len());
        return Err(ConfigError::new("env", got, format!("at most {ENV_VARIABLES} variables")));
    }
    let mut total = 0;
    for (name, value) in &env {
        if name.is_empty() || name.contains(['=', '\0']) {
            let allowed = "a name that is not empty and has neither '=' nor NUL";
            return Err(ConfigError::text("name of a variable in env", name, allowed));
        }
        let field = || format!("env.{}", escaped(name));
        if value.contains('\0') {
            return Err(ConfigError::text(field(), value, "text without NUL"));
        }
        let bytes = name.len() + 1 + value.len();
        if bytes > ENV_ENTRY_BYTES_MAX {
            let allowed = format!("at most {ENV_ENTRY_BYTES_MAX} bytes with its name and '='");
            return Err(ConfigError::new(
                field(),
                format!("{bytes} bytes long with its name and '='"),
                allowed,
            ));
        }
        total += bytes;
    }
    if total > ENV_BYTES {
        let allowed = format!("at most {ENV_BYTES} bytes in all, names and '=' included");
        return Err(ConfigError::new("env", format!("{total} bytes long"), allowed));
    }
    Ok(env)
}

pub(crate) fn metadata(
    metadata: BTreeMap<String, String>,
    rules: &ConfigRules,
) -> Result<BTreeMap<String, String>, ConfigError> {
    if metadata.len() > rules.metadata_keys_max {
        let got = format!("{} keys", metadata.len());
        return Err(ConfigError::new("metadata", got, format!("at most {} keys", rules.metadata_keys_max)));
    }
    for (key, value) in &metadata {
        let key_max = rules.metadata_key_chars_max;
        if key.is_empty() || key.chars().count() > key_max {
            return Err(ConfigError::text("key in metadata", key, format!("1 to {key_max} characters")));
        }
        let chars = value.chars().count();
        if chars > rules.metadata_value_chars_max {
            let field = format!("metadata.{}", escaped(key));
            let allowed = format!("at most {} characters", rules.metadata_value_chars_max);
            return Err(ConfigError::new(field, format!("{chars} characters long"), allowed));
        }
    }
    Ok(metadata)
}

pub(super) fn domains(domains: Vec<String>, most: usize) -> Result<Vec<String>, ConfigError> {
    if domains.len() > most {
        let got = format!("{} entries", domains.len());
        return Err(ConfigError::new("network.egress.allow", got, format!("at most {most} entries")));
    }
    for (index, domain) in domains.iter().enumerate() {
        if !is_domain(domain) {
            let field = format!("network.egress.allow[{index}]");
            let allowed = "a domain such as 'example.com', or '*.example.com' for every name below it, \
                           without scheme, port or path; international names in their 'xn--' form";
            return Err(ConfigError::text(field, domain, allowed));
        }
    }
    Ok(domains)
}

/// Networks in their canonical form. Keeps the order and duplicates: both are harmless.
pub(super) fn networks(field: &str, networks: Vec<String>, most: usize) -> Result<Vec<String>, ConfigError> {
    if networks.len() > most {
        let got = format!("{} entries", networks.len());
        return Err(ConfigError::new(field, got, format!("at most {most} entries")));
    }
    let check = |(index, entry): (usize, String)| {
        parse_network(&entry).map(|network| network_text(&network)).ok_or_else(|| {
            let allowed = "an IPv4 address such as '203.0.113.7', or a network such as '203.0.113.0/24'";
            ConfigError::text(format!("{field}[{index}]"), &entry, allowed)
        })
    };
    networks.into_iter().enumerate().map(check).collect()
}

/// Keeps the order and duplicates: both are harmless.
pub(super) fn ports(ports: Vec<Integer>, most: usize) -> Result<Vec<u16>, ConfigError> {
    if ports.len() > most {
        let got = format!("{} entries", ports.len());
        return Err(ConfigError::new("network.ingress.allowPorts", got, format!("at most {most} entries")));
    }
    let check = |(index, port): (usize, Integer)| match u16::try_from(port) {
        Ok(port) if (PORT.min..=PORT.max).contains(&port) => Ok(port),
        _ => {
            let allowed = format!("{} to {}", PORT.min, PORT.max);
            Err(ConfigError::new(format!("network.ingress.allowPorts[{index}]"), port, allowed))
        }
    };
    ports.into_iter().enumerate().map(check).collect()
}

/// A name, or `*.` and a name. An address is not a domain: its last label is numeric.
fn is_domain(entry: &str) -> bool {
    let name = entry.strip_prefix("*.").unwrap_or(entry);
    let numeric = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    entry.len() <= DOMAIN_BYTES && !numeric && name.split('.').all(is_label)
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES).contains(&label.len())
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}
