//! Credentials from Docker's `config.json`. Read for each pull, so that a login takes effect immediately.

use std::collections::HashMap;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use oci_client::Reference;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use crate::error::FailureKind;
use crate::fault::Fault;

const CONFIG_BYTES: u64 = 1 << 20;

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ConfigFile {
    #[serde(default)]
    auths: HashMap<String, Auth>,
    #[serde(default)]
    cred_helpers: HashMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
struct Auth {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    registrytoken: Option<String>,
}

/// `$DOCKER_CONFIG/config.json`, or the file in root's home.
pub(super) fn default_path() -> Option<PathBuf> {
    let dir = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    let dir = dir.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".docker")))?;
    Some(dir.join("config.json"))
}

/// The operator's file of logins cannot be used. The text has no value of the file, which can be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct BadCredentials {
    pub path: PathBuf,
    pub reason: String,
}

/// Whether a file of logins can be read. One that is missing has none.
pub fn check_credentials(path: &Path) -> Result<(), BadCredentials> {
    read(path).map(drop)
}

/// The file, if it is there.
fn read(path: &Path) -> Result<Option<ConfigFile>, BadCredentials> {
    let bad = |reason: String| BadCredentials { path: path.to_owned(), reason };
    let mut text = String::new();
    match std::fs::File::open(path).and_then(|file| file.take(CONFIG_BYTES).read_to_string(&mut text)) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(bad(format!("cannot be read: {e}"))),
    }
    // The text of the error could show a value.
    let malformed = |e: serde_json::Error| {
        bad(format!("cannot be read: line {}, column {} is malformed", e.line(), e.column()))
    };
    serde_json::from_str(&text).map(Some).map_err(malformed)
}

pub(super) fn find(path: Option<&Path>, reference: &Reference) -> Result<RegistryAuth, Fault> {
    let Some(path) = path else { return Ok(RegistryAuth::Anonymous) };
    let found = read(path).map_err(|bad| Fault::new(FailureKind::Credentials, bad.to_string()))?;
    let Some(config) = found else { return Ok(RegistryAuth::Anonymous) };
    let login_error =
        |why: String| Fault::new(FailureKind::Credentials, format!("{}: {why}", path.display()));
    let names = [reference.registry(), reference.resolve_registry()];
    let is_this_registry = |key: &str| names.contains(&host(key));
    if let Some((_, helper)) = config.cred_helpers.iter().find(|(key, _)| is_this_registry(key)) {
        return Err(login_error(format!(
            "it names the credential helper '{}' for {}, which is not supported; put the login under 'auths' instead",
            helper.escape_debug(),
            names[0]
        )));
    }
    let Some((_, auth)) = config.auths.iter().find(|(key, _)| is_this_registry(key)) else {
        return Ok(RegistryAuth::Anonymous);
    };
    let empty = || match &config.creds_store {
        Some(store) => login_error(format!(
            "the login for {} is in the credential store '{}', which is not supported; put it under 'auths' instead",
            names[0],
            store.escape_debug()
        )),
        None => login_error(format!("the entry for {} has no login", names[0])),
    };
    login(auth).map_err(login_error)?.ok_or_else(empty)
}

/// Whether requests have a login, and where it is from.
pub(super) fn described(login: &RegistryAuth, path: Option<&Path>) -> String {
    match (login, path) {
        (RegistryAuth::Anonymous, Some(path)) => {
            format!("without a login, which {} does not have for this registry", path.display())
        }
        (RegistryAuth::Anonymous, None) => "without a login".to_owned(),
        (_, Some(path)) => format!("with the login of {}", path.display()),
        (_, None) => "with a login".to_owned(),
    }
}

fn login(auth: &Auth) -> Result<Option<RegistryAuth>, String> {
    if let Some(token) = auth.registrytoken.as_ref().filter(|token| !token.is_empty()) {
        return Ok(Some(RegistryAuth::Bearer(token.clone())));
    }
    if let Some(packed) = auth.auth.as_ref().filter(|packed| !packed.is_empty()) {
        // Do not show the invalid value: it is a secret.
        let text = STANDARD.decode(packed.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or("an 'auth' is not base64 of user:password")?;
        let (user, password) = text.split_once(':').ok_or("an 'auth' is not base64 of user:password")?;
        return Ok(Some(RegistryAuth::Basic(user.to_owned(), password.trim_end_matches('\0').to_owned())));
    }
    match (&auth.username, &auth.password) {
        (Some(user), Some(password)) => Ok(Some(RegistryAuth::Basic(user.clone(), password.clone()))),
        _ => Ok(None),
    }
}

/// The registry of a key, which may be a URL.
fn host(key: &str) -> &str {
    let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
    key.split('/').next().unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_in(text: &str, reference: &str) -> Result<RegistryAuth, Fault> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        std::fs::write(&path, text).unwrap();
        find(Some(&path), &reference.parse().unwrap())
    }

    fn basic(user: &str, password: &str) -> RegistryAuth {
        RegistryAuth::Basic(user.to_owned(), password.to_owned())
    }

    #[test]
    fn a_login_is_found_by_its_registry() {
        let text = r#"{"auths": {"quay.io": {"auth": "YTpiOmM="}, "http://localhost:5000/v2/": {"username": "u", "password": "p"},
            "https://docker.io/v1/": {"registrytoken": "t"}}}"#;
        assert_eq!(find_in(text, "quay.io/x/y").unwrap(), basic("a", "b:c"));
        assert_eq!(find_in(text, "localhost:5000/x").unwrap(), basic("u", "p"));
        assert_eq!(find_in(text, "docker.io/library/x").unwrap(), RegistryAuth::Bearer("t".to_owned()));
        assert_eq!(find_in(text, "localhost:5001/x").unwrap(), RegistryAuth::Anonymous);
        assert_eq!(
            find(Some(Path::new("/nonexistent/config.json")), &"quay.io/x".parse().unwrap()).unwrap(),
            RegistryAuth::Anonymous
        );
    }

    #[test]
    fn a_file_is_checked_without_showing_its_values() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.json");
        assert_eq!(check_credentials(&path), Ok(()));
        std::fs::write(&path, "{\"auths\": {}}").unwrap();
        assert_eq!(check_credentials(&path), Ok(()));
        std::fs::write(&path, "{\"auths\":\n {\"quay.io\": \"hunter2\"}}").unwrap();
        let bad = check_credentials(&path).unwrap_err().to_string();
        assert!(bad.contains("config.json: cannot be read: line 2, column"), "{bad}");
        assert!(!bad.contains("hunter2"), "{bad}");
    }

    #[test]
    fn unusable_logins_are_reported_without_their_secrets() {
        for (text, reason) in [
            (r#"{"credHelpers": {"quay.io": "pass"}}"#, "credential helper 'pass'"),
            (r#"{"auths": {"quay.io": {}}, "credsStore": "desktop"}"#, "credential store 'desktop'"),
            (r#"{"auths": {"quay.io": {}}}"#, "no login"),
            (r#"{"auths": {"quay.io": {"auth": "hunter2!"}}}"#, "not base64"),
            ("{", "cannot be read"),
            (r#"{"auths": {"quay.io": "hunter2"}}"#, "cannot be read: line 1"),
        ] {
            let fault = find_in(text, "quay.io/x").expect_err(text);
            assert_eq!(fault.kind, FailureKind::Credentials);
            let text = fault.to_string();
            assert!(text.contains(reason) && !text.contains("hunter2"), "{text}");
        }
    }
}
