//! Every typing error in every field of every body is refused. The fields are those that the reader itself finds in the types.

use std::fmt::Debug;

use api::{
    CodeBody, CodeContextBody, CommandBody, CreateBody, CreateNetwork, DetachedBody, EventBody, EventsBody,
    ExecuteBody, ExposeBody, ForkBody, PauseBody, ResumeBody, RollbackBody, SignalBody, SnapshotBody,
    TemplateBody, TerminalBody, TimeoutBody, TokenBody,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::known_fields::trace;
use crate::{RequestBody, RequestRefusal, UnknownField};

/// The names that a mistyped one can become.
fn typing_errors(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut all = vec![
        name.to_uppercase(),
        name.to_lowercase(),
        separated(&chars, '_'),
        separated(&chars, '-'),
        format!("{name}s"),
        name.trim_end_matches('s').to_owned(),
        chars
            .iter()
            .take(1)
            .flat_map(|first| first.to_uppercase())
            .chain(chars[1..].iter().copied())
            .collect(),
    ];
    for at in 0..chars.len() {
        let (mut missing, mut doubled, mut swapped) = (chars.clone(), chars.clone(), chars.clone());
        missing.remove(at);
        doubled.insert(at, chars[at]);
        swapped.swap(at, (at + 1).min(chars.len() - 1));
        all.extend([missing, doubled, swapped].map(|chars| chars.into_iter().collect::<String>()));
    }
    all.retain(|error| error != name);
    all
}

/// `memoryMb` with the separator `_` is `memory_mb`.
fn separated(chars: &[char], separator: char) -> String {
    let words = |c: &char| {
        let boundary = c.is_uppercase().then_some(separator);
        boundary.into_iter().chain(c.to_lowercase()).collect::<Vec<_>>()
    };
    chars.iter().flat_map(words).collect()
}

/// The body with one more field in the object at a path.
fn with_field(base: &Value, object: &[&str], name: &str) -> Value {
    let mut body = base.clone();
    let mut inner = match &mut body {
        Value::Array(elements) => elements.last_mut().unwrap(),
        body => body,
    };
    for step in object {
        inner = &mut inner[*step];
    }
    inner[name] = json!(1);
    body
}

#[track_caller]
fn refused<T: RequestBody<Content: Debug>>(body: &Value, name: &str) -> UnknownField {
    match T::parse(body.to_string().as_bytes()) {
        Err(RequestRefusal::Unknown(field)) => {
            let path = &field.field;
            assert!(path == name || path.ends_with(&format!(".{name}")), "{body}: {field}");
            field
        }
        other => panic!("{body}: {other:?}"),
    }
}

/// `F` is the type of the objects of the body; `base` is a body with the required fields.
fn check<T: RequestBody<Content: Debug>, F: DeserializeOwned>(base: &Value) -> usize {
    let fields = trace::<F>();
    let is_known = |object: &[&str], name: &str| {
        fields.iter().any(|field| field.object() == object && field.name() == name)
    };
    let mut checked = 0;
    for field in &fields {
        let object = field.object();
        for error in typing_errors(field.name()) {
            // It is another field, such as `rows` for `row`.
            if is_known(object, &error) {
                continue;
            }
            refused::<T>(&with_field(base, object, &error), &error);
            checked += 1;
        }
    }
    checked
}

#[test]
fn every_typing_error_in_every_body_is_refused() {
    let command = json!({ "command": "true" });
    let event = json!([{ "type": "agent.thinking", "runId": "r" }]);
    let checked = [
        check::<CreateBody, CreateBody>(&json!({ "image": "x" })),
        check::<CreateNetwork, CreateNetwork>(&json!({})),
        check::<TimeoutBody, TimeoutBody>(&json!({ "timeoutMs": 1 })),
        check::<CommandBody, ExecuteBody>(&command),
        check::<CommandBody, DetachedBody>(&json!({ "command": "true", "detached": true })),
        check::<CodeBody, CodeBody>(&json!({ "code": "1" })),
        check::<CodeContextBody, CodeContextBody>(&json!({})),
        check::<TerminalBody, TerminalBody>(&json!({})),
        check::<SignalBody, SignalBody>(&json!({ "signal": "SIGTERM" })),
        check::<ExposeBody, ExposeBody>(&json!({ "port": 80 })),
        check::<TokenBody, TokenBody>(&json!({})),
        check::<SnapshotBody, SnapshotBody>(&json!({})),
        check::<RollbackBody, RollbackBody>(&json!({ "snapshotId": "x" })),
        check::<ForkBody, ForkBody>(&json!({ "count": 1 })),
        check::<PauseBody, PauseBody>(&json!({})),
        check::<ResumeBody, ResumeBody>(&json!({})),
        check::<TemplateBody, TemplateBody>(&json!({ "name": "a" })),
        check::<EventsBody, EventBody>(&event),
        check::<EventsBody, EventBody>(&event[0]),
    ];
    assert!(checked.iter().all(|checked| *checked > 0), "{checked:?}");
}

/// Every field of a nested object in every object that does not have it.
fn check_places<T: RequestBody<Content: Debug> + DeserializeOwned>(base: &Value) {
    let fields = trace::<T>();
    let mut objects: Vec<&[&'static str]> = fields.iter().map(|field| field.object()).collect();
    objects.dedup();
    let mut elsewhere = 0;
    for field in fields.iter().filter(|field| !field.object().is_empty()) {
        for object in &objects {
            let known: Vec<&str> =
                fields.iter().filter(|other| other.object() == *object).map(|other| other.name()).collect();
            if known.contains(&field.name()) {
                continue;
            }
            let body = with_field(base, object, field.name());
            let unknown = refused::<T>(&body, field.name());
            // A field of the object itself may be as similar.
            let is_here = known.contains(&unknown.meant.name());
            assert!(is_here || unknown.meant.name().ends_with(field.name()), "{body}: {unknown}");
            elsewhere += usize::from(!is_here);
        }
    }
    assert!(elsewhere > 10, "{elsewhere}");
}

#[test]
fn a_field_in_the_wrong_object_is_refused() {
    check_places::<CreateBody>(&json!({ "image": "x" }));
    check_places::<TemplateBody>(&json!({ "name": "a" }));
    for (body, message) in [
        (
            json!({ "image": "x", "egress": { "default": "deny" } }),
            "egress is an unknown field; did you mean 'network.egress'? allowed here: 'image', ",
        ),
        (
            json!({ "image": "x", "network": { "default": "deny" } }),
            "network.default is an unknown field; did you mean 'network.egress.default'? allowed here: 'egress' or 'ingress'",
        ),
        (
            json!({ "image": "x", "resources": { "network": { "egress": {} } } }),
            "resources.network is an unknown field; did you mean 'network'? allowed here: 'cpu', 'memoryMb' or 'diskMb'",
        ),
        (
            json!({ "image": "x", "allow_networks": [] }),
            "allow_networks is an unknown field; did you mean 'network.egress.",
        ),
        (
            json!({ "image": "x", "Memory": 1 }),
            "Memory is an unknown field; did you mean 'resources.memoryMb'? ",
        ),
    ] {
        let text = match CreateBody::parse(body.to_string().as_bytes()) {
            Err(RequestRefusal::Unknown(field)) => field.to_string(),
            other => panic!("{body}: {other:?}"),
        };
        assert!(text.starts_with(message), "{text}");
    }
}

/// More unknown fields than a response lists do not hide one that is refused.
#[test]
fn a_field_in_the_wrong_object_is_found_among_many() {
    let many: String = (0..100).map(|n| format!(r#""field{n}":{n},"#)).collect();
    let parse = |last: &str| CreateBody::parse(format!(r#"{{"image":"x",{many}{last}}}"#).as_bytes());
    assert!(parse(r#""last":0"#).is_ok());
    match parse(r#""egress":{"default":"deny"}"#) {
        Err(RequestRefusal::Unknown(field)) => assert_eq!(field.meant.name(), "network.egress"),
        other => panic!("{other:?}"),
    }
}
