//! `sbx login`: keeps a service and a key under a name, once they are seen to work together. A certificate that nobody vouches for is
//! shown and, if the person says so, pinned.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sandboxd_client::{Client, ClientBuilder, Code, Fingerprint};

use crate::cli::{Global, LoginArguments};
use crate::configuration::{self, Configuration, DEFAULT, Profile};
use crate::output::note;

const LOCAL: &str = "https://127.0.0.1:8443";
const LONGEST_KEY: u64 = 4096;

pub async fn login(global: &Global, arguments: LoginArguments) -> Result<ExitCode> {
    // Before anything is asked for that there would be no place for.
    let path = configuration::path()?;
    let variable = || std::env::var("SANDBOXD_URL").ok().filter(|url| !url.is_empty());
    let url = global.url.clone().or_else(variable).unwrap_or_else(|| LOCAL.to_owned());
    let name = global.profile.as_deref().unwrap_or(DEFAULT);
    // Before the key is typed: whoever is at the other end is known first.
    let profile = Profile { url, key: String::new(), fingerprint: None, certificate: None };
    let profile = trusted(profile, &arguments).await?;
    let key = key(arguments.key_file.as_deref())?;
    let profile = Profile { key, ..profile };
    let client = profile.trust(base(&profile.url))?.key(&profile.key).build()?;
    check(&client).await?;
    let mut configuration = Configuration::load(&path)?;
    configuration.profiles.insert(name.to_owned(), profile);
    configuration.save(&path)?;
    note(&format!("sbx: {} is profile '{name}' in {}", client.url(), path.display()));
    Ok(ExitCode::SUCCESS)
}

fn base(url: &str) -> ClientBuilder {
    Client::builder().url(url)
}

/// The profile with what it is to trust.
async fn trusted(mut profile: Profile, arguments: &LoginArguments) -> Result<Profile> {
    if let Some(text) = &arguments.fingerprint {
        let fingerprint: Fingerprint = text.parse().context("--fingerprint")?;
        profile.fingerprint = Some(fingerprint.to_string());
        return Ok(profile);
    }
    if let Some(file) = &arguments.certificate {
        profile.certificate = Some(file.canonicalize().with_context(|| file.display().to_string())?);
        return Ok(profile);
    }
    let system = base(&profile.url).key("none").system_certificates().build()?;
    let Err(error) = system.health().await else { return Ok(profile) };
    if arguments.system || error.code() != Code::NetworkError {
        return Err(error.into());
    }
    // Where it shows a certificate at all, that is what is wrong.
    let Ok(shown) = Fingerprint::of(&profile.url).await else { return Err(error.into()) };
    note(&format!(
        "sbx: no authority of this machine vouches for {}; its certificate is\n  {shown}",
        profile.url
    ));
    ensure!(
        io::stdin().is_terminal(),
        "compare it with the service's own and pass it: --fingerprint {shown}\n  there: openssl x509 -fingerprint \
         -sha256 -noout -in /var/lib/sandboxd/tls/tls-cert.pem"
    );
    if !asked("Trust this certificate from now on? [y/N] ")?.trim().eq_ignore_ascii_case("y") {
        bail!("not trusted; nothing was kept");
    }
    profile.fingerprint = Some(shown.to_string());
    Ok(profile)
}

/// A key may lack the scope for lists and be a key all the same.
async fn check(client: &Client) -> Result<()> {
    match client.list().page_size(1).page(0).await {
        Ok(_) => Ok(()),
        Err(error) if error.code() == Code::Forbidden => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn key(file: Option<&Path>) -> Result<String> {
    let text = match file {
        Some(file) => {
            let file = std::fs::File::open(file).with_context(|| format!("opening {}", file.display()))?;
            limited(file)?
        }
        None if io::stdin().is_terminal() => unseen("API key: ")?,
        None => limited(io::stdin())?,
    };
    let key = text.trim().to_owned();
    ensure!(!key.is_empty(), "no key was given; it is read from standard input, or from --key-file");
    Ok(key)
}

fn limited(from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(LONGEST_KEY).read_to_string(&mut text).context("reading the key")?;
    Ok(text)
}

fn asked(question: &str) -> Result<String> {
    io::stderr().write_all(question.as_bytes())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}

/// Asks without showing what is typed.
fn unseen(question: &str) -> Result<String> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
    let answer = asked(question);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    note("");
    answer
}
