//! Waiting for limits of the service: says once on standard error which limit sbx waits for, and who can change it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sandboxd_client::Error;

use crate::output::note;

/// How long a request waits for limits, unless an option says how long.
pub const LIMIT_WAIT: Duration = Duration::from_secs(120);

/// For a user who is the operator.
const NO_RATE_LIMITS: &str = "; 'sandboxd serve --no-rate-limits' lifts rate limits on a machine of your own";

/// What was said already.
static ANNOUNCED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Prints what sbx waits for, once for each limit.
pub fn announce(error: &Error, pause: Duration) {
    let mut announced = ANNOUNCED.lock().unwrap_or_else(PoisonError::into_inner);
    if announced.insert(subject(error)) {
        note(&format!("sbx: {}", text(error, pause)));
    }
}

fn detail<'a>(error: &'a Error, name: &str) -> Option<&'a str> {
    error.details().get(name).and_then(|value| value.as_str())
}

/// The limit, or the condition of the service, or else the message.
fn subject(error: &Error) -> String {
    let subject = detail(error, "limit").or_else(|| detail(error, "condition"));
    subject.unwrap_or_else(|| error.message()).to_owned()
}

fn text(error: &Error, pause: Duration) -> String {
    let seconds = error.retry_after().unwrap_or(pause).as_secs();
    let value = error.details().get("value").and_then(|value| value.as_u64());
    match (value, detail(error, "limit"), detail(error, "key")) {
        (Some(value), Some(limit), Some(key)) => {
            let lifted = if is_rate(key) { NO_RATE_LIMITS } else { "" };
            format!("{value} {limit}: waiting {seconds} s; the operator sets {key}{lifted}")
        }
        (Some(value), Some(limit), None) => {
            format!("{value} {limit}: waiting {seconds} s; the limit is fixed")
        }
        _ => format!("waiting: {}", error.message()),
    }
}

/// Whether the setting is a rate limit. Other limits of its group stay with `--no-rate-limits`.
fn is_rate(key: &str) -> bool {
    key.starts_with("limits.") && key.ends_with("_per_minute")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a service that refuses a request with these details.
    fn refusal(details: &str) -> Error {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let body =
            format!(r#"{{"error":{{"code":"RATE_LIMITED","message":"too many","details":{details}}}}}"#);
        let serving = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let _ = socket.read(&mut [0; 4096]).unwrap();
            let head = "HTTP/1.1 429 x\r\nretry-after: 41\r\nconnection: close\r\ncontent-length:";
            write!(socket, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        });
        let client = sandboxd_client::Client::builder().url(url).key("k").retries(0).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(client.health()).unwrap_err();
        serving.join().unwrap();
        error
    }

    #[test]
    fn a_limit_is_named_with_its_setting() {
        let pause = Duration::from_secs(1);
        let error = refusal(r#"{"limit":"creates per minute","value":10,"key":"limits.create_per_minute"}"#);
        assert_eq!(
            text(&error, pause),
            "10 creates per minute: waiting 41 s; the operator sets limits.create_per_minute; \
             'sandboxd serve --no-rate-limits' lifts rate limits on a machine of your own"
        );
        for key in ["quotas.sandboxes", "limits.concurrent_executions"] {
            let error = refusal(&format!(r#"{{"limit":"x","value":3,"key":"{key}"}}"#));
            assert_eq!(text(&error, pause), format!("3 x: waiting 41 s; the operator sets {key}"));
        }
        assert_eq!(subject(&error), "creates per minute");
        let error = refusal(r#"{"limit":"file operations at a time","value":16}"#);
        assert_eq!(text(&error, pause), "16 file operations at a time: waiting 41 s; the limit is fixed");
        let error = refusal(r#"{"condition":"stopping"}"#);
        assert_eq!(
            (text(&error, pause).as_str(), subject(&error).as_str()),
            ("waiting: too many", "stopping")
        );
        assert_eq!(subject(&refusal("{}")), "too many");
    }
}
