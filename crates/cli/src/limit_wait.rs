//! Waiting for limits of the service: says on standard error which limit sbx waits for, how long it goes on and who can change the limit,
//! and from time to time that it still waits.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base::IgnorePoison;
use sandboxd_client::Error;

use crate::output::note;
use crate::units::time_text;

/// How long a request waits for limits, unless an option says how long.
pub const LIMIT_WAIT: Duration = Duration::from_secs(120);

/// For a user who is the operator.
const NO_RATE_LIMITS: &str = "; 'sandboxd serve --no-rate-limits' lifts rate limits on a machine of your own";
/// The shortest time between two notices about the same limit.
const NOTICE_INTERVAL: Duration = Duration::from_secs(30);
/// The longest time that an attempt after a pause may take. A refusal that comes later begins a new wait.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(30);

/// What was said already.
static NOTICES: Mutex<Notices> = Mutex::new(Notices(BTreeMap::new()));

/// How long sbx goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// A call of any command, which waits for [`LIMIT_WAIT`].
    OfCall,
    /// A create, which waits for the time of `--wait` or the default. `None`: until it is interrupted.
    OfCreate(Option<Duration>),
}

/// Prints what sbx waits for: in full when a wait begins, and in short while it goes on.
pub fn announce(error: &Error, pause: Duration, patience: Patience) {
    let subject = subject(error);
    let notice = NOTICES.lock().ignore_poison().next(&subject, pause, Instant::now());
    match notice {
        Some(Notice::Full) => note(&format!("sbx: {}; {}", text(error, pause), patience.text())),
        Some(Notice::Short { waited }) => note(&format!("sbx: {}", short_text(&subject, waited, patience))),
        None => {}
    }
}

/// How long sbx tried before it gave up. `None` if it did not wait.
pub fn gave_up(waited: Duration) -> Option<String> {
    (waited.as_secs() > 0).then(|| format!("gave up after {}", in_seconds(waited)))
}

impl Patience {
    fn longest(self) -> Option<Duration> {
        match self {
            Self::OfCall => Some(LIMIT_WAIT),
            Self::OfCreate(longest) => longest,
        }
    }

    fn text(self) -> String {
        let fails_at_once = match self {
            Self::OfCall => "Ctrl-C ends the wait",
            Self::OfCreate(_) => "with --wait 0 it fails at once",
        };
        match self.longest() {
            Some(longest) => format!("retrying for up to {}; {fails_at_once}", in_seconds(longest)),
            None => format!("retrying until it succeeds; {fails_at_once}"),
        }
    }
}

/// What to print about a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Notice {
    Full,
    Short { waited: Duration },
}

/// The waits by their subject.
#[derive(Debug, Default)]
struct Notices(BTreeMap<String, Wait>);

/// The latest wait for a limit.
#[derive(Debug)]
struct Wait {
    begun: Instant,
    /// When its latest pause ends.
    resumes: Instant,
    printed: Instant,
}

impl Notices {
    /// Records a pause that begins at `now`, and decides what to print.
    fn next(&mut self, subject: &str, pause: Duration, now: Instant) -> Option<Notice> {
        let resumes = now.checked_add(pause).unwrap_or(now);
        let Some(wait) = self.0.get_mut(subject) else {
            self.0.insert(subject.to_owned(), Wait { begun: now, resumes, printed: now });
            return Some(Notice::Full);
        };
        if now.saturating_duration_since(wait.resumes) > LONGEST_ATTEMPT {
            wait.begun = now;
        }
        wait.resumes = resumes;
        if now.saturating_duration_since(wait.printed) < NOTICE_INTERVAL {
            return None;
        }
        wait.printed = now;
        let waited = now.saturating_duration_since(wait.begun);
        Some(if waited.is_zero() { Notice::Full } else { Notice::Short { waited } })
    }
}

fn short_text(subject: &str, waited: Duration, patience: Patience) -> String {
    let so_far = in_seconds(waited);
    match patience.longest() {
        Some(longest) if waited <= longest => {
            format!("still waiting after {so_far} of {}: {subject}", in_seconds(longest))
        }
        // Input of a command is sent again after each wait.
        _ => format!("still waiting after {so_far}: {subject}"),
    }
}

/// A time without its fraction of a second.
fn in_seconds(time: Duration) -> String {
    time_text(time.as_secs().saturating_mul(1000))
}

fn detail<'a>(error: &'a Error, name: &str) -> Option<&'a str> {
    error.details().get(name).and_then(|value| value.as_str())
}

/// The limit, or the condition of the service, or else the message.
fn subject(error: &Error) -> String {
    limit_text(error)
        .unwrap_or_else(|| detail(error, "condition").unwrap_or_else(|| error.message()).to_owned())
}

/// The limit with its value. What the host lacks is a least value.
fn limit_text(error: &Error) -> Option<String> {
    let value = error.details().get("value").and_then(|value| value.as_u64())?;
    let limit = detail(error, "limit")?;
    let is_least = detail(error, "key").is_some_and(|key| key.starts_with("capacity.reserve_"));
    Some(format!("{}{value} {limit}", if is_least { "at least " } else { "" }))
}

fn text(error: &Error, pause: Duration) -> String {
    let seconds = error.retry_after().unwrap_or(pause).as_secs();
    match (limit_text(error), detail(error, "key")) {
        (Some(limit), Some(key)) => {
            let lifted = if is_rate(key) { NO_RATE_LIMITS } else { "" };
            format!("{limit}: waiting {seconds} s; the operator sets {key}{lifted}")
        }
        (Some(limit), None) => format!("{limit}: waiting {seconds} s; the limit is fixed"),
        (None, _) => format!("waiting: {}", error.message()),
    }
}

/// Whether the setting is a rate limit. Other limits of its group stay with `--no-rate-limits`.
fn is_rate(key: &str) -> bool {
    key.starts_with("limits.") && key.ends_with("_per_minute")
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The error of a service that refuses a request with this code and these details.
    pub fn refused(code: &str, details: &str) -> Error {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let body = format!(r#"{{"error":{{"code":"{code}","message":"too many","details":{details}}}}}"#);
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

    fn refusal(details: &str) -> Error {
        refused("RATE_LIMITED", details)
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
        assert_eq!(subject(&error), "10 creates per minute");
        let disk =
            r#"{"limit":"MB of free disk for new work","value":73848,"key":"capacity.reserve_disk_mb"}"#;
        let (error, wanted) = (refusal(disk), "at least 73848 MB of free disk for new work");
        assert_eq!(subject(&error), wanted);
        assert_eq!(
            text(&error, pause),
            format!("{wanted}: waiting 41 s; the operator sets capacity.reserve_disk_mb")
        );
        let error = refusal(r#"{"limit":"file operations at a time","value":16}"#);
        assert_eq!(text(&error, pause), "16 file operations at a time: waiting 41 s; the limit is fixed");
        let error = refusal(r#"{"condition":"stopping"}"#);
        assert_eq!(
            (text(&error, pause).as_str(), subject(&error).as_str()),
            ("waiting: too many", "stopping")
        );
        assert_eq!(subject(&refusal("{}")), "too many");
    }

    #[test]
    fn a_wait_is_announced_and_repeated_twice_a_minute() {
        let (begin, seconds) = (Instant::now(), Duration::from_secs);
        let mut notices = Notices::default();
        let mut printed = Vec::new();
        // A full disk: the service refuses the request every 10 s.
        for at in (0..=110).step_by(10) {
            if let Some(notice) = notices.next("disk", seconds(10), begin + seconds(at)) {
                printed.push((at, notice));
            }
        }
        let short = |waited| Notice::Short { waited: seconds(waited) };
        assert_eq!(printed, [(0, Notice::Full), (30, short(30)), (60, short(60)), (90, short(90))]);
        // Another reason is said at once; a later wait for the same one is a new wait.
        assert_eq!(notices.next("memory", seconds(10), begin + seconds(111)), Some(Notice::Full));
        assert_eq!(notices.next("disk", Duration::MAX, begin + seconds(300)), Some(Notice::Full));
    }

    #[test]
    fn a_notice_says_how_long_sbx_goes_on() {
        let minute = Duration::from_secs(60);
        let of_create = Patience::OfCreate(Some(minute));
        assert_eq!(Patience::OfCall.text(), "retrying for up to 2m; Ctrl-C ends the wait");
        assert_eq!(of_create.text(), "retrying for up to 1m; with --wait 0 it fails at once");
        let endless = Patience::OfCreate(None);
        assert_eq!(endless.text(), "retrying until it succeeds; with --wait 0 it fails at once");
        assert_eq!(short_text("the disk", minute / 2, of_create), "still waiting after 30s of 1m: the disk");
        assert_eq!(short_text("the disk", minute / 2, endless), "still waiting after 30s: the disk");
        assert_eq!(short_text("it", 3 * minute, Patience::OfCall), "still waiting after 3m: it");
        assert_eq!(gave_up(minute + minute / 2).as_deref(), Some("gave up after 1m30s"));
        assert_eq!(gave_up(Duration::from_millis(900)), None);
    }
}
