//! From the command line to a client; and from an error to what a person can do about it.

use std::io;
use std::time::Duration;

use anyhow::Result;
use sandboxd_client::{Client, ClientBuilder, Code, Error};

use crate::cli::Global;
use crate::configuration::{self, Configuration, DEFAULT, Profile};
use crate::output::note;
use crate::style::{Paint, Tone};

/// Failures of ours, as with `docker run`.
pub const OURS: u8 = 125;
/// What the service says helps, and not to who uses this program.
const PARENTS: &str = "; parents=true makes it";
/// Whoever waits at a prompt for candidates waits no longer.
const QUICK: Duration = Duration::from_secs(1);

/// The client that flags, environment and profile ask for.
pub fn client(global: &Global) -> Result<Client> {
    Ok(builder(global)?.build()?)
}

/// The same, for answers that are worth nothing when they are late.
pub fn quick_client(global: &Global) -> Result<Client> {
    Ok(builder(global)?.timeout(QUICK).retries(0).build()?)
}

/// Where the service is, if anything says that.
pub fn url(global: &Global) -> Result<Option<String>> {
    let (profile, is_named) = profile(global)?;
    let environment = std::env::var("SANDBOXD_URL").ok().filter(|value| !value.trim().is_empty());
    Ok(choose(global.url.clone(), environment, profile.as_ref(), is_named).url)
}

/// The profile that was named, else the default one if there is such a thing; and whether it was named.
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
        if chosen.over_environment || set("SANDBOXD_API_KEY").is_none() {
            builder = builder.key(&profile.key);
        }
        if chosen.over_environment || set("SANDBOXD_CERTIFICATE").is_none() {
            builder = profile.trust(builder)?;
        }
    }
    Ok(builder)
}

/// Where to go, and whether the profile's key may come along.
#[derive(Debug, PartialEq, Eq)]
struct Chosen<'a> {
    url: Option<String>,
    profile: Option<&'a Profile>,
    over_environment: bool,
}

/// A key goes to the service that it was kept for, and to no other.
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
    Chosen { url, profile, over_environment: named }
}

/// An error, for people.
pub struct Failure<'a>(pub &'a anyhow::Error);

impl Failure<'_> {
    pub fn print(&self) {
        let paint = Paint::of(&io::stderr());
        let name = paint.text(Tone::Bad, "sbx:");
        let Some(error) = self.0.downcast_ref::<Error>() else {
            return note(&format!("{name} {}", harmless(&format!("{:#}", self.0))));
        };
        // A parameter of the interface, which no option of ours sets.
        note(&format!("{name} {}", harmless(&format!("{:#}", self.0).replace(PARENTS, ""))));
        if let Some(hint) = hint(error) {
            note(&paint.text(Tone::Faint, &format!("     {hint}")));
        }
    }
}

/// A message may quote what a sandbox says, and a sandbox may be hostile to terminals.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

fn hint(error: &Error) -> Option<String> {
    let text = match error.code() {
        Code::Configuration if error.message().contains(" is no sandbox: ") => {
            "an id of a sandbox is as 'sbx create' prints it, sb_ and letters and digits; 'sbx ls' shows them"
        }
        Code::Configuration if error.message().contains(" is no execution: ") => {
            "an id of an execution is as 'sbx exec --detach' prints it, ex_ and letters and digits; 'sbx logs SANDBOX' shows them"
        }
        Code::Unauthorized | Code::Configuration => {
            "'sbx login' keeps a URL and a key; SANDBOXD_URL and SANDBOXD_API_KEY name others"
        }
        Code::Forbidden => "the key lacks a scope; 'sandboxd key create --scopes …' makes another",
        Code::FileNotFound if error.message().contains(PARENTS) => {
            "'sbx exec SANDBOX -- mkdir -p DIR' makes a directory with those above it"
        }
        Code::FileNotFound => "a path without a slash in front is below the sandbox's working directory",
        Code::SandboxNotFound => "'sbx ls' shows the sandboxes that are there",
        Code::NetworkError if error.message().contains("certificate") => {
            "'sbx login' shows the service's certificate and keeps it"
        }
        Code::NetworkError => {
            "is the service running, and is this its URL? SANDBOXD_URL or --url names another"
        }
        Code::RateLimited | Code::ResourceExhausted => {
            let seconds = error.retry_after()?.as_secs();
            return Some(format!("the service asks to try again in {seconds} s"));
        }
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_only_to_the_service_it_was_kept_for() {
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
            Chosen { url: None, profile: None, over_environment: false }
        );
    }
}
