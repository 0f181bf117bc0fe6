//! The client for a command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use base::SetSome;
use sandboxd_client::{Client, ClientBuilder, Error};

use crate::cli::Global;
use crate::configuration::{self, Configuration, DEFAULT, Profile};
use crate::limit_wait::{LIMIT_WAIT, Patience, announce};

/// Timeout of requests for completion candidates.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);
/// Where the daemon of this machine has its certificate.
pub const LOCAL_DATA_DIR: &str = "/var/lib/sandboxd";
const LOCAL_CERTIFICATE: &str = "tls/tls-cert.pem";

/// The client that flags, environment and profile select. While the service refuses a request because of a limit, it waits and says so.
pub fn client(global: &Global) -> Result<Client> {
    // Other waits would be silent.
    let builder = builder(global)?.max_retry_wait(Duration::ZERO);
    let announce = |error: &Error, pause| announce(error, pause, Patience::OfCall);
    Ok(builder.limit_wait(LIMIT_WAIT).on_limit_wait(announce).build()?)
}

/// Like [`client`], with a short timeout and no retries, for completion.
pub fn quick_client(global: &Global) -> Result<Client> {
    Ok(builder(global)?.timeout(COMPLETION_TIMEOUT).retries(0).build()?)
}

/// The URL of the service, if one is set.
pub fn url(global: &Global) -> Result<Option<String>> {
    let (profile, is_named) = profile(global)?;
    let environment = std::env::var("SANDBOXD_URL").ok().filter(|value| !value.trim().is_empty());
    Ok(choose(global.url.clone(), environment, profile.as_ref(), is_named).url)
}

/// The file with the certificate that sbx trusts, if there is one, for other programs such as curl.
pub fn certificate(global: &Global) -> Option<PathBuf> {
    let (profile, is_named) = profile(global).ok()?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let chosen = choose(global.url.clone(), set("SANDBOXD_URL"), profile.as_ref(), is_named);
    let environment = set("SANDBOXD_CERTIFICATE").map(PathBuf::from);
    match (chosen.profile, environment) {
        (Some(profile), environment) if chosen.overrides_environment || environment.is_none() => {
            profile.certificate.clone()
        }
        (_, Some(file)) => Some(file),
        (_, None) if chosen.url.is_none() => {
            let data_dir = set("SANDBOXD_DATA_DIR").unwrap_or_else(|| LOCAL_DATA_DIR.to_owned());
            Some(Path::new(&data_dir).join(LOCAL_CERTIFICATE)).filter(|file| file.is_file())
        }
        (_, None) => None,
    }
}

/// The named profile, or the default one if it exists; and whether it was named.
fn profile(global: &Global) -> Result<(Option<Profile>, bool)> {
    match global.profile.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => Ok((Some(Configuration::load(&configuration::path()?)?.profile(name)?.clone()), true)),
        None => Ok((Configuration::own()?.profiles.remove(DEFAULT), false)),
    }
}

fn builder(global: &Global) -> Result<ClientBuilder> {
    let (profile, is_named) = profile(global)?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let chosen = choose(global.url.clone(), set("SANDBOXD_URL"), profile.as_ref(), is_named);
    let mut builder = ClientBuilder::from_env();
    builder = builder.set_some(chosen.url, ClientBuilder::url);
    if let Some(profile) = chosen.profile {
        if chosen.overrides_environment || set("SANDBOXD_API_KEY").is_none() {
            builder = builder.key(&profile.key);
        }
        if chosen.overrides_environment || set("SANDBOXD_CERTIFICATE").is_none() {
            builder = profile.trust(builder)?;
        }
    }
    Ok(builder)
}

/// The URL, and the profile if its key may be sent there.
#[derive(Debug, PartialEq, Eq)]
struct Chosen<'a> {
    url: Option<String>,
    profile: Option<&'a Profile>,
    overrides_environment: bool,
}

/// The key of a profile is sent only to the URL of that profile.
fn choose(
    flag: Option<String>,
    environment: Option<String>,
    profile: Option<&Profile>,
    named: bool,
) -> Chosen<'_> {
    let own = profile.map(|profile| profile.url.clone());
    let url = match flag {
        Some(url) => Some(url),
        None if named => own,
        None => environment.or(own),
    };
    let same = |profile: &&Profile| url.as_deref() == Some(profile.url.as_str());
    let profile = profile.filter(same);
    Chosen { url, profile, overrides_environment: named }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_key_is_sent_only_to_the_url_of_its_profile() {
        let profile =
            Profile { url: "https://kept".into(), key: "k".into(), fingerprint: None, certificate: None };
        let kept = Some(&profile);
        let text = |text: &str| Some(text.to_owned());
        for (flag, environment, named, url, with_key) in [
            (None, None, false, "https://kept", true),
            (None, text("https://env"), false, "https://env", false),
            (None, text("https://env"), true, "https://kept", true),
            (text("https://flag"), None, true, "https://flag", false),
            (text("https://kept"), text("https://env"), false, "https://kept", true),
        ] {
            let chosen = choose(flag, environment, kept, named);
            assert_eq!((chosen.url.as_deref(), chosen.profile.is_some()), (Some(url), with_key));
        }
        assert_eq!(
            choose(None, None, None, false),
            Chosen { url: None, profile: None, overrides_environment: false }
        );
    }
}
