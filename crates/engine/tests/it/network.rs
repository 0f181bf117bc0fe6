//! The network of sandboxes: in which order it comes and goes, and what is left when one of its steps fails.

pub mod fake;

use api::{EgressDefault, EgressPolicy, NetworkPolicy, SandboxConfig, SandboxId, SandboxState};
use driver::fake::{Fault, Verb};
use engine::EngineError;
use net::{Reason, Refusal, Target, Transport};
use rules::{ConfigRules, NetworkChange, NetworkInput, network_change};
use store::Store;

use crate::world::{MINUTE, SECOND, World, config, pass, settings, settle, two_daemons, with_pool};
use fake::Step;

fn strict(names: &[&str]) -> EgressPolicy {
    EgressPolicy {
        allow: names.iter().map(|name| (*name).to_owned()).collect(),
        default: EgressDefault::Deny,
    }
}

fn with_policy(egress: EgressPolicy) -> SandboxConfig {
    SandboxConfig { network: NetworkPolicy { egress, ingress: None }, ..config() }
}

fn allow(names: &[&str]) -> NetworkChange {
    let input = NetworkInput {
        egress_allow: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..NetworkInput::default()
    };
    network_change(input, &ConfigRules::default()).unwrap()
}

fn shown(world: &World, status: &engine::Status) -> EgressPolicy {
    assert_eq!(world.network.policy(&status.record.id).as_ref(), Some(&status.record.config.network.egress));
    status.record.config.network.egress.clone()
}

#[tokio::test(start_paused = true)]
async fn it_comes_with_the_processes_and_goes_after_them() {
    let world = World::new(settings()).await;
    let id = world.create_with(with_policy(strict(&["a.example"]))).await.unwrap();
    assert_eq!(world.network.policy(&id), Some(strict(&["a.example"])));
    let mut calls = vec![(Step::Plug, Some(Verb::Start)), (Step::Apply, Some(Verb::Connect))];
    assert_eq!(world.network.calls_of(&id), calls);

    // A pause needs nothing of the network.
    world.engine.pause("test", &id).await.unwrap();
    world.engine.resume("test", &id).await.unwrap();
    assert_eq!(world.network.calls_of(&id), calls);

    world.driver.crash(&id);
    settle().await;
    calls.push((Step::Unplug, Some(Verb::Stop)));
    assert_eq!((world.network.calls_of(&id), world.network.links()), (calls.clone(), vec![]));
    world.engine.resume("test", &id).await.unwrap();
    calls.extend([(Step::Plug, Some(Verb::Start)), (Step::Apply, Some(Verb::Start))]);
    assert_eq!(world.network.calls_of(&id), calls);
    assert_eq!(world.network.policy(&id), Some(strict(&["a.example"])));

    world.engine.terminate("test", &id, "request").await.unwrap();
    settle().await;
    calls.push((Step::Unplug, Some(Verb::Destroy)));
    assert_eq!(world.network.calls_of(&id), calls);
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_of_the_pool_is_connected_and_has_no_policy_before_it_belongs_to_somebody() {
    let world = World::new(with_pool(1)).await;
    pass(100).await;
    assert_eq!((world.network.links().len(), world.network.policies()), (1, 0));
    let members = world.network.links();
    let id = world.create_with(with_policy(strict(&[]))).await.unwrap();
    assert_eq!((members, world.network.policy(&id)), (vec![id], Some(strict(&[]))));
    world.engine.shutdown().await;
    assert_eq!((world.network.links().len(), world.network.policies()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_network_fails_leaves_nothing() {
    for (step, pool) in [(Step::Plug, 0), (Step::Apply, 0), (Step::Apply, 1)] {
        for fault in [Fault::Before, Fault::After] {
            let world = World::new(with_pool(pool)).await;
            pass(100).await;
            world.network.fail_next(step, fault);
            let error = world.create_with(config()).await.unwrap_err();
            assert!(matches!(error, EngineError::Driver(_) | EngineError::Network(_)), "{error:?}");
            world.engine.shutdown().await;
            assert_eq!(
                (world.driver.traces(), world.used()),
                (Default::default(), (0, 0, 0)),
                "{step:?} {fault:?}"
            );
            assert_eq!((world.network.links(), world.network.policies()), (vec![], 0), "{step:?} {fault:?}");
        }
    }
    // A step after it fails, and takes the network with it.
    let world = World::new(settings()).await;
    world.fail_next_commit();
    world.create_with(config()).await.unwrap_err();
    assert_eq!((world.network.links(), world.network.policies()), (vec![], 0));
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_comes_back_only_with_its_network() {
    let one = engine::EngineSettings { slots: 1, ..settings() };
    let world = World::new(one.clone()).await;
    let id = world.create().await;
    world.network.fail_next(Step::Unplug, Fault::Before);
    world.engine.terminate("test", &id, "request").await.unwrap();
    settle().await;
    assert_eq!(world.network.links(), std::slice::from_ref(&id));
    assert!(matches!(world.create_with(config()).await, Err(EngineError::NoSlot(1))));
    pass(20 * SECOND).await;
    world.create().await;
    world.is_clean().await;
}

#[test]
fn the_network_of_what_belongs_to_nobody_is_left_to_the_next_start() {
    let one = engine::EngineSettings { slots: 1, ..settings() };
    let first = async |world: &World| {
        world.driver.fail_next(Verb::Connect, Fault::Before);
        world.network.fail_next(Step::Unplug, Fault::Before);
        world.create_with(config()).await.unwrap_err();
        assert_eq!(world.network.links().len(), 1);
        assert!(matches!(world.create_with(config()).await, Err(EngineError::NoSlot(1))));
    };
    let second = async |world: &World, ()| {
        assert_eq!(world.network.links(), []);
        world.create().await;
        world.is_clean().await;
    };
    two_daemons((one.clone(), first), (one, second));
}

#[tokio::test(start_paused = true)]
async fn a_start_on_the_disk_whose_network_fails_is_taken_back() {
    for step in [Step::Plug, Step::Apply] {
        for fault in [Fault::Before, Fault::After] {
            let world = World::new(settings()).await;
            let id = world.create().await;
            world.driver.crash(&id);
            settle().await;
            world.network.fail_next(step, fault);
            world.engine.resume("test", &id).await.unwrap_err();
            assert_eq!(world.driver.traces()[&id], driver::Presence::Stopped, "{step:?} {fault:?}");
            assert_eq!((world.network.links(), world.network.policies()), (vec![], 0), "{step:?} {fault:?}");
            world.engine.resume("test", &id).await.unwrap();
            assert_eq!(world.network.policies(), 1);
            world.is_clean().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_in_force_recorded_and_told() {
    let world = World::new(settings()).await;
    let id = world.create_with(with_policy(strict(&["a.example"]))).await.unwrap();
    let changed = world.engine.change_network("test", &id, allow(&["b.example"])).await.unwrap();
    assert_eq!(shown(&world, &changed), strict(&["b.example"]));
    let event = world.events(&id).await.pop().unwrap();
    assert_eq!(event.kind, "network.changed");
    assert_eq!(event.data, serde_json::json!({"egress": {"allow": ["b.example"], "default": "deny"}}));

    // What changes nothing is no event.
    world.engine.change_network("test", &id, allow(&["b.example"])).await.unwrap();
    world.engine.change_network("test", &id, NetworkChange::default()).await.unwrap();
    assert_eq!(world.kinds(&id).await.iter().filter(|kind| *kind == "network.changed").count(), 1);

    // A paused one stays paused, and one without processes gets its policy with them.
    world.engine.pause("test", &id).await.unwrap();
    let changed = world.engine.change_network("test", &id, allow(&["c.example"])).await.unwrap();
    assert_eq!((shown(&world, &changed), changed.state()), (strict(&["c.example"]), SandboxState::Paused));
    world.driver.crash(&id);
    world.engine.resume("test", &id).await.unwrap();
    world.driver.crash(&id);
    settle().await;
    world.engine.change_network("test", &id, allow(&["d.example"])).await.unwrap();
    assert_eq!(world.network.policy(&id), None);
    world.engine.resume("test", &id).await.unwrap();
    assert_eq!(world.network.policy(&id), Some(strict(&["d.example"])));

    let (policy, usage) = world.engine.network("test", &id).await.unwrap();
    assert_eq!((policy.egress, usage.bytes_in), (strict(&["d.example"]), 2));
    for account in ["test", "other"] {
        if account == "test" {
            world.engine.terminate("test", &id, "request").await.unwrap();
        }
        let refused = world.engine.change_network(account, &id, allow(&[])).await;
        assert!(matches!(refused, Err(EngineError::NotFound { .. })), "{refused:?}");
    }
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_fails_leaves_the_old_policy_in_force_and_shown() {
    let world = World::new(settings()).await;
    let old = strict(&["a.example"]);
    let id = world.create_with(with_policy(old.clone())).await.unwrap();
    for fault in [Fault::Before, Fault::After] {
        world.network.fail_next(Step::Apply, fault);
        let error = world.engine.change_network("test", &id, allow(&["b.example"])).await.unwrap_err();
        assert!(matches!(error, EngineError::Network(_)), "{error:?}");
        assert_eq!(shown(&world, &world.engine.get("test", &id).await.unwrap()), old, "{fault:?}");
    }
    world.fail_next_commit();
    let error = world.engine.change_network("test", &id, allow(&["b.example"])).await.unwrap_err();
    assert!(matches!(error, EngineError::Store(_)), "{error:?}");
    assert_eq!(shown(&world, &world.engine.get("test", &id).await.unwrap()), old);

    // Even where it cannot be put back at once it is soon.
    world.network.fail_next(Step::Apply, Fault::After);
    for _ in 0..3 {
        world.network.fail_next(Step::Apply, Fault::Before);
    }
    world.engine.change_network("test", &id, allow(&["b.example"])).await.unwrap_err();
    assert_eq!(world.network.policy(&id), Some(strict(&["b.example"])));
    pass(5 * SECOND).await;
    assert_eq!(shown(&world, &world.engine.get("test", &id).await.unwrap()), old);
    assert_eq!(world.kinds(&id).await, ["sandbox.created", "sandbox.started"]);
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_keeps_a_sandbox_awake() {
    let world = World::new(settings()).await;
    let id = world.create_with(SandboxConfig { idle_timeout_ms: MINUTE, ..config() }).await.unwrap();
    pass(50 * SECOND).await;
    world.engine.change_network("test", &id, NetworkChange::default()).await.unwrap();
    pass(50 * SECOND).await;
    assert_eq!(world.state(&id).await, Some(SandboxState::Running));
    // Looking at it does not.
    world.engine.network("test", &id).await.unwrap();
    pass(20 * SECOND).await;
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));
    world.is_clean().await;
}

#[test]
fn a_start_puts_every_recorded_policy_in_force_and_removes_the_rest() {
    two_daemons((with_pool(1), two_and_a_member), (settings(), finds_the_two));
}

async fn two_and_a_member(world: &World) -> [SandboxId; 2] {
    pass(100).await;
    let one = world.create_with(with_policy(strict(&["a.example"]))).await.unwrap();
    let other = world.create_with(with_policy(strict(&["b.example"]))).await.unwrap();
    world.engine.pause("test", &other).await.unwrap();
    pass(100).await;
    assert_eq!(world.network.links().len(), 3);
    [one, other]
}

async fn finds_the_two(world: &World, [one, other]: [SandboxId; 2]) {
    let mut living = vec![one.clone(), other.clone()];
    living.sort();
    assert_eq!((world.recovered.orphans, world.network.links()), (1, living));
    assert_eq!(world.network.policy(&one), Some(strict(&["a.example"])));
    assert_eq!(world.network.policy(&other), Some(strict(&["b.example"])));
    world.is_clean().await;
}

fn refusal(sandbox: &SandboxId, port: u16) -> Refusal {
    let target =
        Target { name: Some("x.example".to_owned()), address: None, port, transport: Transport::Tcp };
    Refusal { sandbox: sandbox.clone(), target, reason: Reason::NotAllowed, count: 2 }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_told_and_never_without_end() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    let stranger = "sb_aaaaaaaaaaaa".parse().unwrap();
    world.refusals.send(refusal(&stranger, 1)).await.unwrap();
    world.refusals.send(refusal(&id, 443)).await.unwrap();
    pass(SECOND).await;
    let event = world.events(&id).await.pop().unwrap();
    assert_eq!(event.kind, "network.refused");
    assert_eq!(
        event.data,
        serde_json::json!({"name": "x.example", "port": 443, "protocol": "tcp", "reason": "not-allowed",
            "message": Reason::NotAllowed.to_string(), "count": 2})
    );
    assert_eq!(event.account, "test");
    for port in 0..1000 {
        world.refusals.send(refusal(&id, port)).await.unwrap();
    }
    // No flood of one reason hides another.
    let mut other = refusal(&id, 80);
    other.reason = Reason::ClosedAddress;
    world.refusals.send(other).await.unwrap();
    pass(10 * SECOND).await;
    let kept = async |reason: Reason| {
        let refused = world.events(&id).await.into_iter().filter(|event| event.kind == "network.refused");
        refused.filter(|event| event.data["reason"] == reason.code()).count()
    };
    assert_eq!((kept(Reason::NotAllowed).await, kept(Reason::ClosedAddress).await), (30, 1));
    pass(MINUTE).await;
    // Without another refusal that would end the minute.
    let rest = world.events(&id).await.pop().unwrap();
    let message = format!("{}; 971 more like it, which are not told one by one", Reason::NotAllowed);
    assert_eq!(
        rest.data,
        serde_json::json!({"port": 0, "protocol": "any", "reason": "not-allowed", "message": message,
            "count": 2 * 971, "omitted": 971})
    );
    world.refusals.send(refusal(&id, 443)).await.unwrap();
    pass(MINUTE).await;
    assert_eq!((kept(Reason::NotAllowed).await, kept(Reason::ClosedAddress).await), (32, 1));
    let counted = [("closed-address", 2), ("not-allowed", 2 * 1003)];
    assert_eq!(world.engine.facts().network_refusals, counted);
    assert!(world.store.events(&stranger, 0, 10).await.unwrap().is_empty());
    world.is_clean().await;
}
