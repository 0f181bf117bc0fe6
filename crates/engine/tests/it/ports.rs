//! Exposed ports: their records, their ends, and connections to them.

use api::{CreateIngress, CreateNetwork, IngressPolicy, PortVisibility, SandboxConfig, SandboxState};
use engine::{AgentError, EngineError, SandboxError};
use rules::{ConfigRules, ExposeRequest, MAX_PORTS, OperationRefusal, PortRefusal, network_change};
use store::Store;

use crate::harness::{Harness, START, config, pass, settings, settle, two_daemons};

fn request(port: u16) -> ExposeRequest {
    ExposeRequest { port, visibility: PortVisibility::Private, auto_resume: true }
}

fn only(ports: &[u16]) -> rules::NetworkChange {
    let allow_ports = Some(ports.iter().map(|port| (*port).into()).collect());
    let body = CreateNetwork { egress: None, ingress: Some(CreateIngress { allow_ports }) };
    network_change(body, &ConfigRules::default()).unwrap()
}

fn numbers(ports: &[store::ExposedPort]) -> Vec<u16> {
    ports.iter().map(|port| port.port).collect()
}

#[tokio::test(start_paused = true)]
async fn ports_are_sorted_and_each_exposure_is_distinct() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let first = harness.engine.sandbox("test", &id).expose(request(8080), None).await.unwrap();
    pass(5).await;
    harness.engine.sandbox("test", &id).expose(request(80), None).await.unwrap();
    let again = harness.engine.sandbox("test", &id).expose(request(8080), None).await.unwrap();
    assert!(again.seal != first.seal && again.exposed_at > first.exposed_at);
    assert_eq!(numbers(&harness.engine.sandbox("test", &id).ports().await.unwrap()), [80, 8080]);
    assert_eq!(harness.engine.sandbox("test", &id).port(8080).await.unwrap(), again);
    harness.engine.sandbox("test", &id).close_port(8080, None).await.unwrap();
    for port in [8080, 81] {
        let refused = harness.engine.sandbox("test", &id).close_port(port, None).await;
        assert!(matches!(refused, Err(EngineError::Port(PortRefusal::NotExposed { .. }))), "{refused:?}");
    }
    let ports =
        harness.kinds(&id).await.into_iter().filter(|kind| kind.starts_with("port.")).collect::<Vec<_>>();
    assert_eq!(ports, ["port.exposed", "port.exposed", "port.exposed", "port.closed"]);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_exposure_ends_with_a_close_a_new_exposure_or_the_sandbox() {
    let harness = Harness::new(settings()).await;
    for end in 0..4 {
        let id = harness.create().await;
        harness.engine.sandbox("test", &id).expose(request(80), None).await.unwrap();
        let exposure = harness.engine.exposure(&id, 80).unwrap();
        let ended = tokio::spawn(exposure.ended());
        // A change of another port does not end it.
        harness.engine.sandbox("test", &id).expose(request(81), None).await.unwrap();
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        settle().await;
        assert!(!ended.is_finished());
        match end {
            0 => drop(harness.engine.sandbox("test", &id).close_port(80, None).await.unwrap()),
            1 => drop(harness.engine.sandbox("test", &id).expose(request(80), None).await.unwrap()),
            2 => drop(harness.engine.sandbox("test", &id).change_network(only(&[81])).await.unwrap()),
            _ => drop(harness.engine.sandbox("test", &id).terminate("request").await.unwrap()),
        }
        settle().await;
        assert!(ended.is_finished(), "{end}");
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn exposures_respect_the_policy_and_the_limit() {
    let harness = Harness::new(settings()).await;
    let mut limited = config();
    limited.network.ingress = Some(IngressPolicy { allow_ports: vec![80, 81] });
    let id = harness.create_with(SandboxConfig { ..limited }).await.unwrap();
    let refused = harness.engine.sandbox("test", &id).expose(request(82), None).await;
    assert!(
        matches!(refused, Err(EngineError::Port(PortRefusal::NotAllowed { port: 82, .. }))),
        "{refused:?}"
    );
    for port in [80, 81] {
        harness.engine.sandbox("test", &id).expose(request(port), None).await.unwrap();
    }
    // If the commit fails, no port is closed.
    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).change_network(only(&[81])).await.unwrap_err();
    assert_eq!(numbers(&harness.engine.sandbox("test", &id).ports().await.unwrap()), [80, 81]);
    harness.engine.sandbox("test", &id).change_network(only(&[81])).await.unwrap();
    assert_eq!(numbers(&harness.engine.sandbox("test", &id).ports().await.unwrap()), [81]);
    let last = harness.events(&id).await.pop().unwrap();
    assert_eq!(
        (last.kind.as_str(), last.data),
        ("port.closed", serde_json::json!({ "port": 80, "reason": "network" }))
    );

    let id = harness.create().await;
    for port in 1..=MAX_PORTS as u16 {
        harness.engine.sandbox("test", &id).expose(request(port), None).await.unwrap();
    }
    let refused = harness.engine.sandbox("test", &id).expose(request(9999), None).await;
    assert!(matches!(refused, Err(EngineError::Port(PortRefusal::TooMany { .. }))), "{refused:?}");
    harness.engine.sandbox("test", &id).expose(request(1), None).await.unwrap();
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn traffic_resumes_if_the_port_allows() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(SandboxConfig { idle_timeout_ms: 1000, ..config() }).await.unwrap();
    harness.engine.sandbox("test", &id).expose(request(80), None).await.unwrap();
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    let exposure = harness.engine.exposure(&id, 80).unwrap();
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    // No process listens on the port; the sandbox was resumed to connect.
    let refused = harness.engine.connect_port(&exposure).await.err().unwrap();
    assert!(matches!(refused, EngineError::Agent(AgentError::PortUnreachable { .. })), "{refused:?}");
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    pass(2000).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));

    let asleep = ExposeRequest { auto_resume: false, ..request(81) };
    harness.engine.sandbox("test", &id).expose(asleep, None).await.unwrap();
    let exposure = harness.engine.exposure(&id, 81).unwrap();
    let refused = harness.engine.connect_port(&exposure).await.err().unwrap();
    assert!(
        matches!(refused, EngineError::Sandbox(SandboxError::Refused(OperationRefusal::InvalidState { .. }))),
        "{refused:?}"
    );
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.assert_clean().await;
}

#[test]
fn ports_outlive_the_daemon_and_end_with_the_sandbox() {
    let first = async |harness: &Harness| {
        let (kept, gone) = (harness.create().await, harness.create().await);
        for id in [&kept, &gone] {
            harness.engine.sandbox("test", id).expose(request(80), None).await.unwrap();
        }
        let port = harness.engine.sandbox("test", &kept).port(80).await.unwrap();
        harness.engine.sandbox("test", &gone).terminate("request").await.unwrap();
        assert!(harness.engine.exposure(&gone, 80).is_err());
        (kept, gone, port)
    };
    two_daemons(
        (settings(), first),
        (settings(), async |harness: &Harness, (kept, gone, port)| {
            assert_eq!(harness.engine.exposure(&kept, 80).unwrap().port, port);
            assert!(port.exposed_at >= START && harness.engine.exposure(&gone, 80).is_err());
            assert_eq!(harness.store.get(&gone).await.unwrap().unwrap().ports, []);
            harness.assert_clean().await;
        }),
    );
}
