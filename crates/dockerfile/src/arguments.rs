//! The values of build arguments: given ones, defaults, and those of the platform.

use std::collections::BTreeMap;

use crate::expand::expand;
use crate::instruction::{Arg, Dockerfile};
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

#[cfg(test)]
mod tests {
    use super::*;

    fn arg(name: &str, default: Option<&str>) -> Arg {
        Arg { line: 3, name: name.to_owned(), default: default.map(str::to_owned) }
    }

    #[test]
    fn a_given_value_counts_before_a_default_and_that_before_the_global_one() {
        let given = BuildArgs::from([("GIVEN".to_owned(), "$raw".to_owned())]);
        let global = BTreeMap::from([("GLOBAL".to_owned(), "above".to_owned())]);
        let find = |name: &str| (name == "X").then(|| "x".to_owned());
        let value =
            |name: &str, default| value_of(&arg(name, default), &given, Some(&global), '\\', &find).unwrap();
        assert_eq!(value("GIVEN", Some("default")).as_deref(), Some("$raw"), "not expanded");
        assert_eq!(value("GLOBAL", Some("a-$X")).as_deref(), Some("a-x"));
        assert_eq!(value("GLOBAL", None).as_deref(), Some("above"));
        assert_eq!(value("TARGETOS", None).as_deref(), Some("linux"));
        assert_eq!(value("TARGETVARIANT", None).as_deref(), Some(""));
        assert_eq!(value("UNKNOWN", None), None);
        let error = value_of(&arg("A", Some("${")), &given, None, '\\', &find).unwrap_err();
        assert_eq!(error.line, 3);
    }

    #[test]
    fn arguments_of_the_file_see_those_before_them() {
        let file = crate::parse("ARG A=1\nARG B=$A-$C\nARG C=3\nFROM a\n").unwrap();
        let given = BuildArgs::from([("A".to_owned(), "2".to_owned())]);
        let variables = global_variables(&file, &given).unwrap();
        assert_eq!((&*variables["A"], &*variables["B"], &*variables["C"]), ("2", "2-", "3"));
        assert_eq!(variables["TARGETPLATFORM"], platform());
    }

    #[test]
    fn the_bytes_and_the_number_of_arguments_are_bounded() {
        let mut bytes = MAX_ENV_BYTES - 4;
        count_bytes(&mut bytes, &arg("A", None), None).unwrap();
        // `A=x` and its end.
        count_bytes(&mut bytes, &arg("A", None), Some("x")).unwrap();
        assert_eq!(bytes, MAX_ENV_BYTES);
        let error = count_bytes(&mut bytes, &arg("A", None), Some("")).unwrap_err();
        assert!(error.line == 3 && error.message.contains("more than 131072 bytes"), "{error:?}");
        assert!(check_number(7, "stages", 5, 5).is_ok());
        let error = check_number(7, "stages", 6, 5).unwrap_err();
        assert_eq!((error.line, error.message.as_str()), (7, "the Dockerfile has more than 5 stages"));
    }
}
