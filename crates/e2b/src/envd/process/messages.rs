//! The messages of `process.Process`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use engine::{Channel, ProcessEnd, ProcessSelector, ProcessStatus, TerminalSize};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::envd::connect::RpcError;
use crate::envd::proto_json::{Base64, Number, or_default};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Config {
    #[serde(deserialize_with = "or_default")]
    pub cmd: String,
    #[serde(deserialize_with = "or_default")]
    pub args: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Size {
    #[serde(deserialize_with = "or_default")]
    cols: Number,
    #[serde(deserialize_with = "or_default")]
    rows: Number,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Pty {
    #[serde(deserialize_with = "or_default")]
    size: Size,
}

impl Pty {
    pub fn size(&self) -> Result<TerminalSize, RpcError> {
        let Size { cols: Number(cols), rows: Number(rows) } = self.size;
        let size = u16::try_from(cols).ok().zip(u16::try_from(rows).ok());
        size.and_then(|(cols, rows)| TerminalSize::new(cols, rows)).ok_or_else(|| {
            RpcError::invalid(format!(
                "the terminal has {cols} columns and {rows} rows; allowed: 1 to 1000 each"
            ))
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StartRequest {
    #[serde(deserialize_with = "or_default")]
    pub process: Config,
    pub pty: Option<Pty>,
    pub tag: Option<String>,
    /// Clients that do not know the field expect an input.
    pub stdin: Option<bool>,
}

/// A process by pid or tag.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Selector {
    pid: Option<Number>,
    tag: Option<String>,
}

impl Selector {
    pub fn get(&self) -> Result<ProcessSelector<'_>, RpcError> {
        match (self.pid, &self.tag) {
            (Some(Number(pid)), _) => Ok(ProcessSelector::Pid(pid)),
            (None, Some(tag)) => Ok(ProcessSelector::Tag(tag)),
            (None, None) => {
                Err(RpcError::invalid("the message names no process: 'pid' or 'tag' is required"))
            }
        }
    }
}

/// A request that has only a process: `Connect`, `CloseStdin`, and the start of `StreamInput`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProcessOnly {
    #[serde(deserialize_with = "or_default")]
    pub process: Selector,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Input {
    stdin: Option<Base64>,
    pty: Option<Base64>,
}

/// For which kind of process the bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputBytes {
    Stdin(Vec<u8>),
    Terminal(Vec<u8>),
}

impl Input {
    /// `None` for an input without bytes.
    pub fn into_bytes(self) -> Option<InputBytes> {
        match (self.stdin, self.pty) {
            (Some(Base64(bytes)), _) => Some(InputBytes::Stdin(bytes)),
            (None, Some(Base64(bytes))) => Some(InputBytes::Terminal(bytes)),
            (None, None) => None,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SendInputRequest {
    #[serde(deserialize_with = "or_default")]
    pub process: Selector,
    #[serde(deserialize_with = "or_default")]
    pub input: Input,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct InputData {
    #[serde(deserialize_with = "or_default")]
    pub input: Input,
}

/// A message of `StreamInput`. One without a known field is a keepalive.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct StreamInputRequest {
    pub start: Option<ProcessOnly>,
    pub data: Option<InputData>,
}

/// A signal by name or number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SignalName {
    Name(String),
    Number(i32),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SendSignalRequest {
    #[serde(deserialize_with = "or_default")]
    pub process: Selector,
    signal: Option<SignalName>,
}

/// The signals of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Terminate,
    Kill,
}

impl SendSignalRequest {
    pub fn signal(&self) -> Result<Signal, RpcError> {
        match &self.signal {
            Some(SignalName::Name(name)) if name == "SIGNAL_SIGKILL" => Ok(Signal::Kill),
            Some(SignalName::Name(name)) if name == "SIGNAL_SIGTERM" => Ok(Signal::Terminate),
            Some(SignalName::Number(9)) => Ok(Signal::Kill),
            Some(SignalName::Number(15)) => Ok(Signal::Terminate),
            _ => Err(RpcError::invalid("unknown signal; allowed: SIGNAL_SIGKILL, SIGNAL_SIGTERM")),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UpdateRequest {
    #[serde(deserialize_with = "or_default")]
    pub process: Selector,
    pub pty: Option<Pty>,
}

/// The first event of a stream.
pub fn start_event(pid: u32) -> Vec<u8> {
    format!(r#"{{"event":{{"start":{{"pid":{pid}}}}}}}"#).into_bytes()
}

pub const KEEPALIVE_EVENT: &[u8] = br#"{"event":{"keepalive":{}}}"#;

/// Output. Base64 needs no escapes.
pub fn data_event(channel: Channel, is_terminal: bool, bytes: &[u8]) -> Vec<u8> {
    let field = match channel {
        _ if is_terminal => "pty",
        Channel::Stdout => "stdout",
        Channel::Stderr => "stderr",
    };
    format!(r#"{{"event":{{"data":{{"{field}":"{}"}}}}}}"#, STANDARD.encode(bytes)).into_bytes()
}

/// The end of a process. `None` if the stream ends with an error instead.
pub fn end_event(end: &ProcessEnd) -> Option<Vec<u8>> {
    let end = match end {
        ProcessEnd::Exited(0) => json!({ "exited": true, "status": "exit status 0" }),
        ProcessEnd::Exited(code) => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": status })
        }
        ProcessEnd::Signalled(name) => {
            let status = format!("signal: {}", signal_text(name));
            json!({ "exitCode": -1, "status": status, "error": status })
        }
        ProcessEnd::OutOfMemory { exit_code: Some(code), message } => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": format!("{status}: {message}") })
        }
        ProcessEnd::OutOfMemory { exit_code: None, message } => {
            let status = "signal: killed";
            json!({ "exitCode": -1, "status": status, "error": format!("{status}: {message}") })
        }
        ProcessEnd::TimedOut | ProcessEnd::Lost(_) => return None,
    };
    Some(json!({ "event": { "end": end } }).to_string().into_bytes())
}

/// The description of a signal, which clients show.
fn signal_text(name: &str) -> &str {
    match name {
        "SIGKILL" => "killed",
        "SIGTERM" => "terminated",
        "SIGINT" => "interrupt",
        "SIGHUP" => "hangup",
        "SIGQUIT" => "quit",
        "SIGSEGV" => "segmentation fault",
        "SIGABRT" => "aborted",
        "SIGPIPE" => "broken pipe",
        other => other,
    }
}

/// The response of `List`.
pub fn list(processes: &[ProcessStatus]) -> Value {
    let entries: Vec<Value> = processes.iter().map(entry).collect();
    json!({ "processes": entries })
}

fn entry(process: &ProcessStatus) -> Value {
    let (cmd, args) = process.argv.split_first().map_or(("", &[][..]), |(cmd, args)| (cmd.as_str(), args));
    let mut config = json!({ "cmd": cmd, "args": args, "envs": process.env });
    if let (Some(cwd), Some(config)) = (&process.cwd, config.as_object_mut()) {
        config.insert("cwd".to_owned(), cwd.as_str().into());
    }
    let mut entry = Map::new();
    entry.insert("config".to_owned(), config);
    entry.insert("pid".to_owned(), process.pid.into());
    if let Some(tag) = &process.tag {
        entry.insert("tag".to_owned(), tag.as_str().into());
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use serde::de::DeserializeOwned;

    use proptest::prelude::*;

    use super::*;
    use crate::envd::connect::MAX_MESSAGE;
    use crate::envd::proto_json::parse;

    /// The most memory of a message is that of its text, and a bounded number of values.
    #[test]
    fn the_json_of_a_message_is_bounded_in_values_and_depth() {
        fn peak<T: DeserializeOwned>(name: &str, json: &str, limit: usize) {
            let peak = measure(|| drop(parse::<T>(json.as_bytes()))).bytes_max;
            assert!(peak <= limit as u64, "{name}: {peak} bytes for {}", json.len());
        }
        let many = |count: usize, one: &str| vec![one; count].join(",");
        let args = |count| format!(r#"{{"process":{{"args":[{}]}}}}"#, many(count, r#""""#));
        let variables: Vec<String> = (0..MAX_MESSAGE / 12).map(|n| format!(r#""{n}":"""#)).collect();
        let envs = |count: usize| format!(r#"{{"process":{{"envs":{{{}}}}}}}"#, variables[..count].join(","));
        let deep = format!("{}{}", "[".repeat(2 << 20), "]".repeat(2 << 20));
        let unknown = format!(r#"{{"x":[{}]}}"#, many(1 << 20, "0"));
        peak::<StartRequest>("arguments", &args(1 << 20), 1024);
        peak::<StartRequest>("variables", &envs(variables.len()), 1024);
        peak::<StartRequest>("most arguments", &args(16_000), 1 << 20);
        peak::<StartRequest>("most variables", &envs(8000), 2 << 20);
        peak::<StartRequest>("nested", &deep, 1024);
        peak::<SendSignalRequest>("nested", &deep, 1024);
        peak::<UpdateRequest>("values of no field", &unknown, 1024);
        let text = "x".repeat(MAX_MESSAGE - 100);
        let escaped = r"\u0041".repeat(MAX_MESSAGE / 6 - 100);
        for text in [text, escaped] {
            peak::<StartRequest>(
                "one text",
                &format!(r#"{{"process":{{"cmd":"{text}"}}}}"#),
                3 * MAX_MESSAGE,
            );
        }
        let input = "QUJD".repeat(MAX_MESSAGE / 4 - 100);
        peak::<SendInputRequest>("input", &format!(r#"{{"input":{{"stdin":"{input}"}}}}"#), 3 * MAX_MESSAGE);
    }

    #[test]
    fn a_start_request_may_leave_out_or_null_everything() {
        for json in [
            "{}",
            r#"{"process":null,"pty":null,"tag":null,"stdin":null,"unknown":[1]}"#,
            r#"{"process":{"cmd":null,"args":null,"envs":null,"cwd":null}}"#,
        ] {
            let request: StartRequest = parse(json.as_bytes()).unwrap();
            assert!(request.process.cmd.is_empty() && request.stdin.is_none(), "{json}");
        }
        let pty: StartRequest = parse(br#"{"pty":{"size":{"cols":80,"rows":24}}}"#).unwrap();
        assert_eq!(pty.pty.unwrap().size().unwrap(), TerminalSize { columns: 80, rows: 24 });
        let pty: StartRequest = parse(br#"{"pty":{"size":{"cols":70000,"rows":24}}}"#).unwrap();
        assert!(pty.pty.unwrap().size().is_err());
    }

    #[test]
    fn inputs_and_signals_are_read() {
        let input: SendInputRequest = parse(br#"{"process":{"pid":5},"input":{"stdin":"aGk="}}"#).unwrap();
        assert_eq!(input.process.get().unwrap(), ProcessSelector::Pid(5));
        assert_eq!(input.input.into_bytes(), Some(InputBytes::Stdin(b"hi".to_vec())));
        for (json, expected) in [
            (r#"{"signal":"SIGNAL_SIGKILL"}"#, Some(Signal::Kill)),
            (r#"{"signal":15}"#, Some(Signal::Terminate)),
            (r#"{"signal":"SIGNAL_UNSPECIFIED"}"#, None),
            ("{}", None),
        ] {
            let request: SendSignalRequest = parse(json.as_bytes()).unwrap();
            assert_eq!(request.signal().ok(), expected, "{json}");
            assert!(request.process.get().is_err());
        }
    }

    #[test]
    fn ends_are_described_as_clients_expect() {
        let text = |end: &ProcessEnd| String::from_utf8(end_event(end).unwrap()).unwrap();
        let of = |json: &str| serde_json::from_str::<Value>(json).unwrap();
        assert_eq!(
            of(&text(&ProcessEnd::Exited(0))),
            of(r#"{"event":{"end":{"exited":true,"status":"exit status 0"}}}"#)
        );
        assert_eq!(
            of(&text(&ProcessEnd::Signalled("SIGKILL".to_owned()))),
            of(r#"{"event":{"end":{"exitCode":-1,"status":"signal: killed","error":"signal: killed"}}}"#)
        );
        assert_eq!(end_event(&ProcessEnd::TimedOut), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(json in ".{0,200}") {
            let _ = parse::<StartRequest>(json.as_bytes());
            let _ = parse::<StreamInputRequest>(json.as_bytes());
        }
    }

    #[test]
    fn a_failed_exit_has_its_code_and_signals_have_the_words_of_the_kernel() {
        let end = |end: &ProcessEnd| {
            let event: Value = serde_json::from_slice(&end_event(end).unwrap()).unwrap();
            event["event"]["end"].clone()
        };
        let status = "exit status 3";
        let failed = json!({ "exitCode": 3, "exited": true, "status": status, "error": status });
        assert_eq!(end(&ProcessEnd::Exited(3)), failed);
        for (name, text) in [
            ("SIGKILL", "killed"),
            ("SIGTERM", "terminated"),
            ("SIGINT", "interrupt"),
            ("SIGHUP", "hangup"),
            ("SIGQUIT", "quit"),
            ("SIGSEGV", "segmentation fault"),
            ("SIGABRT", "aborted"),
            ("SIGPIPE", "broken pipe"),
            ("SIGUSR1", "SIGUSR1"),
        ] {
            let end = end(&ProcessEnd::Signalled(name.to_owned()));
            assert_eq!((&end["status"], &end["exitCode"]), (&json!(format!("signal: {text}")), &json!(-1)));
            assert_eq!((&end["error"], end.get("exited")), (&end["status"], None), "{name}");
        }
        for (exit_code, status, exited) in
            [(None, "signal: killed", None), (Some(137), "exit status 137", Some(&json!(true)))]
        {
            let end = end(&ProcessEnd::OutOfMemory { exit_code, message: "the limit is 4 MB".to_owned() });
            assert_eq!((&end["status"], &end["exitCode"]), (&json!(status), &json!(exit_code.unwrap_or(-1))));
            assert_eq!(
                (&end["error"], end.get("exited")),
                (&json!(format!("{status}: the limit is 4 MB")), exited)
            );
        }
        assert_eq!(end_event(&ProcessEnd::Lost("the agent ended".to_owned())), None);
    }

    #[test]
    fn output_is_of_the_terminal_if_there_is_one() {
        let text =
            |channel, is_terminal| String::from_utf8(data_event(channel, is_terminal, b"hi\xff")).unwrap();
        for (channel, is_terminal, field) in [
            (Channel::Stdout, false, "stdout"),
            (Channel::Stderr, false, "stderr"),
            (Channel::Stdout, true, "pty"),
        ] {
            let expected = format!(r#"{{"event":{{"data":{{"{field}":"aGn/"}}}}}}"#);
            assert_eq!(text(channel, is_terminal), expected);
        }
        let started: Value = serde_json::from_slice(&start_event(7)).unwrap();
        assert_eq!(started, json!({ "event": { "start": { "pid": 7 } } }));
        let alive: Value = serde_json::from_slice(KEEPALIVE_EVENT).unwrap();
        assert_eq!(alive, json!({ "event": { "keepalive": {} } }));
    }

    #[test]
    fn a_listed_process_has_only_what_it_was_started_with() {
        let bare = ProcessStatus {
            pid: 5,
            execution: api::ExecutionId::from_random([1; 20]),
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), "ls".to_owned()],
            env: BTreeMap::from([("A".to_owned(), "1".to_owned())]),
            cwd: None,
            user: "user".to_owned(),
            tag: None,
            terminal: None,
            stdin: true,
            end: None,
        };
        let config = json!({ "cmd": "/bin/sh", "args": ["-c", "ls"], "envs": { "A": "1" } });
        assert_eq!(entry(&bare), json!({ "config": config, "pid": 5 }));
        let named =
            ProcessStatus { cwd: Some("/w".to_owned()), tag: Some("t".to_owned()), argv: Vec::new(), ..bare };
        let config = json!({ "cmd": "", "args": [], "envs": { "A": "1" }, "cwd": "/w" });
        assert_eq!(list(&[named]), json!({ "processes": [{ "config": config, "pid": 5, "tag": "t" }] }));
    }

    #[test]
    fn a_process_is_named_by_its_pid_before_its_tag() {
        let selector = |json: &str| parse::<Selector>(json.as_bytes()).unwrap();
        assert_eq!(selector(r#"{"pid":5,"tag":"t"}"#).get().unwrap(), ProcessSelector::Pid(5));
        assert_eq!(selector(r#"{"tag":"t"}"#).get().unwrap(), ProcessSelector::Tag("t"));
        // An empty tag is a tag that no process has, and not a missing one.
        assert_eq!(selector(r#"{"tag":""}"#).get().unwrap(), ProcessSelector::Tag(""));
        assert!(selector(r#"{"pid":null}"#).get().is_err());
    }

    #[test]
    fn stdin_is_read_before_the_terminal_and_a_message_may_have_neither() {
        let input = |json: &str| parse::<Input>(json.as_bytes()).unwrap().into_bytes();
        assert_eq!(input(r#"{"stdin":"YQ==","pty":"Yg=="}"#), Some(InputBytes::Stdin(b"a".to_vec())));
        assert_eq!(input(r#"{"pty":"Yg"}"#), Some(InputBytes::Terminal(b"b".to_vec())));
        assert_eq!(input(r#"{"stdin":"-_8="}"#), Some(InputBytes::Stdin(vec![0xfb, 0xff])));
        assert_eq!(input("{}"), None);
        assert!(parse::<Input>(br#"{"stdin":"*"}"#).is_err());
    }
}
