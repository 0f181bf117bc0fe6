//! `sbx login`: saves a URL and a key as a profile after checking that they work. If this machine does not trust the
//! certificate, it shows the fingerprint and pins it if the user agrees.

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sandboxd_client::{Client, ClientBuilder, Code, Fingerprint};

use crate::cli::{Global, LoginArguments};
use crate::configuration::{self, Configuration, DEFAULT, Profile};
use crate::output::note;

const MAX_KEY_BYTES: u64 = 4096;

/// Saves the profile after the service has accepted the key; a failure saves nothing.
pub async fn login(global: &Global, arguments: LoginArguments) -> Result<ExitCode> {
    // Fails before the first prompt if there is no path for the profile.
    let path = configuration::path()?;
    let variable = || std::env::var("SANDBOXD_URL").ok().filter(|url| !url.is_empty());
    let url = match given_url(arguments.service.as_deref(), global.url.as_deref())?
        .map(str::to_owned)
        .or_else(variable)
    {
        Some(url) => url,
        None => local_url()?,
    };
    let name = global.profile.as_deref().unwrap_or(DEFAULT);
    // Authenticates the service before the user types the key.
    let profile = Profile { url, key: String::new(), fingerprint: None, certificate: None };
    let profile = with_trust(profile, &arguments).await?;
    let key = key(arguments.key_file.as_deref())?;
    let profile = Profile { key, ..profile };
    let client = profile.trust(base(&profile.url))?.key(&profile.key).build()?;
    check(&client).await?;
    let mut configuration = Configuration::load(&path)?;
    configuration.profiles.insert(name.to_owned(), profile);
    configuration.save(&path)?;
    note(&format!("sbx: saved {} as profile '{name}' in {}", client.url(), path.display()));
    Ok(ExitCode::SUCCESS)
}

/// The URL on the command line: the argument, or that of `--url`.
fn given_url<'a>(argument: Option<&'a str>, option: Option<&'a str>) -> Result<Option<&'a str>> {
    if let (Some(argument), Some(option)) = (argument, option) {
        ensure!(argument == option, "two URLs are given, {argument} and --url {option}; give one");
    }
    Ok(argument.or(option))
}

/// The URL of the daemon of this machine, which `local.json` in its data directory has, or the default one.
fn local_url() -> Result<String> {
    let dir = std::env::var_os("SANDBOXD_DATA_DIR").filter(|dir| !dir.is_empty());
    let builder = match dir {
        Some(dir) => Client::builder().local_data_dir(dir),
        None => Client::builder(),
    };
    // The key of the daemon is not needed, and may be unreadable.
    Ok(builder.key("none").build()?.url())
}

fn base(url: &str) -> ClientBuilder {
    Client::builder().url(url)
}

/// The profile with the certificate to trust.
async fn with_trust(mut profile: Profile, arguments: &LoginArguments) -> Result<Profile> {
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
    // If the service has a certificate, an untrusted certificate is the cause.
    let Ok(shown) = Fingerprint::of(&profile.url).await else { return Err(error.into()) };
    note(&format!(
        "sbx: this machine does not trust the certificate of {}; its fingerprint is\n  {shown}",
        profile.url
    ));
    ensure!(
        io::stdin().is_terminal(),
        "compare it with the output of this command on the machine of the service, then pass --fingerprint {shown}\n  \
        openssl x509 -fingerprint -sha256 -noout -in /var/lib/sandboxd/tls/tls-cert.pem\n\
        with http.tls = \"files\" there, name the file of http.tls_cert instead"
    );
    if !prompt("Trust this certificate from now on? [y/N] ")?.trim().eq_ignore_ascii_case("y") {
        bail!("not trusted; nothing was saved");
    }
    profile.fingerprint = Some(shown.to_string());
    Ok(profile)
}

/// Checks that the service accepts the key. `Forbidden` means a valid key without the scope for lists.
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
            let file =
                std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
            read_text(file)?
        }
        None if io::stdin().is_terminal() => prompt_without_echo("API key: ")?,
        None => read_text(io::stdin())?,
    };
    let key = text.trim().to_owned();
    ensure!(!key.is_empty(), "no key given; pass it on standard input or with --key-file");
    Ok(key)
}

fn read_text(from: impl Read) -> Result<String> {
    let mut text = String::new();
    from.take(MAX_KEY_BYTES).read_to_string(&mut text).context("cannot read the key")?;
    Ok(text)
}

fn prompt(question: &str) -> Result<String> {
    io::stderr().write_all(question.as_bytes())?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(answer)
}

/// Reads a line without echoing it.
fn prompt_without_echo(question: &str) -> Result<String> {
    let stdin = io::stdin();
    let before = tcgetattr(&stdin)?;
    let mut without_echo = before.clone();
    without_echo.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &without_echo)?;
    let answer = prompt(question);
    tcsetattr(&stdin, OptionalActions::Flush, &before)?;
    note("");
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_is_an_argument_or_an_option() {
        let (one, other) = (Some("https://a:1"), Some("https://b:1"));
        assert_eq!(given_url(one, None).unwrap(), one);
        assert_eq!(given_url(None, one).unwrap(), one);
        assert_eq!(given_url(one, one).unwrap(), one);
        assert!(given_url(one, other).unwrap_err().to_string().contains("two URLs"));
        assert_eq!(given_url(None, None).unwrap(), None);
    }
}
