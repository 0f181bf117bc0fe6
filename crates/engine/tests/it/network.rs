//! The network of sandboxes: the order of its steps, and the state after each failed step.

pub mod fake;

use api::{
    CreateEgress, CreateIngress, CreateNetwork, EgressDefault, EgressPolicy, NetworkPolicy, SandboxConfig,
    SandboxId, SandboxState,
};
use driver::fake::{DriverOp, Fault};
use engine::{CapacityError, EngineError, HostError, SandboxError};
use net::{Reason, Refusal, RefusedTarget, Transport};
use rules::{ConfigRules, NetworkChange, network_change};
use store::Store;

use crate::harness::{Harness, MINUTE, SECOND, config, pass, settings, settle, two_daemons, with_pool};
use fake::Step;

fn strict(names: &[&str]) -> EgressPolicy {
    EgressPolicy {
        allow: names.iter().map(|name| (*name).to_owned()).collect(),
        default: EgressDefault::Deny,
        ..EgressPolicy::default()
    }
}

fn with_policy(egress: EgressPolicy) -> SandboxConfig {
    SandboxConfig { network: NetworkPolicy { egress, ingress: None }, ..config() }
}

fn allow(names: &[&str]) -> NetworkChange {
    let allow = Some(names.iter().map(|name| (*name).to_owned()).collect());
    let body =
        CreateNetwork { egress: Some(CreateEgress { allow, ..CreateEgress::default() }), ingress: None };
    network_change(body, &ConfigRules::default()).unwrap()
}

fn egress_policy(harness: &Harness, status: &engine::Status) -> EgressPolicy {
    assert_eq!(
        harness.network.policy(&status.record.id).as_ref(),
        Some(&status.record.config.network.egress)
    );
    status.record.config.network.egress.clone()
}

#[tokio::test(start_paused = true)]
async fn the_network_is_connected_with_the_processes_and_removed_after_them() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(with_policy(strict(&["a.example"]))).await.unwrap();
    assert_eq!(harness.network.policy(&id), Some(strict(&["a.example"])));
    let mut calls = vec![(Step::Plug, Some(DriverOp::Start)), (Step::Apply, Some(DriverOp::Connect))];
    assert_eq!(harness.network.calls_of(&id), calls);

    // A pause does not change the network.
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(harness.network.calls_of(&id), calls);

    harness.driver.crash(&id);
    settle().await;
    calls.push((Step::Unplug, Some(DriverOp::Stop)));
    assert_eq!((harness.network.calls_of(&id), harness.network.links()), (calls.clone(), vec![]));
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    calls.extend([(Step::Plug, Some(DriverOp::Start)), (Step::Apply, Some(DriverOp::Start))]);
    assert_eq!(harness.network.calls_of(&id), calls);
    assert_eq!(harness.network.policy(&id), Some(strict(&["a.example"])));

    harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
    settle().await;
    calls.push((Step::Unplug, Some(DriverOp::Destroy)));
    assert_eq!(harness.network.calls_of(&id), calls);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_warm_sandbox_is_connected_without_a_policy() {
    let harness = Harness::new(with_pool(1)).await;
    pass(100).await;
    assert_eq!((harness.network.links().len(), harness.network.policies()), (1, 0));
    let members = harness.network.links();
    let id = harness.create_with(with_policy(strict(&[]))).await.unwrap();
    assert_eq!((members, harness.network.policy(&id)), (vec![id], Some(strict(&[]))));
    harness.engine.shutdown().await;
    assert_eq!((harness.network.links().len(), harness.network.policies()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_network_fails_leaves_nothing() {
    for (step, pool) in [(Step::Plug, 0), (Step::Apply, 0), (Step::Apply, 1)] {
        for fault in [Fault::Before, Fault::After] {
            let harness = Harness::new(with_pool(pool)).await;
            pass(100).await;
            harness.network.fail_next(step, fault);
            let error = harness.create_with(config()).await.unwrap_err();
            assert!(
                matches!(error, EngineError::Host(HostError::Backend(_) | HostError::Network(_))),
                "{error:?}"
            );
            harness.engine.shutdown().await;
            assert_eq!(
                (harness.driver.traces(), harness.used()),
                (Default::default(), (0, 0, 0)),
                "{step:?} {fault:?}"
            );
            assert_eq!(
                (harness.network.links(), harness.network.policies()),
                (vec![], 0),
                "{step:?} {fault:?}"
            );
        }
    }
    // A later step fails, and the network is removed.
    let harness = Harness::new(settings()).await;
    harness.fail_next_commit();
    harness.create_with(config()).await.unwrap_err();
    assert_eq!((harness.network.links(), harness.network.policies()), (vec![], 0));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_released_only_with_its_network() {
    let one = engine::EngineSettings { slots: 1, ..settings() };
    let harness = Harness::new(one.clone()).await;
    let id = harness.create().await;
    harness.network.fail_next(Step::Unplug, Fault::Before);
    harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
    settle().await;
    assert_eq!(harness.network.links(), std::slice::from_ref(&id));
    assert!(matches!(
        harness.create_with(config()).await,
        Err(EngineError::Capacity(CapacityError::NoSlot(1)))
    ));
    pass(20 * SECOND).await;
    harness.create().await;
    harness.assert_clean().await;
}

#[test]
fn the_next_start_removes_networks_without_a_sandbox() {
    let one = engine::EngineSettings { slots: 1, ..settings() };
    let first = async |harness: &Harness| {
        harness.driver.fail_next(DriverOp::Connect, Fault::Before);
        harness.network.fail_next(Step::Unplug, Fault::Before);
        harness.create_with(config()).await.unwrap_err();
        assert_eq!(harness.network.links().len(), 1);
        assert!(matches!(
            harness.create_with(config()).await,
            Err(EngineError::Capacity(CapacityError::NoSlot(1)))
        ));
    };
    let second = async |harness: &Harness, ()| {
        assert_eq!(harness.network.links(), []);
        harness.create().await;
        harness.assert_clean().await;
    };
    two_daemons((one.clone(), first), (one, second));
}

#[tokio::test(start_paused = true)]
async fn a_start_on_the_disk_whose_network_fails_is_undone() {
    for step in [Step::Plug, Step::Apply] {
        for fault in [Fault::Before, Fault::After] {
            let harness = Harness::new(settings()).await;
            let id = harness.create().await;
            harness.driver.crash(&id);
            settle().await;
            harness.network.fail_next(step, fault);
            harness.engine.sandbox("test", &id).resume().await.unwrap_err();
            assert_eq!(harness.driver.traces()[&id], driver::Presence::Stopped, "{step:?} {fault:?}");
            assert_eq!(
                (harness.network.links(), harness.network.policies()),
                (vec![], 0),
                "{step:?} {fault:?}"
            );
            harness.engine.sandbox("test", &id).resume().await.unwrap();
            assert_eq!(harness.network.policies(), 1);
            harness.assert_clean().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_enforced_recorded_and_reported() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(with_policy(strict(&["a.example"]))).await.unwrap();
    let changed = harness.engine.sandbox("test", &id).change_network(allow(&["b.example"])).await.unwrap();
    assert_eq!(egress_policy(&harness, &changed), strict(&["b.example"]));
    let event = harness.events(&id).await.pop().unwrap();
    assert_eq!(event.kind, "network.changed");
    assert_eq!(event.data, serde_json::json!({"egress": {"allow": ["b.example"], "default": "deny"}}));

    // A change without effect has no event.
    harness.engine.sandbox("test", &id).change_network(allow(&["b.example"])).await.unwrap();
    harness.engine.sandbox("test", &id).change_network(NetworkChange::default()).await.unwrap();
    assert_eq!(harness.kinds(&id).await.iter().filter(|kind| *kind == "network.changed").count(), 1);

    // A paused sandbox stays paused. A sandbox without processes gets the policy at its next start.
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    let changed = harness.engine.sandbox("test", &id).change_network(allow(&["c.example"])).await.unwrap();
    assert_eq!(
        (egress_policy(&harness, &changed), changed.state()),
        (strict(&["c.example"]), SandboxState::Paused)
    );
    harness.driver.crash(&id);
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    harness.driver.crash(&id);
    settle().await;
    harness.engine.sandbox("test", &id).change_network(allow(&["d.example"])).await.unwrap();
    assert_eq!(harness.network.policy(&id), None);
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(harness.network.policy(&id), Some(strict(&["d.example"])));

    let (policy, usage) = harness.engine.sandbox("test", &id).network().await.unwrap();
    assert_eq!((policy.egress, usage.bytes_in), (strict(&["d.example"]), 2));
    for account in ["test", "other"] {
        if account == "test" {
            harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
        }
        let refused = harness.engine.sandbox(account, &id).change_network(allow(&[])).await;
        assert!(matches!(refused, Err(EngineError::Sandbox(SandboxError::NotFound { .. }))), "{refused:?}");
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_change_keeps_the_old_policy() {
    let harness = Harness::new(settings()).await;
    let old = strict(&["a.example"]);
    let id = harness.create_with(with_policy(old.clone())).await.unwrap();
    for fault in [Fault::Before, Fault::After] {
        harness.network.fail_next(Step::Apply, fault);
        let error =
            harness.engine.sandbox("test", &id).change_network(allow(&["b.example"])).await.unwrap_err();
        assert!(matches!(error, EngineError::Host(HostError::Network(_))), "{error:?}");
        assert_eq!(
            egress_policy(&harness, &harness.engine.sandbox("test", &id).status().await.unwrap()),
            old,
            "{fault:?}"
        );
    }
    harness.fail_next_commit();
    let error = harness.engine.sandbox("test", &id).change_network(allow(&["b.example"])).await.unwrap_err();
    assert!(matches!(error, EngineError::Host(HostError::Store(_))), "{error:?}");
    assert_eq!(egress_policy(&harness, &harness.engine.sandbox("test", &id).status().await.unwrap()), old);

    // If the old policy cannot be enforced at once, the actor retries.
    harness.network.fail_next(Step::Apply, Fault::After);
    for _ in 0..3 {
        harness.network.fail_next(Step::Apply, Fault::Before);
    }
    harness.engine.sandbox("test", &id).change_network(allow(&["b.example"])).await.unwrap_err();
    assert_eq!(harness.network.policy(&id), Some(strict(&["b.example"])));
    pass(5 * SECOND).await;
    assert_eq!(egress_policy(&harness, &harness.engine.sandbox("test", &id).status().await.unwrap()), old);
    assert_eq!(harness.kinds(&id).await, ["sandbox.created", "sandbox.started"]);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_ingress_policy_leaves_a_pending_egress_policy_pending() {
    let harness = Harness::new(settings()).await;
    let old = strict(&["a.example"]);
    let id = harness.create_with(with_policy(old.clone())).await.unwrap();
    let sandbox = harness.engine.sandbox("test", &id);
    harness.network.fail_next(Step::Apply, Fault::After);
    harness.network.fail_next(Step::Apply, Fault::Before);
    sandbox.change_network(allow(&["b.example"])).await.unwrap_err();
    assert_eq!(harness.network.policy(&id), Some(strict(&["b.example"])));
    let ingress =
        CreateNetwork { egress: None, ingress: Some(CreateIngress { allow_ports: Some(vec![80.into()]) }) };
    let ingress = network_change(ingress, &ConfigRules::default()).unwrap();
    sandbox.change_network(ingress).await.unwrap();
    pass(5 * SECOND).await;
    assert_eq!(egress_policy(&harness, &sandbox.status().await.unwrap()), old);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_counts_as_activity() {
    let harness = Harness::new(settings()).await;
    let id = harness.create_with(SandboxConfig { idle_timeout_ms: MINUTE, ..config() }).await.unwrap();
    pass(50 * SECOND).await;
    harness.engine.sandbox("test", &id).change_network(NetworkChange::default()).await.unwrap();
    pass(50 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    // Reading it does not.
    harness.engine.sandbox("test", &id).network().await.unwrap();
    pass(20 * SECOND).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.assert_clean().await;
}

#[test]
fn a_start_enforces_recorded_policies_and_removes_all_others() {
    two_daemons((with_pool(1), two_and_a_member), (settings(), finds_the_two));
}

async fn two_and_a_member(harness: &Harness) -> [SandboxId; 2] {
    pass(100).await;
    let one = harness.create_with(with_policy(strict(&["a.example"]))).await.unwrap();
    let other = harness.create_with(with_policy(strict(&["b.example"]))).await.unwrap();
    harness.engine.sandbox("test", &other).pause().await.unwrap();
    pass(100).await;
    assert_eq!(harness.network.links().len(), 3);
    [one, other]
}

async fn finds_the_two(harness: &Harness, [one, other]: [SandboxId; 2]) {
    let mut living = vec![one.clone(), other.clone()];
    living.sort();
    assert_eq!((harness.recovered.orphans, harness.network.links()), (1, living));
    assert_eq!(harness.network.policy(&one), Some(strict(&["a.example"])));
    assert_eq!(harness.network.policy(&other), Some(strict(&["b.example"])));
    harness.assert_clean().await;
}

fn refusal(sandbox: &SandboxId, port: u16) -> Refusal {
    let target =
        RefusedTarget { name: Some("x.example".to_owned()), address: None, port, transport: Transport::Tcp };
    Refusal { sandbox: sandbox.clone(), target, reason: Reason::NotAllowed, count: 2 }
}

#[tokio::test(start_paused = true)]
async fn refusals_are_recorded_within_a_limit() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let stranger = "sb_aaaaaaaaaaaa".parse().unwrap();
    harness.refusals.send(refusal(&stranger, 1)).await.unwrap();
    harness.refusals.send(refusal(&id, 443)).await.unwrap();
    pass(SECOND).await;
    let event = harness.events(&id).await.pop().unwrap();
    assert_eq!(event.kind, "network.refused");
    assert_eq!(
        event.data,
        serde_json::json!({"name": "x.example", "port": 443, "protocol": "tcp", "reason": "not-allowed",
            "message": Reason::NotAllowed.to_string(), "count": 2})
    );
    assert_eq!(event.account, "test");
    for port in 0..1000 {
        harness.refusals.send(refusal(&id, port)).await.unwrap();
    }
    // A flood for one reason does not suppress another reason.
    let mut other = refusal(&id, 80);
    other.reason = Reason::ClosedAddress;
    harness.refusals.send(other).await.unwrap();
    pass(10 * SECOND).await;
    let kept = async |reason: Reason| {
        let refused = harness.events(&id).await.into_iter().filter(|event| event.kind == "network.refused");
        refused.filter(|event| event.data["reason"] == reason.code()).count()
    };
    assert_eq!((kept(Reason::NotAllowed).await, kept(Reason::ClosedAddress).await), (30, 1));
    pass(MINUTE).await;
    // Without another refusal after the minute.
    let rest = harness.events(&id).await.pop().unwrap();
    let message = format!("{}; 971 more like it, not listed one by one", Reason::NotAllowed);
    assert_eq!(
        rest.data,
        serde_json::json!({"port": 0, "protocol": "any", "reason": "not-allowed", "message": message,
            "count": 2 * 971, "omitted": 971})
    );
    harness.refusals.send(refusal(&id, 443)).await.unwrap();
    pass(MINUTE).await;
    assert_eq!((kept(Reason::NotAllowed).await, kept(Reason::ClosedAddress).await), (32, 1));
    let counted = [("closed-address", 2), ("not-allowed", 2 * 1003)];
    assert_eq!(harness.engine.metrics().network_refusals, counted);
    assert!(harness.store.events(&stranger, 0, 10).await.unwrap().is_empty());
    harness.assert_clean().await;
}
