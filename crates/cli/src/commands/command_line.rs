//! Converts command-line arguments to request values.

use std::env::VarError;

use anyhow::{Result, anyhow};
use base::SetSome;
use sandboxd_client::{Client, Create};

use crate::cli::{NetworkChoice, SandboxOptions};

const NO_DOMAINS: [&str; 0] = [];

/// The bash command line for a command: one argument is used as it is; several are quoted.
pub fn bash_command(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
    }
}

/// A word for bash.
pub fn quoted(word: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    // A word with `=` before a program would be an assignment.
    if !word.is_empty() && word.chars().all(harmless) && !word.contains('=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Parses `NAME=VALUE`, or `NAME` for the value in this environment. `None` if it is not set there, as with Docker.
pub fn env_variable(word: &str) -> Result<Option<(String, String)>> {
    if let Some((name, value)) = word.split_once('=') {
        return Ok(Some((name.to_owned(), value.to_owned())));
    }
    match std::env::var(word) {
        Ok(value) => Ok(Some((word.to_owned(), value))),
        Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(anyhow!("-e {word}: {error}")),
    }
}

/// The create request with the options that `run` and `create` share. `env`: the variables of the options, which are read once, because a
/// file of variables may be a pipe.
pub fn create_request(
    client: &Client,
    image: &str,
    new: &SandboxOptions,
    env: &[(String, String)],
) -> Create {
    let mut create = client.create(image);
    create = create
        .set_some(new.cpu, Create::cpu)
        .set_some(new.memory, Create::memory_mb)
        .set_some(new.disk, Create::disk_mb);
    for (name, value) in env {
        create = create.env(name, value);
    }
    create = create.set_some(new.workdir.as_ref(), Create::workdir).set_some(new.name.as_ref(), Create::name);
    for (key, value) in &new.metadata {
        create = create.metadata(key, value);
    }
    create = match network(new) {
        NetworkChoice::Open => create,
        NetworkChoice::Offline => create.only_domains(NO_DOMAINS),
        NetworkChoice::Only(domains) => create.only_domains(domains),
    };
    create = create.set_some(new.isolation, Create::isolation);
    if new.cold {
        create = create.cold(true);
    }
    create
}

/// The network that the options ask for; at most one of them is set.
fn network(new: &SandboxOptions) -> NetworkChoice {
    match &new.network {
        Some(network) => network.clone(),
        None if new.offline => NetworkChoice::Offline,
        None if new.allow.is_empty() => NetworkChoice::Open,
        None => NetworkChoice::Only(new.allow.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_is_open_unless_an_option_restricts_it() {
        let only = |domain: &str| NetworkChoice::Only(vec![domain.to_owned()]);
        let options = SandboxOptions::default;
        for (new, expected) in [
            (options(), NetworkChoice::Open),
            (SandboxOptions { offline: true, ..options() }, NetworkChoice::Offline),
            (SandboxOptions { allow: vec!["a.example".to_owned()], ..options() }, only("a.example")),
            (SandboxOptions { network: Some(only("b.example")), ..options() }, only("b.example")),
            (SandboxOptions { network: Some(NetworkChoice::Offline), ..options() }, NetworkChoice::Offline),
        ] {
            assert_eq!(network(&new), expected, "{new:?}");
        }
    }

    #[test]
    fn several_words_are_quoted_for_the_shell() {
        let words =
            |words: &[&str]| bash_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["echo $HOME | wc"]), "echo $HOME | wc");
        assert_eq!(words(&["printf", "%s|", "$HOME", "it's", ""]), r"printf '%s|' '$HOME' 'it'\''s' ''");
        assert_eq!(words(&["A=1", "ls", "-l", "/tmp"]), "'A=1' ls -l /tmp");
    }

    #[test]
    fn variables_come_from_the_argument_or_the_environment() {
        assert_eq!(env_variable("A=b=c").unwrap(), Some(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(env_variable("PATH").unwrap().unwrap().1, std::env::var("PATH").unwrap());
        assert_eq!(env_variable("SBX_NOT_SET").unwrap(), None);
    }
}
