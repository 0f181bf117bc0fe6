//! The values of build arguments: given ones, defaults, and those of the platform.

use std::collections::BTreeMap;

use crate::expand::expand;
use crate::read::{Arg, Dockerfile};
use crate::{BuildArgs, DockerfileError, MAX_ENV_BYTES, MAX_VARIABLES};

/// Build arguments that need no `ARG`.
pub const PREDEFINED: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// The platform of this host as `FROM --platform` names it.
pub fn platform() -> String {
    format!("linux/{}", architecture())
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Build arguments that have a value without a default, if an `ARG` declares them.
fn automatic(name: &str) -> Option<String> {
    match name {
        "TARGETPLATFORM" | "BUILDPLATFORM" => Some(platform()),
        "TARGETOS" | "BUILDOS" => Some("linux".to_owned()),
        "TARGETARCH" | "BUILDARCH" => Some(architecture().to_owned()),
        "TARGETVARIANT" | "BUILDVARIANT" => Some(String::new()),
        _ => None,
    }
}

/// The variables in force in `FROM`.
pub fn global_variables(
    file: &Dockerfile,
    args: &BuildArgs,
) -> Result<BTreeMap<String, String>, DockerfileError> {
    let (mut variables, mut bytes) = (BTreeMap::new(), 0);
    for name in ["TARGETPLATFORM", "BUILDPLATFORM", "TARGETOS", "BUILDOS", "TARGETARCH", "BUILDARCH"] {
        variables.extend(automatic(name).map(|value| (name.to_owned(), value)));
    }
    for arg in &file.global_args {
        let find = |name: &str| variables.get(name).cloned();
        let value = value_of(arg, args, None, file.escape, &find)?;
        count_bytes(&mut bytes, arg, value.as_deref())?;
        variables.extend(value.map(|value| (arg.name.clone(), value)));
        check_number(arg.line, "variables of ARG", variables.len(), MAX_VARIABLES)?;
    }
    Ok(variables)
}

/// The value of an `ARG`: as given, or its default with variables replaced, or the one of the global `ARG`.
pub fn value_of(
    arg: &Arg,
    given: &BuildArgs,
    global: Option<&BTreeMap<String, String>>,
    escape: char,
    find: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<String>, DockerfileError> {
    if let Some(value) = given.get(&arg.name) {
        return Ok(Some(value.clone()));
    }
    match &arg.default {
        Some(default) => {
            let expanded = expand(default, escape, find);
            expanded.map(Some).map_err(|message| DockerfileError::new(arg.line, message))
        }
        None => Ok(global.and_then(|global| global.get(&arg.name).cloned()).or_else(|| automatic(&arg.name))),
    }
}

/// Adds a build argument to the bytes of those before it. Each step has a copy of all.
pub fn count_bytes(bytes: &mut usize, arg: &Arg, value: Option<&str>) -> Result<(), DockerfileError> {
    *bytes += value.map_or(0, |value| arg.name.len() + value.len() + 2);
    if *bytes > MAX_ENV_BYTES {
        let message = format!("the build arguments have more than {MAX_ENV_BYTES} bytes");
        return Err(DockerfileError::new(arg.line, message));
    }
    Ok(())
}

/// Bounds the number of one kind of things in a Dockerfile.
pub fn check_number(line: usize, what: &str, number: usize, most: usize) -> Result<(), DockerfileError> {
    if number <= most {
        return Ok(());
    }
    Err(DockerfileError::new(line, format!("the Dockerfile has more than {most} {what}")))
}
