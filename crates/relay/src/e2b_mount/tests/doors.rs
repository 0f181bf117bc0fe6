//! A walk through the tables of all doors: each endpoint has a scope, a charge, a place in the budgets of its account, and a line in the
//! log.

use std::collections::BTreeSet;

use admission::endpoint::Rule;
use admission::in_flight::{InFlight, Kind};
use axum::body::Body;
use listen::Application;
use native::testing::gate_of;
use rules::{QuotaTable, Quotas};

use super::*;
use crate::access::{PRIVATE_PORT, PUBLIC_PORT};

/// Everybody may ask these: none of them shows anything of an account, except a port that its owner has made public.
const OPEN: [&str; 4] = ["/v1/health", "/health", "/docs", "public port"];
/// Streams and calls that the agent of the sandbox limits, and a port: its program is what the account pays for.
const UNCHARGED: [&str; 4] = ["/files", "/process.Process/", "/filesystem.Filesystem/", "private port"];

/// The rules of all doors with their methods.
fn all(fixture: &Fixture) -> Vec<(Method, Rule)> {
    let native = fixture.relay.api.table.rules();
    let e2b = fixture.relay.e2b.as_ref().unwrap().api.rules();
    let ports = [PUBLIC_PORT, PRIVATE_PORT].map(|rule| (Method::GET, rule));
    native.chain(e2b).map(|(method, rule)| (method.clone(), rule)).chain(ports).collect()
}

#[tokio::test]
async fn every_endpoint_of_every_door_has_a_scope_and_a_charge() {
    let fixture = Fixture::new().await;
    let all = all(&fixture);
    assert!(all.len() > 100, "{}", all.len());
    let is_one_of = |route: &str, known: &[&str]| known.iter().any(|prefix| route.starts_with(prefix));
    for (method, Rule { route, access }) in &all {
        assert_eq!(access.scope().is_none(), is_one_of(route, &OPEN), "{method} {route}");
        let is_free = is_one_of(route, &OPEN) || is_one_of(route, &UNCHARGED);
        // The one call that starts something is charged.
        let is_free = is_free && *route != "/process.Process/Start";
        assert_eq!(access.charge().is_none(), is_free, "{method} {route}");
    }
    let routes: BTreeSet<&str> = all.iter().map(|(_, rule)| rule.route).collect();
    for route in ["/v1/sandboxes", "/mcp", "/sandboxes", "/files", "private port"] {
        assert!(routes.contains(route), "no {route}");
    }
}

/// A request to an endpoint with a valid key or token.
fn request_to(method: &Method, rule: &Rule, (id, token): (&str, &str)) -> Request {
    let path: String = rule
        .route
        .split('/')
        .map(|part| if part.starts_with('{') { "x" } else { part })
        .collect::<Vec<_>>()
        .join("/");
    let request = Request::builder().method(method).uri(path);
    let request = if rule.route.starts_with("/v1/") || rule.route == "/mcp" {
        request
            .header("host", "localhost")
            .header("authorization", format!("Bearer {}", key(1).as_str()))
            .header("content-type", "application/json")
    } else if matches!(rule.access, admission::endpoint::Access::Token { .. }) {
        let is_stream =
            ["Start", "Connect", "StreamInput", "WatchDir"].iter().any(|name| rule.route.ends_with(name));
        request
            .header("host", format!("49983-{id}.sandboxes.localhost"))
            .header("x-access-token", token)
            .header("content-type", if is_stream { "application/connect+json" } else { "application/json" })
    } else {
        request.header("host", "api.sandboxes.localhost").header("x-api-key", key(1).e2b_text())
    };
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn every_endpoint_of_every_door_is_in_the_budget_of_the_account_and_in_the_log() {
    let fixture = Fixture::with(|service| {
        let quotas = Quotas { connections: Some(1), ..Quotas::default() };
        gate_of(service).in_flight = InFlight::new(QuotaTable { default: quotas, ..QuotaTable::default() });
    });
    let fixture = fixture.await;
    let id = fixture.create(json!({})).await;
    let connected = fixture.ask(&format!("POST /sandboxes/{id}/connect"), json!({})).await;
    let token = connected.body["envdAccessToken"].as_str().unwrap().to_owned();
    let gate = &fixture.harness.service.gate;
    // The account has as many requests in flight as it may.
    let _held = gate.in_flight.enter(&"one".into(), Kind::Request).unwrap();
    let log = CapturedLog::default();
    let _capture = log.begin();
    // Ports have limits of their own; a link to upload files needs a build.
    let is_counted = |rule: &Rule| {
        rule.access.scope().is_some()
            && ![PRIVATE_PORT.route, "/templates/{template}/files/{hash}"].contains(&rule.route)
    };
    for (method, rule) in all(&fixture).iter().filter(|(_, rule)| is_counted(rule)) {
        let before = gate.metrics.refusals("quota_exceeded");
        fixture.relay.answer(request_to(method, rule, (&id, &token))).await;
        assert_eq!(gate.metrics.refusals("quota_exceeded"), before + 1, "{method} {}", rule.route);
        let line = log.requests().pop().unwrap();
        assert_eq!(line["fields"]["account"], "one", "{method} {}: {line}", rule.route);
    }
}
