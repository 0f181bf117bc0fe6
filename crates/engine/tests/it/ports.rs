//! Exposed ports: what is kept of them, what ends them, and who is let in.

use api::{IngressPolicy, PortVisibility, SandboxConfig, SandboxState};
use engine::{EngineError, LinkError};
use rules::{ConfigRules, ExposeOrder, MAX_PORTS, NetworkInput, PortRefusal, Refusal, network_change};
use store::Store;

use crate::world::{START, World, config, pass, settings, settle, two_daemons};

fn order(port: u16) -> ExposeOrder {
    ExposeOrder { port, visibility: PortVisibility::Private, auto_resume: true }
}

fn only(ports: &[u16]) -> rules::NetworkChange {
    let ports = ports.iter().map(|port| (*port).into()).collect();
    let input = NetworkInput { ingress_allow_ports: Some(ports), ..NetworkInput::default() };
    network_change(input, &ConfigRules::default()).unwrap()
}

fn numbers(ports: &[store::ExposedPort]) -> Vec<u16> {
    ports.iter().map(|port| port.port).collect()
}

#[tokio::test(start_paused = true)]
async fn they_are_kept_in_order_and_each_exposure_is_another() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    let first = world.engine.expose("test", &id, order(8080), None).await.unwrap();
    pass(5).await;
    world.engine.expose("test", &id, order(80), None).await.unwrap();
    let again = world.engine.expose("test", &id, order(8080), None).await.unwrap();
    assert!(again.seal != first.seal && again.exposed_at > first.exposed_at);
    assert_eq!(numbers(&world.engine.ports("test", &id).await.unwrap()), [80, 8080]);
    assert_eq!(world.engine.port("test", &id, 8080).await.unwrap(), again);
    world.engine.close_port("test", &id, 8080, None).await.unwrap();
    for port in [8080, 81] {
        let refused = world.engine.close_port("test", &id, port, None).await;
        assert!(matches!(refused, Err(EngineError::Port(PortRefusal::NotExposed { .. }))), "{refused:?}");
    }
    let ports =
        world.kinds(&id).await.into_iter().filter(|kind| kind.starts_with("port.")).collect::<Vec<_>>();
    assert_eq!(ports, ["port.exposed", "port.exposed", "port.exposed", "port.closed"]);
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_exposure_ends_when_it_is_closed_or_made_anew_or_its_sandbox_ends() {
    let world = World::new(settings()).await;
    for end in 0..4 {
        let id = world.create().await;
        world.engine.expose("test", &id, order(80), None).await.unwrap();
        let exposure = world.engine.exposure(&id, 80).unwrap();
        let over = tokio::spawn(exposure.over());
        // What changes nothing about it does not end it.
        world.engine.expose("test", &id, order(81), None).await.unwrap();
        world.engine.pause("test", &id).await.unwrap();
        settle().await;
        assert!(!over.is_finished());
        match end {
            0 => drop(world.engine.close_port("test", &id, 80, None).await.unwrap()),
            1 => drop(world.engine.expose("test", &id, order(80), None).await.unwrap()),
            2 => drop(world.engine.change_network("test", &id, only(&[81])).await.unwrap()),
            _ => drop(world.engine.terminate("test", &id, "request").await.unwrap()),
        }
        settle().await;
        assert!(over.is_finished(), "{end}");
    }
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_policy_and_a_bound_hold() {
    let world = World::new(settings()).await;
    let mut limited = config();
    limited.network.ingress = Some(IngressPolicy { allow_ports: vec![80, 81] });
    let id = world.create_with(SandboxConfig { ..limited }).await.unwrap();
    let refused = world.engine.expose("test", &id, order(82), None).await;
    assert!(
        matches!(refused, Err(EngineError::Port(PortRefusal::NotAllowed { port: 82, .. }))),
        "{refused:?}"
    );
    for port in [80, 81] {
        world.engine.expose("test", &id, order(port), None).await.unwrap();
    }
    // Where the change cannot be kept, nothing is closed.
    world.fail_next_commit();
    world.engine.change_network("test", &id, only(&[81])).await.unwrap_err();
    assert_eq!(numbers(&world.engine.ports("test", &id).await.unwrap()), [80, 81]);
    world.engine.change_network("test", &id, only(&[81])).await.unwrap();
    assert_eq!(numbers(&world.engine.ports("test", &id).await.unwrap()), [81]);
    let last = world.events(&id).await.pop().unwrap();
    assert_eq!(
        (last.kind.as_str(), last.data),
        ("port.closed", serde_json::json!({ "port": 80, "reason": "network" }))
    );

    let id = world.create().await;
    for port in 1..=MAX_PORTS as u16 {
        world.engine.expose("test", &id, order(port), None).await.unwrap();
    }
    let refused = world.engine.expose("test", &id, order(9999), None).await;
    assert!(matches!(refused, Err(EngineError::Port(PortRefusal::TooMany { .. }))), "{refused:?}");
    world.engine.expose("test", &id, order(1), None).await.unwrap();
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn traffic_wakes_where_it_may() {
    let world = World::new(settings()).await;
    let id = world.create_with(SandboxConfig { idle_timeout_ms: 1000, ..config() }).await.unwrap();
    world.engine.expose("test", &id, order(80), None).await.unwrap();
    world.engine.pause("test", &id).await.unwrap();
    let exposure = world.engine.exposure(&id, 80).unwrap();
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));
    // Nothing listens in this one; it was woken to find out.
    let refused = world.engine.enter_port(&exposure).await.err().unwrap();
    assert!(matches!(refused, EngineError::Agent(LinkError::Refused { .. })), "{refused:?}");
    assert_eq!(world.state(&id).await, Some(SandboxState::Running));
    pass(2000).await;
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));

    let asleep = ExposeOrder { auto_resume: false, ..order(81) };
    world.engine.expose("test", &id, asleep, None).await.unwrap();
    let exposure = world.engine.exposure(&id, 81).unwrap();
    let refused = world.engine.enter_port(&exposure).await.err().unwrap();
    assert!(matches!(refused, EngineError::Refused(Refusal::InvalidState { .. })), "{refused:?}");
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));
    world.is_clean().await;
}

#[test]
fn they_outlive_the_daemon_and_go_with_the_sandbox() {
    let first = async |world: &World| {
        let (kept, gone) = (world.create().await, world.create().await);
        for id in [&kept, &gone] {
            world.engine.expose("test", id, order(80), None).await.unwrap();
        }
        let port = world.engine.port("test", &kept, 80).await.unwrap();
        world.engine.terminate("test", &gone, "request").await.unwrap();
        assert!(world.engine.exposure(&gone, 80).is_err());
        (kept, gone, port)
    };
    two_daemons(
        (settings(), first),
        (settings(), async |world: &World, (kept, gone, port)| {
            assert_eq!(world.engine.exposure(&kept, 80).unwrap().port, port);
            assert!(port.exposed_at >= START && world.engine.exposure(&gone, 80).is_err());
            assert_eq!(world.store.get(&gone).await.unwrap().unwrap().ports, []);
            world.is_clean().await;
        }),
    );
}
