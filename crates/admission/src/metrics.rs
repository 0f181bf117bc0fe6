//! Counters of requests at all doors, and of traffic through ports.
//!
//! Writing costs two read locks that are rarely contended. The program collects them for each scrape.

mod ports;

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub use ports::{OpenPort, PortMetrics};

/// Why a gate refuses requests. Each has a series from the start, because alerts do not see the first increase of a new one.
const REFUSAL_REASONS: [&str; 4] = ["unauthorized", "forbidden", "rate_limited", "quota_exceeded"];

/// From a read from memory to a create that waits for its image.
const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    route: &'static str,
    method: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: &'static str,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Request metrics. Clones share their counters.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    requests: Family<StatusLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    refusals: Family<ReasonLabel, Counter>,
    /// Without labels, so that alerts see the first one.
    internal_errors: Counter,
    /// Traffic through exposed ports, which is not part of the API.
    pub ports: PortMetrics,
}

impl RequestMetrics {
    /// Without a request yet.
    pub fn new() -> Self {
        let refusals: Family<ReasonLabel, Counter> = Family::default();
        for reason in REFUSAL_REASONS {
            drop(refusals.get_or_create(&ReasonLabel { reason }));
        }
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            refusals,
            internal_errors: Counter::default(),
            ports: PortMetrics::default(),
        }
    }

    /// Counts a response. `route` is a path template, which bounds the number of labels.
    pub fn request(&self, route: &'static str, method: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&StatusLabels { route, method, status: status.into() }).inc();
        self.seconds.get_or_create(&RouteLabels { route, method }).observe(took.as_secs_f64());
    }

    /// Counts a request that was refused before it reached the engine.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabel { reason }).inc();
    }

    /// Counts a response that needs the attention of the operator.
    pub fn internal_error(&self) {
        self.internal_errors.inc();
    }

    /// Requests that were refused for this reason, for tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn refusals(&self, reason: &'static str) -> u64 {
        self.refusals.get_or_create(&ReasonLabel { reason }).get()
    }

    /// Adds them to a registry.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("http_requests", "Requests by route, method and status", self.requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Time from request headers to response headers",
            self.seconds.clone(),
        );
        registry.register(
            "http_refusals",
            "Requests refused before they reached the engine, by reason",
            self.refusals.clone(),
        );
        registry.register(
            "http_internal_errors",
            "Responses with a status of 5xx other than 503 and 507 that the service has caused",
            self.internal_errors.clone(),
        );
        self.ports.register(registry);
    }
}

impl Default for RequestMetrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_alerts_begin_with_zero() {
        let metrics = RequestMetrics::new();
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "http_internal_errors_total 0",
            "http_refusals_total{reason=\"quota_exceeded\"} 0",
            "http_refusals_total{reason=\"rate_limited\"} 0",
        ] {
            assert!(text.lines().any(|given| given == line), "no {line} in:\n{text}");
        }
    }

    #[test]
    fn requests_are_counted_by_route_method_and_status() {
        let metrics = RequestMetrics::new();
        metrics.request("/v1/health", "GET", 200, Duration::from_millis(3));
        metrics.request("/v1/health", "GET", 200, Duration::from_millis(30));
        metrics.request("/v1/health", "GET", 500, Duration::from_millis(3));
        metrics.refused("rate_limited");
        let mut registry = Registry::default();
        registry.register("requests", "x", metrics.requests.clone());
        registry.register("seconds", "x", metrics.seconds.clone());
        registry.register("refusals", "x", metrics.refusals);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "requests_total{route=\"/v1/health\",method=\"GET\",status=\"200\"} 2",
            "requests_total{route=\"/v1/health\",method=\"GET\",status=\"500\"} 1",
            "seconds_bucket{le=\"0.005\",route=\"/v1/health\",method=\"GET\"} 2",
            "seconds_count{route=\"/v1/health\",method=\"GET\"} 3",
            "refusals_total{reason=\"rate_limited\"} 1",
        ] {
            assert!(text.lines().any(|given| given == line), "no {line} in:\n{text}");
        }
    }
}
