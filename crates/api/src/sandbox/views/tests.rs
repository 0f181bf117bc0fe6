use serde_json::{Value, json};

use super::*;
use crate::{EgressDefault, EgressPolicy, IngressPolicy};

fn id() -> SandboxId {
    "sb_abcdefgh".parse().unwrap()
}

fn config() -> SandboxConfig {
    SandboxConfig {
        image: "node:22".into(),
        resources: Resources { cpu: 2, memory_mb: 4096, disk_mb: 10_240 },
        env: [("A".to_owned(), "1".to_owned())].into(),
        workdir: "/workspace".into(),
        timeout_ms: 300_000,
        idle_timeout_ms: 120_000,
        on_timeout: OnTimeout::Terminate,
        processes_at_timeout: crate::ProcessesAtTimeout::Kept,
        auto_resume: true,
        metadata: [("userId".to_owned(), "7".to_owned())].into(),
        network: NetworkPolicy {
            egress: EgressPolicy {
                allow: vec!["example.com".into()],
                default: EgressDefault::Deny,
                ..EgressPolicy::default()
            },
            ingress: None,
        },
        isolation: Isolation::Gvisor,
        default_user: false,
        extensions: BTreeMap::new(),
    }
}

/// Of a sandbox that went through every state.
fn times() -> Times {
    Times {
        hibernated: None,
        created: Timestamp(1),
        started: Some(Timestamp(2)),
        paused: Some(Timestamp(3)),
        terminated: Some(Timestamp(4)),
        expires: Some(Timestamp(5)),
    }
}

fn at(ms: u64) -> Value {
    json!(format!("1970-01-01T00:00:00.00{ms}Z"))
}

#[test]
fn a_view_has_every_name_of_the_specification() {
    let times = Times { terminated: None, expires: None, ..times() };
    let view = SandboxView::new(id(), SandboxState::Paused, config(), times);
    let expected = json!({
        "id": "sb_abcdefgh",
        "state": "paused",
        "image": "node:22",
        "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240},
        "env": {"A": "1"},
        "workdir": "/workspace",
        "timeoutMs": 300000,
        "idleTimeoutMs": 120000,
        "onTimeout": "terminate",
        "autoResume": true,
        "metadata": {"userId": "7"},
        "network": {"egress": {"allow": ["example.com"], "default": "deny"}},
        "isolation": "gvisor",
        "createdAt": at(1),
        "startedAt": at(2),
        "pausedAt": at(3),
    });
    assert_eq!(serde_json::to_value(&view).unwrap(), expected);
    assert_eq!(serde_json::from_value::<SandboxView>(expected).unwrap(), view);
}

#[test]
fn the_name_is_a_field_and_no_tag() {
    let mut named = config();
    named.metadata.insert(NAME_KEY.to_owned(), "web".to_owned());
    assert_eq!((named.name(), config().name()), (Some("web"), None));
    let view = SandboxView::new(id(), SandboxState::Running, named, times());
    assert_eq!((view.name.as_deref(), &view.metadata), (Some("web"), &config().metadata));
    let item = SandboxItem::new(id(), SandboxState::Running, "node:22".to_owned(), view.resources, times());
    assert_eq!(item.name, None);
    assert_eq!(item.with_details(view).name.as_deref(), Some("web"));
}

#[test]
fn a_view_of_an_earlier_service_has_the_defaults() {
    let config = SandboxConfig { isolation: Isolation::Container, ..config() };
    let view = SandboxView::new(id(), SandboxState::Running, config, Times { expires: None, ..times() });
    let mut json = serde_json::to_value(&view).unwrap();
    let fields = json.as_object_mut().unwrap();
    for added in ["onTimeout", "autoResume", "isolation"] {
        assert!(fields.remove(added).is_some(), "{added}");
    }
    assert_eq!(serde_json::from_value::<SandboxView>(json).unwrap(), view);
}

#[test]
fn inapplicable_fields_are_absent_and_read_from_null() {
    let view = SandboxView::new(id(), SandboxState::Running, config(), Times { terminated: None, ..times() });
    let mut json = serde_json::to_value(&view).unwrap();
    assert_eq!((json.get("pausedAt"), json.get("terminatedAt")), (None, None));
    assert_eq!(json["expiresAt"], at(5));
    json["pausedAt"] = Value::Null;
    json["terminatedAt"] = Value::Null;
    json["addedLater"] = json!(1);
    assert_eq!(serde_json::from_value::<SandboxView>(json).unwrap(), view);
}

#[test]
fn ingress_is_optional_in_views_and_records() {
    let mut config = config();
    let old = serde_json::to_value(&config).unwrap();
    assert_eq!(old["network"].get("ingress"), None);
    assert_eq!(serde_json::from_value::<SandboxConfig>(old).unwrap(), config);
    config.network.ingress = Some(IngressPolicy { allow_ports: vec![3000, 8080] });
    let new = serde_json::to_value(&config).unwrap();
    assert_eq!(new["network"]["ingress"], json!({"allowPorts": [3000, 8080]}));
    assert_eq!(serde_json::from_value::<SandboxConfig>(new).unwrap(), config);
}

#[test]
fn an_item_shows_the_time_of_its_state() {
    for (state, name, ms) in [
        (SandboxState::Running, "startedAt", 2),
        (SandboxState::Paused, "pausedAt", 3),
        (SandboxState::Terminated, "terminatedAt", 4),
    ] {
        let item = SandboxItem::new(id(), state, "node:22".into(), config().resources, times());
        let mut expected = json!({
            "id": "sb_abcdefgh",
            "state": state.to_string(),
            "image": "node:22",
            "resources": {"cpu": 2, "memoryMb": 4096, "diskMb": 10240},
            "createdAt": at(1),
        });
        expected[name] = at(ms);
        assert_eq!(serde_json::to_value(&item).unwrap(), expected);
        assert_eq!(serde_json::from_value::<SandboxItem>(expected).unwrap(), item);
    }
}

#[test]
fn details_of_an_item_are_those_of_the_sandbox() {
    let config = SandboxConfig { metadata: [("job".to_owned(), "7".to_owned())].into(), ..config() };
    let times = Times { expires: Some(Timestamp(9)), hibernated: Some(Timestamp(8)), ..times() };
    let item = SandboxItem::new(id(), SandboxState::Paused, "node:22".into(), config.resources, times);
    let item = item.with_details(SandboxView::new(id(), SandboxState::Paused, config, times));
    let json = serde_json::to_value(&item).unwrap();
    assert_eq!(
        (&json["isolation"], &json["metadata"], &json["hibernatedAt"], &json["expiresAt"]),
        (&json!("gvisor"), &json!({"job": "7"}), &json!(at(8)), &json!(at(9)))
    );
    assert_eq!(serde_json::from_value::<SandboxItem>(json).unwrap(), item);
}

#[test]
fn a_terminated_item_has_its_name_its_tags_and_the_reason() {
    let item =
        SandboxItem::new(id(), SandboxState::Terminated, "node:22".into(), config().resources, times());
    let metadata = [(NAME_KEY, "web"), ("job", "7")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    let json = serde_json::to_value(item.with_end(metadata.into(), "timeout".to_owned())).unwrap();
    assert_eq!(
        (&json["name"], &json["metadata"], &json["reason"]),
        (&json!("web"), &json!({"job": "7"}), &json!("timeout"))
    );
}

#[test]
fn pagination_has_more() {
    for (total, limit, offset, has_more) in [
        (0, 20, 0, false),
        (20, 20, 0, false),
        (21, 20, 0, true),
        (21, 20, 1, false),
        (21, 20, 100, false),
        (u64::MAX, 100, u64::MAX, false),
    ] {
        assert_eq!(Pagination::new(total, limit, offset).has_more, has_more, "{total} {limit} {offset}");
    }
    let list = SandboxList { data: Vec::new(), pagination: Pagination::new(3, 2, 0) };
    assert_eq!(
        serde_json::to_value(&list).unwrap(),
        json!({"data": [], "pagination": {"total": 3, "limit": 2, "offset": 0, "hasMore": true}})
    );
}

#[test]
fn results_have_the_names_of_the_specification() {
    let pause = PauseResult {
        id: id(),
        state: SandboxState::Paused,
        paused_at: Timestamp(1),
        runtime_duration_ms: 2,
    };
    assert_eq!(
        serde_json::to_value(&pause).unwrap(),
        json!({"id": "sb_abcdefgh", "state": "paused", "pausedAt": at(1), "runtimeDurationMs": 2})
    );
    let resume = ResumeResult {
        id: id(),
        state: SandboxState::Running,
        resumed_at: Timestamp(1),
        paused_duration_ms: 2,
    };
    assert_eq!(
        serde_json::to_value(&resume).unwrap(),
        json!({"id": "sb_abcdefgh", "state": "running", "resumedAt": at(1), "pausedDurationMs": 2})
    );
    let terminate = TerminateResult {
        id: id(),
        state: SandboxState::Terminated,
        terminated_at: Timestamp(1),
        total_runtime_ms: 2,
    };
    assert_eq!(
        serde_json::to_value(&terminate).unwrap(),
        json!({"id": "sb_abcdefgh", "state": "terminated", "terminatedAt": at(1), "totalRuntimeMs": 2})
    );
}

/// A record of an earlier version has no lists of networks; a policy without them is written in its form.
#[test]
fn a_policy_without_networks_has_the_form_of_earlier_versions() {
    let text = r#"{"allow":["example.com"],"default":"deny"}"#;
    let policy: EgressPolicy = serde_json::from_str(text).unwrap();
    assert!(policy.allow_networks.is_empty() && policy.deny_networks.is_empty());
    assert_eq!(serde_json::to_string(&policy).unwrap(), text);
    let listed = EgressPolicy { deny_networks: vec!["203.0.113.0/24".into()], ..policy };
    let value = serde_json::to_value(&listed).unwrap();
    assert_eq!(value["denyNetworks"], json!(["203.0.113.0/24"]));
    assert_eq!(serde_json::from_value::<EgressPolicy>(value).unwrap(), listed);
}
