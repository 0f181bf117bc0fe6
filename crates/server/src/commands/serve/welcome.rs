//! The ready message on standard output: addresses, and an example.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use api::Isolation;

use crate::app::isolation::MissingIsolation;
use crate::first_key::LocalKey;

/// The image of the example command.
pub const EXAMPLE_IMAGE: &str = "ubuntu:24.04";

/// The contents of the message.
#[derive(Debug)]
pub struct Welcome<'a> {
    pub url: String,
    /// The self-signed certificate, for curl's `--cacert`.
    pub certificate: Option<PathBuf>,
    /// The certificate authorities of the system and that certificate, for programs that read one list only.
    pub authorities: Option<PathBuf>,
    pub metrics: Option<SocketAddr>,
    /// The data directory, if clients on this host do not look there by themselves.
    pub other_data_dir: Option<&'a Path>,
    pub key: &'a LocalKey,
    pub show_key: bool,
    /// What sandboxes of this daemon can have.
    pub isolations: &'a [Isolation],
    pub missing_isolations: &'a [MissingIsolation],
    /// The image of a create that names no template, if the API of E2B is served.
    pub e2b_base: Option<&'a str>,
}

/// The URL of a listener for clients on this host.
pub fn url(scheme: &str, address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

impl Welcome<'_> {
    /// Tests and scripts wait for the first line.
    pub fn text(&self) -> String {
        let mut text = format!("sandboxd is ready at {}\n", self.url);
        let mut line = |name: &str, value: &str| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name}: {value}");
        };
        line("docs", &format!("{}/docs", self.url));
        let available: Vec<&str> = self.isolations.iter().map(|isolation| isolation.name()).collect();
        line("isolation", &available.join(", "));
        for MissingIsolation { isolation, reason, remedy, .. } in self.missing_isolations {
            line("missing isolation", &format!("{isolation}: {reason}; {remedy}"));
        }
        if let Some(address) = self.metrics {
            line("metrics", &format!("{}/metrics", url("http", address)));
        }
        if let Some(certificate) = &self.certificate {
            line("certificate", &certificate.display().to_string());
        }
        if let Some(directory) = self.other_data_dir {
            let export = format!("export SANDBOXD_DATA_DIR={}", quoted(&directory.display().to_string()));
            line("data directory", &format!("for sbx and the libraries on this host: {export}"));
        }
        match self.key {
            LocalKey::New { file, .. } | LocalKey::Existing { file, .. } => {
                line("key file", &file.display().to_string());
            }
            LocalKey::None => line("key", "no local key; create one with 'sandboxd key create'"),
        }
        match self.key {
            LocalKey::New { text: key, .. } => {
                line("key", key.as_str());
                if !self.show_key {
                    line(
                        "note",
                        "the key belongs to the account 'default', has all scopes, and is not printed again",
                    );
                }
            }
            LocalKey::Existing { text: key, .. } if self.show_key => line("key", key.as_str()),
            LocalKey::Existing { .. } | LocalKey::None => {}
        }
        if self.show_key {
            text.push_str(&self.first_steps());
            text.push_str(&self.e2b_environment());
        }
        text
    }

    /// A shell command that configures programs which use the packages of E2B. It needs no name below the domain of ports.
    fn e2b_environment(&self) -> String {
        let (LocalKey::New { text: key, .. } | LocalKey::Existing { text: key, .. }) = self.key else {
            return String::new();
        };
        let Some(base) = self.e2b_base else { return String::new() };
        let url = &self.url;
        // `SSL_CERT_FILE` replaces the list of the system, which the programs need for other services; Node.js adds to its own.
        let trust = match (&self.authorities, &self.certificate) {
            (Some(authorities), Some(certificate)) => {
                let word = |path: &PathBuf| quoted(&path.display().to_string());
                format!(" SSL_CERT_FILE={} NODE_EXTRA_CA_CERTS={}", word(authorities), word(certificate))
            }
            _ => String::new(),
        };
        format!(
            "For programs that use the packages of E2B:\n\n\
             export E2B_API_KEY={} E2B_API_URL={url} E2B_SANDBOX_URL={url}{trust}\n\n\
             A create without a template uses the image {base}, which has to be on this host: sandboxd image pull {base}\n\
             The URLs of download_url and upload_url name their sandbox only without E2B_SANDBOX_URL.\n\
             A port without name resolution: {url} with the headers E2b-Sandbox-Id: ID and E2b-Sandbox-Port: PORT.\n\n",
            key.e2b_text()
        )
    }

    /// Shell commands that create a sandbox and run a command in it.
    fn first_steps(&self) -> String {
        let (LocalKey::New { text: key, .. } | LocalKey::Existing { text: key, .. }) = self.key else {
            return String::new();
        };
        let trust = match &self.certificate {
            Some(path) => format!(" --cacert {}", quoted(&path.display().to_string())),
            None => String::new(),
        };
        let url = &self.url;
        let curl = format!(
            "curl -sS{trust} -H 'Authorization: Bearer {}' -H 'Content-Type: application/json'",
            key.as_str()
        );
        format!(
            r#"
To try it, paste this into a shell:

id=$({curl} \
  -d '{{"image": "{EXAMPLE_IMAGE}"}}' {url}/v1/sandboxes | sed -n 's/.*"id": *"\(sb_[a-z0-9]*\)".*/\1/p')
{curl} \
  -d '{{"command": "echo hello from $(hostname)"}}' -w '\n' {url}/v1/sandboxes/$id/execute

"#
        )
    }
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if word.bytes().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use rules::KeyText;

    use super::*;
    use crate::app::isolation::InstalledGvisor;

    fn welcome(key: &LocalKey, show_key: bool) -> String {
        with_isolations(key, show_key, &Isolation::ALL, &[])
    }

    fn with_isolations(
        key: &LocalKey,
        show_key: bool,
        isolations: &[Isolation],
        missing_isolations: &[MissingIsolation],
    ) -> String {
        let url = url("https", "0.0.0.0:8443".parse().unwrap());
        let certificate = Some(PathBuf::from("/var/lib/my data/tls/tls-cert.pem"));
        let authorities = Some(PathBuf::from("/var/lib/my data/tls/tls-trust.pem"));
        Welcome {
            url,
            certificate,
            authorities,
            metrics: None,
            other_data_dir: Some(Path::new("/var/lib/my data")),
            key,
            show_key,
            isolations,
            missing_isolations,
            e2b_base: Some("e2b-base"),
        }
        .text()
    }

    #[test]
    fn a_data_directory_where_clients_do_not_look_has_its_variable() {
        let line = "\ndata directory: for sbx and the libraries on this host: export SANDBOXD_DATA_DIR='/var/lib/my data'\n";
        let text = welcome(&LocalKey::None, false);
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn the_isolations_are_shown_and_a_missing_one_has_a_reason_and_a_remedy() {
        assert!(welcome(&LocalKey::None, false).contains("\nisolation: container, gvisor\n"));
        let missing = InstalledGvisor::Missing.lack().unwrap();
        let text = with_isolations(&LocalKey::None, false, &[Isolation::Container], &[missing]);
        assert!(
            text.contains("\nisolation: container\nmissing isolation: gvisor: not installed; install runsc ")
        );
    }

    fn key() -> (KeyText, PathBuf) {
        (KeyText::format([7; 32]), "/d/local.key".into())
    }

    #[test]
    fn an_address_for_all_is_shown_as_one_that_can_be_asked() {
        assert_eq!(url("http", "0.0.0.0:80".parse().unwrap()), "http://127.0.0.1:80");
        assert_eq!(url("https", "[::]:443".parse().unwrap()), "https://[::1]:443");
        assert_eq!(url("https", "192.0.2.1:443".parse().unwrap()), "https://192.0.2.1:443");
    }

    #[test]
    fn the_key_is_shown_at_the_first_start_and_on_request() {
        let (text, file) = key();
        let shown = text.as_str().to_owned();
        let new = LocalKey::New { text: text.clone(), file: file.clone() };
        let kept = LocalKey::Existing { text, file };
        assert_eq!(welcome(&new, false).matches(&shown).count(), 1);
        assert_eq!(welcome(&kept, false).matches(&shown).count(), 0);
        assert!(welcome(&kept, false).contains("/d/local.key"));
        // On its own line, and in both commands.
        assert_eq!(welcome(&kept, true).matches(&shown).count(), 3);
        assert!(welcome(&LocalKey::None, true).contains("key create"));
        assert!(welcome(&kept, true).starts_with("sandboxd is ready at https://127.0.0.1:8443\n"));
    }

    #[test]
    fn a_path_is_one_word_of_the_command() {
        let (text, file) = key();
        let text = welcome(&LocalKey::Existing { text, file }, true);
        assert!(text.contains("--cacert '/var/lib/my data/tls/tls-cert.pem' -H"), "{text}");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn programs_of_e2b_are_configured_by_one_command() {
        let (text, file) = key();
        let e2b_key = text.e2b_text();
        let kept = LocalKey::Existing { text, file };
        let shown = welcome(&kept, true);
        let line = shown.lines().find(|line| line.starts_with("export ")).unwrap();
        assert!(
            line.contains(&format!("E2B_API_KEY={e2b_key} E2B_API_URL=https://127.0.0.1:8443 ")),
            "{line}"
        );
        let trust = " SSL_CERT_FILE='/var/lib/my data/tls/tls-trust.pem' \
                     NODE_EXTRA_CA_CERTS='/var/lib/my data/tls/tls-cert.pem'";
        assert!(line.ends_with(trust), "{line}");
        assert!(shown.contains(": sandboxd image pull e2b-base\n"), "{shown}");
        assert!(
            shown.contains("https://127.0.0.1:8443 with the headers E2b-Sandbox-Id: ID and E2b-Sandbox-Port"),
            "{shown}"
        );
        assert!(!welcome(&kept, false).contains("E2B") && !welcome(&LocalKey::None, true).contains("E2B"));
    }
}
