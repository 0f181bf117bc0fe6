//! Errors as they are printed on standard error: the message in the words of the command line, and a hint.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sandboxd_client::{Code, Error};

use crate::context::LOCAL_DATA_DIR;
use crate::limit_wait::gave_up;
use crate::output::note;
use crate::style::{Paint, Tone};
use crate::table::changes_display;
use crate::user_units::in_user_units;

/// Exit code of failures of sbx itself, as with `docker run`.
pub const SBX_FAILURE: u8 = 125;
/// In the data directory: the URL of its service, since that was ready for the first time.
const LOCATION: &str = "local.json";
const MAKE_DIRECTORY: &str = "'sbx exec SANDBOX mkdir -p DIR' creates the directory";

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
pub struct PrintedError<'a>(pub &'a anyhow::Error);

impl PrintedError<'_> {
    /// Prints the error with its causes, and the hint for it if there is one.
    pub fn print(&self) {
        let paint = Paint::of(&io::stderr());
        let name = paint.text(Tone::Bad, "sbx:");
        note(&format!("{name} {}", printable(&chain_text(self.0))));
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let hint = match self.0.downcast_ref::<Error>() {
            // The message says what to do: wait.
            Some(error) if starting_in(error).is_some() => None,
            Some(error) => hint(error, variable("SANDBOXD_CERTIFICATE")),
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
        if let Some(error) = source.downcast_ref::<Error>() {
            messages.push(text(error));
            break;
        }
        messages.push(source.to_string());
    }
    messages.join(": ")
}

/// An error of the service in the words of the command line, with its code and the id of its request, and how long sbx tried.
fn text(error: &Error) -> String {
    let (message, code) = (in_user_units(error.message()), error.code_name());
    if let Some(directory) = starting_in(error) {
        return format!("{} ({code})", starting(&directory));
    }
    // A refusal after a wait is final, and so is a lost connection if the command may have begun; nothing was given up.
    let is_given_up = error.retryable() && (error.code() != Code::NetworkError || error.had_no_effect());
    let waited = if is_given_up { error.waited() } else { Duration::ZERO };
    let tried = gave_up(waited).map_or_else(String::new, |tried| format!("{tried}: "));
    match error.request_id() {
        Some(id) => format!("{tried}{message} ({code}, request {id})"),
        None => format!("{tried}{message} ({code})"),
    }
}

/// The data directory of the daemon of this machine, if it has no key there yet: it writes its key when its images are prepared.
fn starting_in(error: &Error) -> Option<PathBuf> {
    let is = |name: &str, value: &str| error.details().get(name).is_some_and(|found| found == value);
    if error.code() != Code::Configuration || !is("reason", "key") || !is("service", "local") {
        return None;
    }
    let cause = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    let set = std::env::var_os("SANDBOXD_DATA_DIR").filter(|directory| !directory.is_empty());
    let directory = set.map_or_else(|| PathBuf::from(LOCAL_DATA_DIR), PathBuf::from);
    has_no_key_yet(cause, &directory).then_some(directory)
}

/// The whole message: what else the error says is of a machine without a service.
fn starting(directory: &Path) -> String {
    format!(
        "the service of this machine is still preparing, or does not run: it writes its key into {} before it serves, and its log (the \
         terminal of 'sandboxd serve', or 'journalctl -u sandboxd') says how far it is; the data \
         directory of another service is named by SANDBOXD_DATA_DIR",
        directory.display()
    )
}

/// A key that may not be read may exist. A service that was ready has written where it is: its key was removed.
fn has_no_key_yet(cause: Option<&io::Error>, directory: &Path) -> bool {
    let is_missing = cause.is_some_and(|cause| cause.kind() == io::ErrorKind::NotFound);
    is_missing && directory.is_dir() && !directory.join(LOCATION).exists()
}

/// As in a table, with line ends: a message may quote a sandbox, which may send terminal control sequences.
fn printable(text: &str) -> String {
    text.chars().map(|c| if changes_display(c) && c != '\n' { '\u{fffd}' } else { c }).collect()
}

/// What the user can do. `certificate` is the certificate file that the environment names.
fn hint(error: &Error, certificate: Option<String>) -> Option<String> {
    let detail = |name: &str| error.details().get(name).and_then(|value| value.as_str());
    let text = match error.code() {
        Code::InvalidArgument => return argument_hint(detail("argument")?).map(str::to_owned),
        Code::Configuration if detail("reason") == Some("https") => {
            let location = detail("location")?;
            return Some(format!("use --url {location}, or set SANDBOXD_URL to it"));
        }
        Code::Configuration if detail("reason") == Some("key") => {
            "'sandboxd serve' or './dev run' starts a service on this machine; if that has another data directory, set SANDBOXD_DATA_DIR \
             (SANDBOXD_CONFIG is not read); one that has just been started may prepare its images first, and its log says when it is \
             ready; for a service on another machine, 'sbx login' saves its URL and a key"
        }
        Code::Configuration => {
            "'sbx login' saves a URL and a key; SANDBOXD_URL and SANDBOXD_API_KEY override them"
        }
        Code::Unauthorized => {
            "'sbx login' saves another key, which 'sbx key create' on the machine of the service creates; SANDBOXD_API_KEY overrides it"
        }
        Code::Forbidden => "the key lacks a scope; 'sandboxd key create --scopes …' creates another key",
        Code::FileNotFound => "a relative path starts at the working directory of the sandbox",
        Code::SandboxNotFound => match (detail("state"), detail("reason")) {
            (Some("terminated"), Some("timeout")) => {
                "its timeout ended it: --timeout of 'sbx create' sets another one, such as 24h, --pause-on-timeout keeps the sandbox paused, \
                 and 'sbx timeout 24h SANDBOX' changes the timeout of a live sandbox"
            }
            (Some("terminated"), _) => "'sbx ls --all' lists terminated sandboxes, too",
            _ => "'sbx ls' lists sandboxes; an id is written as a whole, with sb_ before it",
        },
        Code::ExecutionNotFound => "'sbx logs --list SANDBOX' lists executions",
        Code::SnapshotNotFound => "'sbx snapshot ls' lists snapshots",
        Code::TemplateNotFound => "'sbx template ls' lists templates",
        Code::InvalidConfig if detail("templateId").is_some() => {
            return Some(format!("'sbx template logs {}' shows the log of the build", detail("templateId")?));
        }
        Code::InvalidConfig if detail("field") == Some("image") => {
            "'sbx images' lists images, 'sbx template ls' templates, and 'sbx snapshot ls' snapshots"
        }
        Code::NetworkError => {
            return Some(connection_hint(detail("reason"), detail("certificate"), certificate));
        }
        Code::RateLimited | Code::ResourceExhausted => {
            let seconds = error.retry_after()?.as_secs();
            return Some(format!("retry in {seconds} s"));
        }
        _ => return None,
    };
    Some(text.to_owned())
}

fn argument_hint(argument: &str) -> Option<&'static str> {
    match argument {
        "sandboxId" => Some(
            "write the whole id, sb_ followed by letters and digits, because its beginning is not enough; or the name that --name gave; 'sbx ls' \
             lists both",
        ),
        "executionId" => Some(
            "an execution id is ex_ followed by letters and digits; 'sbx logs --list SANDBOX' lists executions",
        ),
        _ => None,
    }
}

/// What to do if there was no response. `fault` is that of the certificate.
fn connection_hint(reason: Option<&str>, fault: Option<&str>, certificate: Option<String>) -> String {
    match (reason, fault, certificate) {
        (Some("certificate"), Some("untrusted"), Some(file)) => format!(
            "SANDBOXD_CERTIFICATE is {file}, which is not the certificate of the service; 'sbx login' shows that and can trust it"
        ),
        (Some("certificate"), Some("name"), _) => {
            "'sbx login' pins the certificate by its fingerprint, whatever its names are".to_owned()
        }
        (Some("certificate"), Some("pinned"), _) => {
            "if the certificate was replaced, run 'sbx login' again and compare the fingerprint".to_owned()
        }
        (Some("certificate"), Some("expired"), _) => {
            "check the clock of this machine, or ask the operator for a new certificate".to_owned()
        }
        (Some("certificate"), ..) => {
            "'sbx login' shows the certificate of the service and can trust it; SANDBOXD_CERTIFICATE names a file with it"
                .to_owned()
        }
        (Some("plain"), ..) => {
            "the port is probably that of another service; the default URL is https://127.0.0.1:8443".to_owned()
        }
        (Some("host"), ..) => "check the URL; --url or SANDBOXD_URL sets it".to_owned(),
        _ => {
            "check that the service runs, which 'sandboxd serve' starts, and that the URL is right; one that has just been started may \
             prepare its images first, and its log says when it is ready; for a service of this machine with another data directory, set \
             SANDBOXD_DATA_DIR; for another machine, --url, SANDBOXD_URL or 'sbx login' sets it"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use sandboxd_client::Client;

    use super::*;

    #[test]
    fn sources_of_an_error_are_printed_once() {
        let error = anyhow::Error::new(io::Error::other("inner")).context("outer");
        assert_eq!(chain_text(&error), "outer: inner");
        let error = Client::builder().url("ftp://x").key("any").build().err().unwrap();
        let message = error.to_string();
        assert_eq!(chain_text(&anyhow::Error::new(error).context("outer")), format!("outer: {message}"));
    }

    #[test]
    fn each_fault_of_a_connection_has_its_own_hint() {
        let hint =
            |reason, fault, file: Option<&str>| connection_hint(reason, fault, file.map(str::to_owned));
        let certificate = Some("certificate");
        for (text, part) in [
            (hint(certificate, Some("untrusted"), None), "SANDBOXD_CERTIFICATE names a file"),
            (hint(certificate, Some("untrusted"), Some("/a.pem")), "SANDBOXD_CERTIFICATE is /a.pem"),
            (hint(certificate, Some("name"), None), "pins"),
            (hint(certificate, Some("pinned"), Some("/a.pem")), "replaced"),
            (hint(certificate, Some("expired"), None), "clock"),
            (hint(Some("plain"), None, None), "https://127.0.0.1:8443"),
            (hint(Some("host"), None, None), "--url"),
            (hint(Some("refused"), None, None), "check that the service runs"),
            (hint(None, None, None), "check that the service runs"),
            (hint(Some("refused"), None, None), "its log says when it is ready"),
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn arguments_that_are_no_ids_have_hints() {
        let client = Client::builder().url("http://127.0.0.1:9").key("any").build().unwrap();
        let error = client.sandbox("x").unwrap_err();
        let text = hint(&error, None).unwrap();
        assert!(text.contains("'sbx ls'") && text.contains("whole id"), "{text}");
        assert_eq!(argument_hint("other"), None);
    }

    #[test]
    fn a_key_that_is_not_there_yet_is_one_of_a_service_that_starts() {
        let (dir, of) = (tempfile::tempdir().unwrap(), |kind: io::ErrorKind| io::Error::from(kind));
        assert!(has_no_key_yet(Some(&of(io::ErrorKind::NotFound)), dir.path()));
        assert!(!has_no_key_yet(Some(&of(io::ErrorKind::PermissionDenied)), dir.path()));
        assert!(!has_no_key_yet(Some(&of(io::ErrorKind::NotFound)), &dir.path().join("none")));
        assert!(!has_no_key_yet(None, dir.path()));
        std::fs::write(dir.path().join(LOCATION), "{}").unwrap();
        assert!(!has_no_key_yet(Some(&of(io::ErrorKind::NotFound)), dir.path()), "it was ready once");
    }

    #[test]
    fn a_missing_key_of_another_service_is_none_of_one_that_starts() {
        let dir = tempfile::tempdir().unwrap();
        let build =
            |builder: sandboxd_client::ClientBuilder| builder.local_data_dir(dir.path()).build().unwrap_err();
        let own = build(Client::builder());
        assert_eq!((&own.details()["reason"], &own.details()["service"]), (&"key".into(), &"local".into()));
        let other = build(Client::builder().url("https://127.0.0.1:9"));
        assert!(starting_in(&other).is_none() && chain_text(&other.into()).starts_with("no API key"));
    }

    #[test]
    fn a_service_that_starts_is_one_line_without_other_causes() {
        let text = starting(Path::new("/srv/data"));
        assert!(text.contains("still preparing") && text.contains("/srv/data"), "{text}");
        assert!(
            ["\n", "SANDBOXD_API_KEY", "login", "os error"].iter().all(|part| !text.contains(part)),
            "{text}"
        );
    }
}
