//! The client for a command line, and hints for its errors.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use sandboxd_client::{Client, ClientBuilder, Code, Error};

use crate::cli::Global;
use crate::configuration::{self, Configuration, DEFAULT, Profile};
use crate::output::note;
use crate::style::{Paint, Tone};

/// Exit code of failures of sbx itself, as with `docker run`.
pub const SBX_FAILURE: u8 = 125;
const MAKE_DIRECTORY: &str = "'sbx exec SANDBOX -- mkdir -p DIR' creates the directory";
/// Timeout of requests for completion candidates.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(1);

/// The client that flags, environment and profile select.
pub fn client(global: &Global) -> Result<Client> {
    Ok(builder(global)?.build()?)
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
    if let Some(url) = chosen.url {
        builder = builder.url(url);
    }
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

/// A failed write because the directory of `path` does not exist in the sandbox.
#[derive(Debug)]
pub struct NoDirectory {
    path: PathBuf,
    request_id: Option<String>,
}

impl NoDirectory {
    /// Replaces the error of a write whose directory is missing. The service's message names a parameter that no option of sbx sets.
    pub fn explain(error: Error, path: &Path) -> anyhow::Error {
        if error.code() != Code::FileNotFound {
            return error.into();
        }
        Self { path: path.to_owned(), request_id: error.request_id().map(str::to_owned) }.into()
    }
}

impl std::fmt::Display for NoDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dir = self.path.parent().unwrap_or(Path::new("/"));
        write!(f, "the directory {} does not exist in the sandbox ({}", dir.display(), Code::FileNotFound)?;
        self.request_id.iter().try_for_each(|id| write!(f, ", request {id}"))?;
        f.write_str(")")
    }
}

impl std::error::Error for NoDirectory {}

/// An error as printed on standard error, with a hint.
pub struct Failure<'a>(pub &'a anyhow::Error);

impl Failure<'_> {
    pub fn print(&self) {
        let paint = Paint::of(&io::stderr());
        let name = paint.text(Tone::Bad, "sbx:");
        note(&format!("{name} {}", printable(&chain_text(self.0))));
        let hint = match self.0.downcast_ref::<Error>() {
            Some(error) => hint(error),
            None => self.0.downcast_ref::<NoDirectory>().map(|_| MAKE_DIRECTORY.to_owned()),
        };
        if let Some(hint) = hint {
            note(&paint.text(Tone::Faint, &format!("     {hint}")));
        }
    }
}

/// The messages of an error and its sources. That of an [`Error`] contains those of its sources.
fn chain_text(error: &anyhow::Error) -> String {
    let mut messages = Vec::new();
    for source in error.chain() {
        messages.push(source.to_string());
        if source.is::<Error>() {
            break;
        }
    }
    messages.join(": ")
}

/// Replaces control characters: a message may quote a sandbox, which may send terminal control sequences.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn hint(error: &Error) -> Option<String> {
    let detail = |name: &str| error.details().get(name).and_then(|value| value.as_str());
    let text = match error.code() {
        Code::InvalidArgument if detail("argument") == Some("sandboxId") => {
            "a sandbox id is sb_ followed by letters and digits; 'sbx ls' lists sandboxes"
        }
        Code::InvalidArgument if detail("argument") == Some("executionId") => {
            "an execution id is ex_ followed by letters and digits; 'sbx logs SANDBOX' lists executions"
        }
        Code::Unauthorized | Code::Configuration => {
            "'sbx login' saves a URL and a key; SANDBOXD_URL and SANDBOXD_API_KEY override them"
        }
        Code::Forbidden => "the key lacks a scope; 'sandboxd key create --scopes …' creates another key",
        Code::FileNotFound => "a relative path starts at the working directory of the sandbox",
        Code::SandboxNotFound => "'sbx ls' lists sandboxes",
        Code::NetworkError if detail("reason") == Some("certificate") => {
            "'sbx login' shows the certificate of the service and can trust it"
        }
        Code::NetworkError => {
            "check that the service runs and that the URL is right; --url or SANDBOXD_URL sets it"
        }
        Code::RateLimited | Code::ResourceExhausted => {
            let seconds = error.retry_after()?.as_secs();
            return Some(format!("retry in {seconds} s"));
        }
        _ => return None,
    };
    Some(text.to_owned())
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

    #[test]
    fn sources_of_an_error_are_printed_once() {
        let error = anyhow::Error::new(io::Error::other("inner")).context("outer");
        assert_eq!(chain_text(&error), "outer: inner");
        let error = Client::builder().url("ftp://x").key("any").build().err().unwrap();
        let message = error.to_string();
        assert_eq!(chain_text(&anyhow::Error::new(error).context("outer")), format!("outer: {message}"));
    }
}
