//! Unknown fields: refused, or ignored and listed.

use std::fmt::Debug;

use api::{
    CodeBody, CodeContextBody, CommandBody, CreateBody, CreateNetwork, EventsBody, ExposeBody, ForkBody,
    PauseBody, ResumeBody, RollbackBody, SignalBody, SnapshotBody, TemplateBody, TerminalBody, TimeoutBody,
    TokenBody,
};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};

use crate::{RequestBody, RequestRefusal, UnknownField};

fn ignored<T: RequestBody>(body: &str) -> Option<String> {
    T::parse(body.as_bytes()).unwrap_or_else(|refusal| panic!("{body}: {refusal}")).ignored.header_value()
}

fn refused<T: RequestBody<Content: Debug>>(body: &str) -> UnknownField {
    match T::parse(body.as_bytes()) {
        Err(RequestRefusal::Unknown(field)) => field,
        other => panic!("{body}: {other:?}"),
    }
}

/// A body of create with a field below its objects.
fn create_with(path: &[&str], value: &Value) -> String {
    let nested = path.iter().rev().fold(value.clone(), |inner, name| json!({ (*name): inner }));
    let mut body = json!({ "image": "x" });
    body.as_object_mut().unwrap().extend(nested.as_object().unwrap().clone());
    body.to_string()
}

#[test]
fn typing_errors_are_refused_in_every_object_of_a_create() {
    for (path, nearest) in [
        (&["imgae"][..], "image"),
        (&["Image"], "image"),
        (&["resource"], "resources"),
        (&["netwrok"], "network"),
        (&["Network"], "network"),
        (&["timeout_ms"], "timeoutMs"),
        (&["idle_timeout_ms"], "idleTimeoutMs"),
        (&["onTimeOut"], "onTimeout"),
        (&["isolaton"], "isolation"),
        (&["meta_data"], "metadata"),
        (&["envs"], "env"),
        (&["resources", "Memorymb"], "memoryMb"),
        (&["resources", "memory"], "memoryMb"),
        (&["resources", "disk_mb"], "diskMb"),
        (&["resources", "CPU"], "cpu"),
        (&["network", "egres"], "egress"),
        (&["network", "Ingress"], "ingress"),
        (&["network", "egress", "defualt"], "default"),
        (&["network", "egress", "Default"], "default"),
        (&["network", "egress", "alow"], "allow"),
        (&["network", "egress", "deny_networks"], "denyNetworks"),
        (&["network", "ingress", "allowPort"], "allowPorts"),
    ] {
        let field = refused::<CreateBody>(&create_with(path, &json!("deny")));
        assert_eq!((field.field.as_str(), field.meant.name()), (path.join(".").as_str(), nearest));
    }
}

#[test]
fn objects_that_bound_a_sandbox_deny_every_unknown_field() {
    for (path, known) in [
        (&["resources", "accelerator"][..], "cpu"),
        (&["network", "firewall"], "ingress"),
        (&["network", "egress", "x"], "allow"),
        (&["network", "ingress", "visibility"], "allowPorts"),
    ] {
        let body = create_with(path, &json!({ "deep": [1] }));
        let field = refused::<CreateBody>(&body);
        assert_eq!((field.field.as_str(), field.meant.name().is_empty()), (path.join(".").as_str(), false));
        assert!(field.allowed.contains(&format!("'{known}'")), "{field}");
        // The same objects in the body of a template.
        let template = body.replace(r#""image":"x""#, r#""name":"x""#);
        assert_eq!(refused::<TemplateBody>(&template).field, path.join("."));
    }
    assert_eq!(refused::<CreateNetwork>(r#"{"usage":{}}"#).field, "usage");
    assert_eq!(refused::<CreateNetwork>(r#"{"egress":{"x":1}}"#).field, "egress.x");
    let message = refused::<CreateBody>(r#"{"image":"x","network":{"egress":{"defualt":"deny"}}}"#);
    assert_eq!(
        message.to_string(),
        "network.egress.defualt is an unknown field; the nearest known one is 'default'; allowed: 'allow', 'default', \
         'allowNetworks' or 'denyNetworks'"
    );
}

#[test]
fn typing_errors_are_refused_in_every_body() {
    for (field, expected) in [
        (refused::<CreateNetwork>(r#"{"egres":{"default":"deny"}}"#), "egres"),
        (refused::<CommandBody>(r#"{"command":"a","evn":{}}"#), "evn"),
        (refused::<CommandBody>(r#"{"command":"a","Detached":true}"#), "Detached"),
        (refused::<CommandBody>(r#"{"command":"a","detached":true,"open_stdin":true}"#), "open_stdin"),
        (refused::<CodeBody>(r#"{"code":"1","contextID":"x"}"#), "contextID"),
        (refused::<CodeContextBody>(r#"{"lang_uage":"python"}"#), "lang_uage"),
        (refused::<TerminalBody>(r#"{"col":80}"#), "col"),
        (refused::<SignalBody>(r#"{"Signal":"SIGTERM"}"#), "Signal"),
        (refused::<ExposeBody>(r#"{"port":80,"visibilty":"private"}"#), "visibilty"),
        (refused::<TokenBody>(r#"{"expiresMs":1000}"#), "expiresMs"),
        (refused::<SnapshotBody>(r#"{"Memory":true}"#), "Memory"),
        (refused::<RollbackBody>(r#"{"snapshotId":"x","snapshotID":"y"}"#), "snapshotID"),
        (refused::<ForkBody>(r#"{"counts":3}"#), "counts"),
        (refused::<PauseBody>(r#"{"hibernat":true}"#), "hibernat"),
        (refused::<ResumeBody>(r#"{"Cold":true}"#), "Cold"),
        (refused::<TimeoutBody>(r#"{"timeoutMS":1}"#), "timeoutMS"),
        (refused::<TemplateBody>(r#"{"name":"a","dockerFile":"FROM a"}"#), "dockerFile"),
        (refused::<TemplateBody>(r#"{"name":"a","resources":{"cpus":2}}"#), "resources.cpus"),
        (refused::<EventsBody>(r#"{"type":"cost.llm","run_id":"r"}"#), "run_id"),
        (refused::<EventsBody>(r#"[{"type":"cost.llm","runId":"r"},{"tpye":"cost.llm"}]"#), "[1].tpye"),
    ] {
        assert_eq!(field.field, expected, "{field}");
    }
}

#[test]
fn other_fields_are_ignored_and_listed() {
    assert_eq!(ignored::<CreateBody>(r#"{"image":"x"}"#), None);
    let listed = |text: &str| Some(text.to_owned());
    let body = r#"{"image":"x","colour":{"deep":[1,null]},"nesting":true,"colour":2,"a,\n\u00fc":0}"#;
    assert_eq!(ignored::<CreateBody>(body), listed(r"colour, nesting, a%2C\n%C3%BC"));
    assert_eq!(ignored::<CommandBody>(r#"{"command":"a","shell":"zsh"}"#), listed("shell"));
    assert_eq!(ignored::<CommandBody>(r#"{"command":"a","openStdin":true}"#), listed("openStdin"));
    let detached = r#"{"command":"a","detached":true,"openStdin":true,"shell":"zsh"}"#;
    assert_eq!(ignored::<CommandBody>(detached), listed("shell"));
    assert_eq!(ignored::<PauseBody>(""), None);
    assert_eq!(ignored::<PauseBody>(r#"{"reason":"x"}"#), listed("reason"));
    let events =
        r#"[{"type":"cost.llm","runId":"r","more":1},{"type":"cost.llm","runId":"r","x":1,"more":1}]"#;
    assert_eq!(ignored::<EventsBody>(events), listed("[0].more, [1].x, [1].more"));
    assert_eq!(ignored::<TemplateBody>(r#"{"name":"a","platform":"arm64"}"#), listed("platform"));
}

#[test]
fn names_in_maps_are_data() {
    let names = json!({ "evn": "1", "Image": "2", "defualt": "3", "x": "4" });
    let body = json!({ "image": "x", "env": names, "metadata": names }).to_string();
    assert_eq!(ignored::<CreateBody>(&body), None);
    let body = json!({ "name": "x", "buildArgs": names, "metadata": names }).to_string();
    assert_eq!(ignored::<TemplateBody>(&body), None);
    let data = json!({ "tpye": { "runid": 1 }, "Data": [] });
    let body = json!({ "type": "cost.llm", "runId": "r", "data": data }).to_string();
    assert_eq!(ignored::<EventsBody>(&body), None);
}

#[test]
fn a_mistyped_field_is_named_before_the_missing_one() {
    let field = refused::<CreateBody>(r#"{"imgae":"ubuntu:24.04"}"#);
    assert_eq!((field.field.as_str(), field.meant.name()), ("imgae", "image"));
}

/// A body is read as an attached command first: no field of the detached one may look like a mistyped one there.
#[test]
fn no_field_of_a_detached_command_is_taken_for_another() {
    let body = api::DetachedBody {
        command: "a".to_owned(),
        detached: true,
        cwd: Some("/".to_owned()),
        env: Some([("A".to_owned(), "1".to_owned())].into()),
        user: Some("root".to_owned()),
        timeout_ms: Some(1),
        stdin: Some(String::new()),
        open_stdin: Some(true),
        auto_resume: Some(true),
        ..api::DetachedBody::default()
    };
    let body = serde_json::to_string(&body).unwrap();
    assert_eq!(ignored::<CommandBody>(&body), None);
}

proptest! {
    /// A body with any additional field is refused for it, or read as if it were absent.
    #[test]
    fn an_additional_field_changes_nothing(name in any::<String>(), value in any::<i64>()) {
        let mut body = json!({ "command": "true", "env": { "A": "1" } });
        let plain = CommandBody::parse(body.to_string().as_bytes()).unwrap();
        if body.get(&name).is_none() {
            body[name.as_str()] = json!(value);
        }
        match CommandBody::parse(body.to_string().as_bytes()) {
            Ok(parsed) => {
                prop_assert_eq!(parsed.content, plain.content);
                prop_assert_eq!(parsed.ignored.header_value().is_some(), body.as_object().unwrap().len() > 2);
            }
            Err(RequestRefusal::Unknown(field)) => prop_assert!(!field.meant.name().is_empty()),
            // A known field with a number.
            Err(RequestRefusal::Field(_)) => {}
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }
}
