use std::collections::BTreeMap;

use api::{CommandBody, CreateBody, CreateNetwork, EgressDefault, EventBody, EventsBody, IngressPolicy};
use proptest::prelude::{Just, Strategy, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use rules::{ConfigRules, ExecuteRules};
use serde_json::{Value, json};

use super::*;

fn create(body: &[u8], rules: &ConfigRules) -> Result<api::SandboxConfig, RequestRefusal> {
    CreateBody::read(body, rules)
}

fn network(body: &[u8], rules: &ConfigRules) -> Result<rules::NetworkChange, RequestRefusal> {
    CreateNetwork::read(body, rules)
}

fn posted_events(body: &[u8]) -> Result<Vec<EventBody>, RequestRefusal> {
    EventsBody::read(body, &())
}

fn made(body: &[u8]) -> Result<api::SandboxConfig, RequestRefusal> {
    create(body, &ConfigRules::default())
}

fn ordered(body: &[u8]) -> Result<api::ExecuteRequest, RequestRefusal> {
    match CommandBody::read(body, &ExecuteRules::default())? {
        ValidatedCommand::Attached(request) => Ok(request),
        ValidatedCommand::Detached(command) => Ok(command.request),
    }
}

/// `INVALID_REQUEST` or another code, as the server takes it from the variant.
fn code(refusal: &RequestRefusal) -> &'static str {
    match refusal {
        RequestRefusal::Malformed { .. } | RequestRefusal::Field(_) | RequestRefusal::Unknown(_) => {
            "INVALID_REQUEST"
        }
        RequestRefusal::Config(_) => "INVALID_CONFIG",
        RequestRefusal::CommandTooLong { .. } => "COMMAND_TOO_LONG",
    }
}

#[test]
fn a_full_body_of_create_is_read() {
    let config = made(
        br#" {"image": "node:22", "resources": {"cpu": 4.0, "memoryMb": 8.192e3, "diskMb": 20480},
              "env": {"A": "1", "": null, "B": "\u00e9\n"}, "workdir": "/srv"} "#,
    );
    assert_eq!(config.unwrap_err().to_string(), "env. is null; allowed: a string");
    let config = made(
        br#" {"image": "node:22", "resources": {"cpu": 4.0, "memoryMb": 8.192e3, "diskMb": 20480},
              "env": {"A": "1", "B": "\u00e9\n"}, "workdir": "/srv", "timeoutMs": 1e3, "idleTimeoutMs": 0,
              "metadata": {"userId": "7"}, "unknown": [{"a": 1, "a": null}], "col\u006fur": 1,
              "network": {"egress": {"allow": ["example.com"], "default": "deny"}, "ingress": {"allowPorts": [3000, 8.08e3]}}}
        "#,
    )
    .unwrap();
    assert_eq!(config.image, "node:22");
    assert_eq!(
        (config.resources.cpu, config.resources.memory_mb, config.resources.disk_mb),
        (4, 8192, 20_480)
    );
    assert_eq!(
        config.env,
        BTreeMap::from([("A", "1"), ("B", "é\n")].map(|(a, b)| (a.to_owned(), b.to_owned())))
    );
    assert_eq!((config.workdir.as_str(), config.timeout_ms, config.idle_timeout_ms), ("/srv", 1000, 0));
    assert_eq!(config.metadata["userId"], "7");
    assert_eq!(config.network.egress.allow, ["example.com"]);
    assert_eq!(config.network.egress.default, EgressDefault::Deny);
    assert_eq!(config.network.ingress, Some(IngressPolicy { allow_ports: vec![3000, 8080] }));
}

#[test]
fn an_image_or_a_command_is_enough() {
    assert_eq!(made(br#"{"image":"ubuntu:24.04"}"#).unwrap().timeout_ms, 300_000);
    assert_eq!(made(br#"{"image":"ubuntu:24.04","network":{}}"#).unwrap().network.ingress, None);
    assert_eq!(made(br#"{"\u0069mage":"x"}"#).unwrap().image, "x");
    let request = ordered(br#"{"command":"true"}"#).unwrap();
    assert_eq!((request.timeout_ms, request.auto_resume, request.stdin), (60_000, true, None));
    let request = ordered(
        br#"{"command":"cat","cwd":"/","env":{"A":"b"},"timeoutMs":5,"stdin":"\u0000","autoResume":false}"#,
    );
    let request = request.unwrap();
    assert_eq!((request.cwd.as_deref(), request.env["A"].as_str()), (Some("/"), "b"));
    assert_eq!((request.timeout_ms, request.stdin.as_deref(), request.auto_resume), (5, Some("\0"), false));
}

/// A body of create, the code that it gets, and how its message begins or all of it.
const BAD_CREATES: &[(&[u8], &str, &str)] = &[
    (b"", "INVALID_REQUEST", "the body is empty; it must be a JSON object"),
    (b" \r\n\t", "INVALID_REQUEST", "the body is empty; it must be a JSON object"),
    (b"{", "INVALID_REQUEST", "the body is not valid JSON: EOF while parsing an object at line 1 column 1"),
    (b"{\"image\":\"x\"", "INVALID_REQUEST", "the body is not valid JSON: EOF"),
    (
        b"{\"image\":\"x\"}}",
        "INVALID_REQUEST",
        "the body is not valid JSON: trailing characters at line 1 column 14",
    ),
    (b"{\"image\":\"x\",}", "INVALID_REQUEST", "the body is not valid JSON: key must be a string"),
    (b"{'image':'x'}", "INVALID_REQUEST", "the body is not valid JSON: key must be a string"),
    (b"{\"image\":\"x\" /* c */}", "INVALID_REQUEST", "the body is not valid JSON: expected"),
    (b"{\"image\":\"x\r\ny\"}", "INVALID_REQUEST", "the body is not valid JSON: control character"),
    (b"{\"image\":\"\\x\"}", "INVALID_REQUEST", "the body is not valid JSON: invalid escape"),
    (b"{\"image\":\"\\ud800\"}", "INVALID_REQUEST", "image cannot be read: the body is not valid JSON: "),
    (b"{\"image\":\"\\udc00x\"}", "INVALID_REQUEST", "image cannot be read: the body is not valid JSON: "),
    (b"{\"image\":NaN}", "INVALID_REQUEST", "the body is not valid JSON: expected value"),
    (
        b"{\"timeoutMs\":Infinity,\"image\":\"x\"}",
        "INVALID_REQUEST",
        "the body is not valid JSON: expected value",
    ),
    (b"{\"timeoutMs\":01,\"image\":\"x\"}", "INVALID_REQUEST", "the body is not valid JSON: invalid number"),
    (b"{\"timeoutMs\":0x10,\"image\":\"x\"}", "INVALID_REQUEST", "the body is not valid JSON"),
    (b"{\"timeoutMs\":+1,\"image\":\"x\"}", "INVALID_REQUEST", "the body is not valid JSON"),
    (b"{\"timeoutMs\":1_000,\"image\":\"x\"}", "INVALID_REQUEST", "the body is not valid JSON"),
    (
        b"\xef\xbb\xbf{\"image\":\"x\"}",
        "INVALID_REQUEST",
        "the body is not valid JSON: expected value at line 1 column 1",
    ),
    (b"{\"image\":\"\xff\"}", "INVALID_REQUEST", "the body is not valid UTF-8 at byte 10"),
    (b"{\"image\":\"\xc3\"}", "INVALID_REQUEST", "the body is not valid UTF-8 at byte 10"),
    (b"{\"image\":\"\xed\xa0\x80\"}", "INVALID_REQUEST", "the body is not valid UTF-8 at byte 10"),
    (b"\xff\xfe{\0}\0", "INVALID_REQUEST", "the body is not valid UTF-8 at byte 0"),
    (b"\0", "INVALID_REQUEST", "the body is not valid JSON"),
    (b"image=x", "INVALID_REQUEST", "the body is not valid JSON"),
    (b"[]", "INVALID_REQUEST", "body is an array; allowed: an object"),
    (b"null", "INVALID_REQUEST", "body is null; allowed: an object"),
    (b"7", "INVALID_REQUEST", "body is the number 7; allowed: an object"),
    (b"\"{}\"", "INVALID_REQUEST", "body is the string '{}'; allowed: an object"),
    (b"{}", "INVALID_REQUEST", "image is missing; allowed: a string"),
    (
        b"{\"Image\":\"x\"}",
        "INVALID_REQUEST",
        "Image is an unknown field; the nearest known one is 'image'; allowed: 'image', 'resources'",
    ),
    (b"{\"image\":null}", "INVALID_REQUEST", "image is null; allowed: a string"),
    (b"{\"image\":1}", "INVALID_REQUEST", "image is the number 1; allowed: a string"),
    (b"{\"image\":[\"x\"]}", "INVALID_REQUEST", "image is an array; allowed: a string"),
    (b"{\"image\":true}", "INVALID_REQUEST", "image is true; allowed: a string"),
    (b"{\"image\":\"\"}", "INVALID_CONFIG", "image is ''; allowed: a name"),
    (b"{\"image\":\"a\\r\\nb\"}", "INVALID_CONFIG", r"image is 'a\r\nb'; allowed: a name"),
    (
        b"{\"image\":\"x\",\"image\":\"y\"}",
        "INVALID_REQUEST",
        "image is given twice, as the string 'x' and as the string 'y'; allowed: one value",
    ),
    (b"{\"image\":\"x\",\"im\\u0061ge\":\"x\"}", "INVALID_REQUEST", "image is given twice"),
    (b"{\"image\":\"x\",\"resources\":null}", "INVALID_REQUEST", "resources is null; allowed: an object"),
    (
        b"{\"image\":\"x\",\"resources\":[2,4096,10240]}",
        "INVALID_REQUEST",
        "resources is an array; allowed: an object",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":\"2\"}}",
        "INVALID_REQUEST",
        "resources.cpu is the string '2'; allowed: an integer",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":null}}",
        "INVALID_REQUEST",
        "resources.cpu is null; allowed: an integer",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":2.5}}",
        "INVALID_REQUEST",
        "resources.cpu is the number 2.5; allowed: an integer",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":2,\"cpu\":4}}",
        "INVALID_REQUEST",
        "resources.cpu is given twice, as the number 2 and as the number 4; allowed: one value",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":3}}",
        "INVALID_CONFIG",
        "resources.cpu is 3; allowed: 2, 4 or 8",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":-0}}",
        "INVALID_CONFIG",
        "resources.cpu is 0; allowed: 2, 4 or 8",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"cpu\":1e400}}",
        "INVALID_CONFIG",
        "resources.cpu is above 10^38; allowed: 2, 4 or 8",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"memoryMb\":-1e999999999999999999999}}",
        "INVALID_CONFIG",
        "resources.memoryMb is below -10^38; allowed: 2048 to 16384",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"memoryMb\":18446744073709551616}}",
        "INVALID_CONFIG",
        "resources.memoryMb is 18446744073709551616; allowed: 2048 to 16384",
    ),
    (
        b"{\"image\":\"x\",\"resources\":{\"diskMb\":1e-400}}",
        "INVALID_REQUEST",
        "resources.diskMb is the number 1e-400; allowed: an integer",
    ),
    (
        b"{\"image\":\"x\",\"timeoutMs\":1234567890123456789012345678901234567890123456789.5}",
        "INVALID_REQUEST",
        "timeoutMs is the number 1234567890123456789012345678901234567890...; allowed: an integer",
    ),
    (b"{\"image\":\"x\",\"timeoutMs\":0}", "INVALID_CONFIG", "timeoutMs is 0; allowed: 1 to 86400000"),
    (b"{\"image\":\"x\",\"timeoutMs\":{}}", "INVALID_REQUEST", "timeoutMs is an object; allowed: an integer"),
    (
        b"{\"image\":\"x\",\"idleTimeoutMs\":false}",
        "INVALID_REQUEST",
        "idleTimeoutMs is false; allowed: an integer",
    ),
    (b"{\"image\":\"x\",\"env\":[]}", "INVALID_REQUEST", "env is an array; allowed: an object"),
    (b"{\"image\":\"x\",\"env\":{\"A\":1}}", "INVALID_REQUEST", "env.A is the number 1; allowed: a string"),
    (b"{\"image\":\"x\",\"env\":{\"A\\n\":null}}", "INVALID_REQUEST", r"env.A\n is null; allowed: a string"),
    (b"{\"image\":\"x\",\"env\":{\"A\":\"1\",\"A\":\"1\"}}", "INVALID_REQUEST", "env.A is given twice"),
    (b"{\"image\":\"x\",\"env\":{\"A=B\":\"1\"}}", "INVALID_CONFIG", "name of a variable in env is 'A=B'"),
    (
        b"{\"image\":\"x\",\"env\":{\"A\":\"\\u0000\"}}",
        "INVALID_CONFIG",
        r"env.A is '\0'; allowed: text without NUL",
    ),
    (
        b"{\"image\":\"x\",\"metadata\":{\"k\":{\"a\":1}}}",
        "INVALID_REQUEST",
        "metadata.k is an object; allowed: a string",
    ),
    (
        b"{\"image\":\"x\",\"metadata\":\"k\"}",
        "INVALID_REQUEST",
        "metadata is the string 'k'; allowed: an object",
    ),
    (b"{\"image\":\"x\",\"workdir\":7}", "INVALID_REQUEST", "workdir is the number 7; allowed: a string"),
    (
        b"{\"image\":\"x\",\"workdir\":\"../x\"}",
        "INVALID_CONFIG",
        "workdir is '../x'; allowed: an absolute path",
    ),
    (
        b"{\"image\":\"x\",\"network\":\"deny\"}",
        "INVALID_REQUEST",
        "network is the string 'deny'; allowed: an object",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":null}}",
        "INVALID_REQUEST",
        "network.egress is null; allowed: an object",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":{\"allow\":\"a.b\"}}}",
        "INVALID_REQUEST",
        "network.egress.allow is the string 'a.b'; allowed: an array",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":{\"allow\":[\"a.b\",7]}}}",
        "INVALID_REQUEST",
        "network.egress.allow[1] is the number 7; allowed: a string",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":{\"allow\":[\"10.0.0.1\"]}}}",
        "INVALID_CONFIG",
        "network.egress.allow[0] is '10.0.0.1'",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":{\"default\":\"ask\"}}}",
        "INVALID_CONFIG",
        "network.egress.default is 'ask'; allowed: 'allow' or 'deny'",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":{\"default\":\"Deny\"}}}",
        "INVALID_CONFIG",
        "network.egress.default is 'Deny'; allowed: 'allow' or 'deny'",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"egress\":{\"default\":1}}}",
        "INVALID_REQUEST",
        "network.egress.default is the number 1; allowed: a string",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"ingress\":{\"allowPorts\":[80,\"443\"]}}}",
        "INVALID_REQUEST",
        "network.ingress.allowPorts[1] is the string '443'; allowed: an integer",
    ),
    (
        b"{\"image\":\"x\",\"network\":{\"ingress\":{\"allowPorts\":[80,0]}}}",
        "INVALID_CONFIG",
        "network.ingress.allowPorts[1] is 0; allowed: 1 to 65535",
    ),
];

#[test]
fn a_create_error_names_field_and_allowed_values() {
    for (body, expected, message) in BAD_CREATES {
        let shown = String::from_utf8_lossy(body);
        let refusal = made(body).expect_err(&shown);
        assert_eq!(code(&refusal), *expected, "{shown}: {refusal}");
        assert!(refusal.to_string().starts_with(message), "{shown}\n got: {refusal}\nwant: {message}");
    }
}

#[test]
fn an_execute_error_names_field_and_allowed_values() {
    let rows: &[(&[u8], &str, &str)] = &[
        (b"", "INVALID_REQUEST", "the body is empty"),
        (b"{}", "INVALID_REQUEST", "command is missing; allowed: a string"),
        (b"{\"command\":[\"ls\"]}", "INVALID_REQUEST", "command is an array; allowed: a string"),
        (b"{\"command\":null}", "INVALID_REQUEST", "command is null; allowed: a string"),
        (
            b"{\"command\":\"a\",\"command\":\"b\"}",
            "INVALID_REQUEST",
            "command is given twice, as the string 'a'",
        ),
        (b"{\"command\":\"a\\u0000\"}", "INVALID_CONFIG", "command is 'a\\0'; allowed: text without NUL"),
        (
            b"{\"command\":\"a\",\"timeoutMs\":\"5\"}",
            "INVALID_REQUEST",
            "timeoutMs is the string '5'; allowed: an integer",
        ),
        (
            b"{\"command\":\"a\",\"timeoutMs\":300001}",
            "INVALID_CONFIG",
            "timeoutMs is 300001; allowed: 1 to 300000",
        ),
        (
            b"{\"command\":\"a\",\"timeoutMs\":3e5000}",
            "INVALID_CONFIG",
            "timeoutMs is above 10^38; allowed: 1 to 300000",
        ),
        (
            b"{\"command\":\"a\",\"autoResume\":\"no\"}",
            "INVALID_REQUEST",
            "autoResume is the string 'no'; allowed: true or false",
        ),
        (
            b"{\"command\":\"a\",\"autoResume\":0}",
            "INVALID_REQUEST",
            "autoResume is the number 0; allowed: true or false",
        ),
        (b"{\"command\":\"a\",\"stdin\":{}}", "INVALID_REQUEST", "stdin is an object; allowed: a string"),
        (b"{\"command\":\"a\",\"cwd\":null}", "INVALID_REQUEST", "cwd is null; allowed: a string"),
        (b"{\"command\":\"a\",\"cwd\":\"x\"}", "INVALID_CONFIG", "cwd is 'x'; allowed: an absolute path"),
        (b"{\"command\":\"a\",\"env\":{\"\":\"x\"}}", "INVALID_CONFIG", "name of a variable in env is ''"),
    ];
    for (body, expected, message) in rows {
        let shown = String::from_utf8_lossy(body);
        let refusal = ordered(body).expect_err(&shown);
        assert_eq!(code(&refusal), *expected, "{shown}: {refusal}");
        assert!(refusal.to_string().starts_with(message), "{shown}\n got: {refusal}\nwant: {message}");
    }
    let long = json!({ "command": "x".repeat(65_537) }).to_string();
    assert_eq!(ordered(long.as_bytes()), Err(RequestRefusal::CommandTooLong { bytes: 65_537, most: 65_536 }));
    let escaped = format!("{{\"command\":\"{}\"}}", "\\u0041".repeat(65_536));
    assert_eq!(
        ordered(escaped.as_bytes()).unwrap().command.len(),
        65_536,
        "what counts is the text, not its escapes"
    );
}

#[test]
fn a_change_of_the_network_is_read_as_strictly_as_a_create() {
    let changed = |body: &str| network(body.as_bytes(), &ConfigRules::default());
    let change = changed(r#"{"egress":{"allow":["example.com"]},"ingress":{"allowPorts":[3e3]}}"#);
    let policy = change.unwrap().of(&api::NetworkPolicy::default());
    assert_eq!(
        (policy.egress.allow, policy.egress.default),
        (vec!["example.com".to_owned()], EgressDefault::Allow)
    );
    assert_eq!(policy.ingress, Some(IngressPolicy { allow_ports: vec![3000] }));
    for nothing in ["{}", r#"{"egress":{}}"#, r#"{"ingress":{}}"#] {
        assert_eq!(changed(nothing).unwrap(), rules::NetworkChange::default(), "{nothing}");
    }
    for (body, expected, message) in [
        ("", "INVALID_REQUEST", "the body is empty; it must be a JSON object"),
        ("[]", "INVALID_REQUEST", "body is an array; allowed: an object"),
        (r#"{"egress":null}"#, "INVALID_REQUEST", "egress is null; allowed: an object"),
        (
            r#"{"egress":{"allow":"x"}}"#,
            "INVALID_REQUEST",
            "egress.allow is the string 'x'; allowed: an array",
        ),
        (
            r#"{"egress":{"allow":[1]}}"#,
            "INVALID_REQUEST",
            "egress.allow[0] is the number 1; allowed: a string",
        ),
        (r#"{"egress":{"default":true}}"#, "INVALID_REQUEST", "egress.default is true; allowed: a string"),
        (r#"{"egress":{},"egress":{}}"#, "INVALID_REQUEST", "egress is given twice"),
        (
            r#"{"egress":{"allow":["1.2.3.4"]}}"#,
            "INVALID_CONFIG",
            "egress.allow[0] is '1.2.3.4'; allowed: a domain",
        ),
        (r#"{"ingress":{"allowPorts":[1e99]}}"#, "INVALID_CONFIG", "ingress.allowPorts[0] is above 10^38"),
    ] {
        let refusal = changed(body).unwrap_err();
        assert_eq!(code(&refusal), expected, "{body}");
        assert!(refusal.to_string().starts_with(message), "{body}: {refusal}");
    }
}

#[test]
fn messages_are_short_for_any_input() {
    let long = "ß".repeat(500_000);
    for body in [
        json!({ "image": 1, "x": long }),
        json!({ "image": long }),
        json!({ "image": "x", "resources": long }),
        json!({ "image": "x", "env": { long.clone(): 1 } }),
        json!({ "image": "x", "metadata": { "k": long } }),
    ] {
        let message = made(body.to_string().as_bytes()).unwrap_err().to_string();
        assert!(message.len() < 400, "{message}");
    }
}

#[test]
fn nesting_is_bounded_and_costs_no_stack() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| {
            format!("{{\"image\":\"x\",\"deep\":{}1{}}}", open.repeat(depth), close.repeat(depth))
        };
        assert!(made(nested(63).as_bytes()).is_ok());
        let refusal = made(nested(64).as_bytes()).unwrap_err().to_string();
        assert_eq!(refusal, "the body is nested too deeply; allowed: at most 64 levels");
        assert_eq!(made(nested(1_000_000).as_bytes()).unwrap_err().to_string(), refusal);
        // Without an end it is no JSON either.
        assert!(made(open.repeat(1_000_000).as_bytes()).is_err());
    }
    let brackets_in_text = json!({ "image": "x", "deep": "[{\"\\".repeat(1000) });
    assert!(made(brackets_in_text.to_string().as_bytes()).is_ok());
}

#[test]
fn maps_and_lists_of_any_size_are_refused_by_their_count() {
    let map: BTreeMap<String, &str> = (0..20_000).map(|index| (index.to_string(), "")).collect();
    let refusal = made(json!({ "image": "x", "env": map }).to_string().as_bytes()).unwrap_err();
    assert_eq!(refusal.to_string(), "env is longer than 10000 entries; allowed: fewer entries");
    assert_eq!(code(&refusal), "INVALID_CONFIG");
    let body = json!({ "image": "x", "network": { "egress": { "allow": vec!["a.b"; 10_001] } } }).to_string();
    assert!(
        made(body.as_bytes())
            .unwrap_err()
            .to_string()
            .starts_with("network.egress.allow is longer than 10000")
    );
    let body = json!({ "image": "x", "network": { "egress": { "allow": vec!["a.b"; 1001] } } }).to_string();
    assert!(made(body.as_bytes()).unwrap_err().to_string().contains("at most 1000"));
    let unknown = |count: usize| {
        let names: BTreeMap<String, u8> = (0..count).map(|index| (format!("field{index}"), 0)).collect();
        let mut body = json!(names);
        body["image"] = json!("x");
        made(body.to_string().as_bytes())
    };
    assert!(unknown(1000).is_ok(), "fields that nobody asks for are passed over");
    let refusal = unknown(1001).unwrap_err();
    let expected = "body is an object with more than 1000 unknown fields; allowed: fewer unknown fields";
    assert_eq!((refusal.to_string().as_str(), code(&refusal)), (expected, "INVALID_CONFIG"));
    // They are counted in the whole body.
    let event = |count: usize| {
        let names: BTreeMap<String, u8> = (0..count).map(|index| (format!("field{index}"), 0)).collect();
        let mut event = json!(names);
        event["type"] = json!("agent.thinking");
        event["runId"] = json!("r");
        event
    };
    let events = |counts: &[usize]| {
        let body: Vec<_> = counts.iter().map(|count| event(*count)).collect();
        EventsBody::read(json!(body).to_string().as_bytes(), &())
    };
    assert!(events(&[400, 600]).is_ok());
    assert_eq!(events(&[400, 600, 1]).unwrap_err().to_string(), expected);
}

#[test]
fn a_query_is_read() {
    let query =
        list(Some("state=paused&image=node%3A22&limit=5&offset=10&metadata.userId=a+b%2B%C3%BC&x=%25&&y"));
    let query = query.unwrap();
    assert_eq!(query.state, Some(api::SandboxState::Paused));
    assert_eq!((query.image.as_deref(), query.limit, query.offset), (Some("node:22"), 5, 10));
    assert_eq!(query.metadata["userId"], "a b+ü");
    for empty in [None, Some(""), Some("&"), Some("limitt=5&Limit=7")] {
        let query = list(empty).unwrap();
        assert_eq!((query.limit, query.offset, query.state), (20, 0, None));
    }
}

#[test]
fn a_query_error_names_the_parameter() {
    let encoded =
        "; allowed: percent-encoded UTF-8: '%' and two hexadecimal digits, '%25' for a percent sign";
    for (query, message) in [
        ("limit=0", "limit is '0'; allowed: a whole number from 1 to 100"),
        ("limit=101", "limit is '101'; allowed: a whole number from 1 to 100"),
        ("limit", "limit is ''; allowed: a whole number from 1 to 100"),
        ("limit=1e1", "limit is '1e1'; allowed: a whole number from 1 to 100"),
        ("limit=5.0", "limit is '5.0'; allowed: a whole number from 1 to 100"),
        ("limit=+5", "limit is ' 5'; allowed: a whole number from 1 to 100"),
        ("limit=99999999999999999999999999", "limit is '99999999999999999999999999'; allowed:"),
        ("limit=5&limit=5", "limit is given twice, '5' and '5'; allowed: one value"),
        ("limit=5&%6cimit=6", "limit is given twice, '5' and '6'; allowed: one value"),
        ("offset=-1", "offset is '-1'; allowed: a whole number from 0 to 9007199254740991"),
        ("state=creating", "state is 'creating'; allowed: 'running', 'paused' or 'terminated'"),
        ("state=Running", "state is 'Running'; allowed:"),
        ("state=%0d%0aX:y", r"state is '\r\nX:y'; allowed:"),
        ("metadata.=x", "name of a parameter is 'metadata.'; allowed: a key after the dot"),
        ("metadata.a=1&metadata.a=2", "metadata.a is given twice, '1' and '2'; allowed: one value"),
        ("image=%", &format!("image is '%'{encoded}")),
        ("image=%2", &format!("image is '%2'{encoded}")),
        ("image=%zz", &format!("image is '%zz'{encoded}")),
        ("image=%+1", &format!("image is '%+1'{encoded}")),
        ("image=%ff", &format!("image is '%ff'{encoded}")),
        ("image=%c0%80", &format!("image is '%c0%80'{encoded}")),
        ("%ff=1", &format!("name of a parameter is '%ff'{encoded}")),
    ] {
        let refusal = list(Some(query)).expect_err(query);
        assert_eq!(code(&refusal), "INVALID_REQUEST");
        let got = refusal.to_string();
        assert!(got.starts_with(message), "{query}\n got: {got}\nwant: {message}");
    }
}

#[test]
fn a_segment_that_cannot_be_decoded_is_none() {
    assert_eq!(path_segment("sb_abcdefgh").as_deref(), Some("sb_abcdefgh"));
    assert_eq!(path_segment("%2e%2E").as_deref(), Some(".."));
    assert_eq!(path_segment("a+b").as_deref(), Some("a+b"));
    for text in ["%", "%zz", "%ff", "a%0"] {
        assert_eq!(path_segment(text), None, "{text}");
    }
}

#[test]
fn only_valid_json_is_parsed() {
    let check = |types: &[&str]| json_content(types.iter().map(|text| text.as_bytes()), []);
    for good in [
        "application/json",
        "Application/JSON",
        "application/json;charset=utf-8",
        "application/json ; Charset=\"UTF-8\"",
        "application/json;",
        "application/json; version=1",
    ] {
        assert_eq!(check(&[good]), Ok(()), "{good}");
    }
    for bad in [
        "",
        "text/plain",
        "application/jsonp",
        "application/problem+json",
        "application/json; charset=latin1",
        "application/json; charset",
        "application/json, text/plain",
        "*/*",
        "application/x-www-form-urlencoded",
    ] {
        let refusal = check(&[bad]).unwrap_err().to_string();
        assert_eq!(
            refusal,
            format!(
                "header Content-Type is {}; allowed: {}",
                rules::quoted(bad),
                "'application/json', with 'charset=utf-8' or without"
            )
        );
    }
    assert!(check(&[]).unwrap_err().to_string().starts_with("header Content-Type is missing"));
    assert!(
        check(&["application/json", "application/json"]).unwrap_err().to_string().contains("given twice")
    );
    assert!(json_content([&b"\xff"[..]], []).is_err());
    let packed = json_content([&b"application/json"[..]], [&b"gzip"[..]]).unwrap_err().to_string();
    assert_eq!(
        packed,
        "header Content-Encoding is 'gzip'; allowed: no such header; send the body without encoding"
    );
    assert_eq!(json_content([&b"application/json"[..]], [&b"identity"[..]]), Ok(()));
}

#[test]
fn a_stream_is_what_accept_asks_for() {
    let wants = |accepts: &[&str]| wants_stream(accepts.iter().map(|text| text.as_bytes()));
    for yes in [
        "text/event-stream",
        "Text/Event-Stream;q=0.5",
        "application/json, text/event-stream",
        "text/event-stream ; x=1",
    ] {
        assert!(wants(&[yes]), "{yes}");
    }
    assert!(wants(&["application/json", "text/event-stream"]));
    for no in [
        "",
        "*/*",
        "text/*",
        "application/json",
        "text/event-stream;q=0",
        "text/event-stream; Q=0.000",
        "text/event-streams",
        "x, y",
    ] {
        assert!(!wants(&[no]), "{no}");
    }
    assert!(!wants(&[]));
}

#[test]
fn a_page_is_for_clients_that_name_html() {
    let wants = |accept: &str| wants_page([accept.as_bytes()]);
    assert!(wants("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
    for no in ["", "*/*", "text/*", "application/json", "text/html;q=0", "text/event-stream"] {
        assert!(!wants(no), "{no}");
    }
}

/// Anything, and more often something that nearly is a body.
fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let names = prop::sample::select(vec![
        "image",
        "resources",
        "cpu",
        "memoryMb",
        "env",
        "timeoutMs",
        "metadata",
        "network",
        "egress",
        "ingress",
        "allow",
        "allowPorts",
        "default",
        "command",
        "stdin",
        "autoResume",
        "cwd",
        "x",
    ]);
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        "-?[0-9]{1,50}(\\.[0-9]{1,5})?([eE][+-]?[0-9]{1,30})?",
        any::<String>().prop_map(|text| json!(text).to_string()),
        "\"[\\\\ud8c0-f\"]{0,9}\"",
        Just("NaN".to_owned()),
    ];
    let value = leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(|all| format!("[{}]", all.join(","))),
            prop::collection::vec((names.clone(), inner), 0..6).prop_map(|all| {
                let all: Vec<_> = all.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
                format!("{{{}}}", all.join(" ,"))
            }),
        ]
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        value.clone().prop_map(String::into_bytes),
        (value, any::<u8>(), any::<prop::sample::Index>()).prop_map(|(text, byte, at)| {
            let mut bytes = text.into_bytes();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        }),
    ]
}

proptest! {
    #[test]
    fn any_body_parses_or_is_refused(body in bodies()) {
        for refusal in [made(&body).err(), ordered(&body).err()].into_iter().flatten() {
            let message = refusal.to_string();
            prop_assert!(message.len() < 1000 && !message.contains(char::is_control), "{:?}", message);
        }
        // What is no JSON to serde_json is none to us. It holds numbers in floats, so it refuses what is none to it.
        let known = serde_json::from_slice::<Value>(&body);
        if let Err(error) = &known
            && !error.to_string().contains("number out of range")
        {
            prop_assert!(made(&body).is_err() && ordered(&body).is_err());
        }
    }

    #[test]
    fn any_query_parses_or_is_refused(query in "[a-z%.=&+0-9\u{fc}-]{0,60}") {
        if let Err(refusal) = list(Some(&query)) {
            let message = refusal.to_string();
            prop_assert!(!message.contains(char::is_control), "{:?}", message);
        }
    }

    #[test]
    fn a_query_is_what_was_encoded(value in any::<String>()) {
        let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let query = list(Some(&format!("metadata.k={encoded}"))).unwrap();
        prop_assert_eq!(&query.metadata["k"], &value);
    }

    #[test]
    fn a_command_is_what_was_sent(command in "[^\0]{0,200}", stdin in any::<String>()) {
        let body = json!({ "stdin": stdin, "command": command }).to_string();
        let request = ordered(body.as_bytes()).unwrap();
        prop_assert_eq!((request.command, request.stdin), (command, Some(stdin)));
    }
}

mod typing_errors;
mod unknown;

mod events {
    use api::{EventKind, Timestamp};
    use serde_json::json;

    use super::posted_events;
    use crate::RequestRefusal;

    fn refusal(body: &str) -> (bool, String) {
        let refusal = posted_events(body.as_bytes()).unwrap_err();
        (matches!(refusal, RequestRefusal::Config(_)), refusal.to_string())
    }

    #[test]
    fn one_and_several_are_read() {
        let one = r#"{"type": "agent.tool_call", "runId": "run-1", "data": {"tool": "search", "n": [1, null]}, "timestamp": "1970-01-01T00:00:01Z", "more": 1}"#;
        let [event] = posted_events(one.as_bytes()).unwrap().try_into().unwrap();
        assert_eq!((event.kind, event.run_id.as_str()), (EventKind::AgentToolCall, "run-1"));
        assert_eq!(event.timestamp, Some(Timestamp(1000)));
        assert_eq!(serde_json::Value::from(event.data), json!({ "tool": "search", "n": [1, null] }));
        let several = posted_events(
            br#"[{"type":"cost.llm","runId":"r"},{"type":"agent.error","runId":"r","data":{}}]"#,
        );
        let several = several.unwrap();
        assert_eq!((several.len(), several[0].timestamp, several[0].data.len()), (2, None, 0));
    }

    #[test]
    fn invalid_event_bodies_name_the_field() {
        let event = r#"{"type":"cost.llm","runId":"r"}"#;
        let large = format!(r#"{{"type":"cost.llm","runId":"r","data":{{"a":"{}"}}}}"#, "x".repeat(16 << 10));
        for (body, is_config, expected) in [
            ("", false, "the body is empty"),
            ("7", false, "body is the number 7; allowed: an object, or an array of objects"),
            ("[]", true, "body is an array of 0 entries; allowed: 1 to 100 entries"),
            (
                &format!("[{}{event}]", format!("{event},").repeat(100)),
                true,
                "body is an array of 101 entries",
            ),
            ("[1]", false, "[0] is the number 1; allowed: an object"),
            (r#"{"runId":"r"}"#, false, "type is missing"),
            (r#"{"type":"agent.dancing","runId":"r"}"#, true, "type is 'agent.dancing'; allowed: agent."),
            (r#"{"type":7,"runId":"r"}"#, false, "type is the number 7"),
            (r#"{"type":"exec.completed","runId":"r"}"#, true, "type is 'exec.completed'; allowed: agent."),
            (&format!(r#"[{event},{{"type":"cost.llm"}}]"#), false, "[1].runId is missing"),
            (r#"{"type":"cost.llm","runId":"a b"}"#, false, "runId is the string 'a b'"),
            (r#"{"type":"cost.llm","runId":null}"#, false, "runId is null"),
            (r#"{"type":"cost.llm","runId":"r","data":[]}"#, false, "data is an array; allowed: an object"),
            (r#"{"type":"cost.llm","runId":"r","timestamp":"now"}"#, false, "timestamp is the string 'now'"),
            (r#"{"type":"cost.llm","runId":"r","runId":"s"}"#, false, "runId is given twice"),
            (&large, true, "data is 16392 bytes of JSON; allowed: at most 16384 bytes"),
        ] {
            let (was_config, message) = refusal(body);
            assert!(message.contains(expected), "{message}");
            assert_eq!(was_config, is_config, "{message}");
        }
    }
}

mod bodies {
    use api::{CommandBody, ExposeBody, PortVisibility, SignalBody, TerminalBody, TokenBody};
    use rules::{ExecuteRules, ExposeRequest};

    use crate::{RequestBody, RequestRefusal, ValidatedCommand};

    fn expose(body: &[u8]) -> Result<ExposeRequest, RequestRefusal> {
        ExposeBody::read(body, &())
    }

    fn port_token(body: &[u8]) -> Result<u64, RequestRefusal> {
        TokenBody::read(body, &())
    }

    #[test]
    fn a_text_outside_a_set_is_shown_cut_and_escaped() {
        let text = format!("\u{1b}[31m\r\n{}", "x".repeat(10_000));
        let body = serde_json::json!({ "port": 80, "visibility": text }).to_string();
        let message = expose(body.as_bytes()).unwrap_err().to_string();
        assert!(message.starts_with(r"visibility is '\u{1b}[31m\r\nxxx"), "{message}");
        assert!(
            message.len() < 200 && message.contains("xxx...'; allowed: 'private' or 'public'"),
            "{message}"
        );
    }

    #[test]
    fn signals_are_read_by_their_names() {
        let signal = |body: &str| SignalBody::read(body.as_bytes(), &());
        assert_eq!(signal(r#"{"signal":"SIGINT"}"#), Ok(2));
        for body in [r#"{"signal":"INT"}"#, r#"{"signal":2}"#, r#"{}"#, r#"{"signal":"SIGRTMIN"}"#] {
            assert!(signal(body).is_err(), "{body}");
        }
    }

    fn detached(body: &str) -> Result<ValidatedCommand, RequestRefusal> {
        CommandBody::read(body.as_bytes(), &ExecuteRules::default())
    }

    #[test]
    fn a_command_is_detached_when_it_says_so() {
        let body = r#"{"command":"true","timeoutMs":400000,"detached":true,"openStdin":true}"#;
        let Ok(ValidatedCommand::Detached(command)) = detached(body) else { panic!() };
        assert_eq!((command.timeout_ms, command.open_stdin), (Some(400_000), true));
        for attached in [r#"{"command":"true"}"#, r#"{"command":"true","detached":false,"openStdin":7}"#] {
            assert!(matches!(detached(attached), Ok(ValidatedCommand::Attached(_))), "{attached}");
        }
        for wrong in [
            r#"{"detached":true}"#,
            r#"{"command":"true","detached":1}"#,
            r#"{"command":"true","detached":null}"#,
            r#"{"command":"true","detached":true,"openStdin":"yes"}"#,
            r#"{"command":"true","detached":true,"timeoutMs":0}"#,
            r#"{"command":"true","timeoutMs":400000}"#,
        ] {
            assert!(detached(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_terminal_needs_nothing_and_takes_no_stdin() {
        let rules = ExecuteRules::default();
        let command = TerminalBody::read(br#"{"stdin":"x"}"#, &rules).unwrap();
        assert_eq!((command.request.command.as_str(), command.request.stdin), ("", None));
        assert!(
            TerminalBody::read(br#"{"cols":0}"#, &rules).is_err()
                && TerminalBody::read(b"[]", &rules).is_err()
        );
    }

    #[test]
    fn absent_fields_get_defaults() {
        let request = expose(br#"{"port": 8080}"#).unwrap();
        assert_eq!(
            request,
            ExposeRequest { port: 8080, visibility: PortVisibility::Private, auto_resume: true }
        );
        let request =
            expose(br#"{"port": 1, "visibility": "public", "autoResume": false, "x": []}"#).unwrap();
        assert_eq!(
            request,
            ExposeRequest { port: 1, visibility: PortVisibility::Public, auto_resume: false }
        );
        assert_eq!(port_token(b"{}"), Ok(3_600_000));
        assert_eq!(port_token(br#"{"expiresInMs": 1000}"#), Ok(1000));
    }

    #[test]
    fn wrong_types_and_wrong_values_are_distinguished() {
        for malformed in
            ["", "[]", "{}", r#"{"port": "80"}"#, r#"{"port": null}"#, r#"{"port": 80, "autoResume": 1}"#]
        {
            let refusal = expose(malformed.as_bytes()).unwrap_err();
            assert!(!matches!(refusal, RequestRefusal::Config(_)), "{malformed}: {refusal}");
        }
        for wrong in [r#"{"port": 0}"#, r#"{"port": 65536}"#, r#"{"port": 80, "visibility": "open"}"#] {
            let refusal = expose(wrong.as_bytes()).unwrap_err();
            assert!(matches!(refusal, RequestRefusal::Config(_)), "{wrong}: {refusal}");
        }
        assert!(matches!(port_token(br#"{"expiresInMs": 1}"#), Err(RequestRefusal::Config(_))));
        assert!(matches!(port_token(br#"{"expiresInMs": "1s"}"#), Err(RequestRefusal::Field(_))));
    }
}
