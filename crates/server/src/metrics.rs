//! Metrics: counters of requests, and the engine's metrics, which are collected for each scrape.
//!
//! The layers write through [`Metrics`], at the cost of two read locks that are rarely contended. `serve` owns the task of the
//! listener.

mod collect;
mod latency;
mod listener;
mod ports;

use std::time::Duration;

use builder::Builder;
use engine::Engine;
use listen::Tls;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use listener::serve;
pub use ports::OpenPort;
use ports::PortMetrics;

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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Request metrics. Clones share their counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<StatusLabels, Counter>,
    seconds: Family<RouteLabels, Histogram, fn() -> Histogram>,
    refusals: Family<ReasonLabel, Counter>,
    /// Traffic through exposed ports, which is not part of the API.
    pub ports: PortMetrics,
}

impl Metrics {
    pub fn new() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            refusals: Family::default(),
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

    /// Requests that were refused for this reason.
    #[cfg(test)]
    pub fn refusals(&self, reason: &'static str) -> u64 {
        self.refusals.get_or_create(&ReasonLabel { reason }).get()
    }

    /// The registry of all metrics.
    fn registry(&self, engine: Engine, builder: Builder, tls: Option<Tls>) -> Registry {
        let mut registry = Registry::with_prefix("sandboxd");
        registry.register("build", "This program", Info::new(Build { version: env!("CARGO_PKG_VERSION") }));
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
        self.ports.register(&mut registry);
        registry.register_collector(Box::new(collect::EngineCollector(engine)));
        registry.register_collector(Box::new(collect::BuildCollector(builder)));
        registry.register_collector(Box::new(collect::ProcessCollector::new()));
        if let Some(tls) = tls {
            registry.register_collector(Box::new(collect::CertificateCollector(tls)));
        }
        registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_certificate_is_a_metric() {
        let dir = tempfile::tempdir().unwrap();
        let own = listen::SelfSigned { dir: dir.path().to_owned(), names: vec!["localhost".to_owned()] };
        let tls = Tls::load(listen::TlsConfig::SelfSigned(own)).unwrap();
        let end = tls.certificate().not_after.unix_timestamp();
        let mut registry = Registry::with_prefix("sandboxd");
        registry.register_collector(Box::new(collect::CertificateCollector(tls)));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("sandboxd_tls_certificate_not_after_seconds {end}");
        assert!(text.lines().any(|given| given == line), "no {line} in:\n{text}");
    }

    /// The names in backticks that stand in the section about metrics.
    fn documented() -> Vec<&'static str> {
        let page = include_str!("../../../docs/operations.md");
        let section =
            page.split("\n## Metrics\n").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
        section.split('`').skip(1).step_by(2).filter_map(|name| name.split('{').next()).collect()
    }

    #[test]
    fn alert_rules_use_documented_metrics() {
        let rules = include_str!("../../../docs/alerts.yml");
        let names =
            rules.lines().filter_map(|line| line.trim().strip_prefix("expr: ")).flat_map(|expression| {
                expression.split(|other: char| !other.is_ascii_alphanumeric() && other != '_')
            });
        let names: Vec<&str> = names.filter_map(|word| word.strip_prefix("sandboxd_")).collect();
        assert!(names.len() > 10, "{names:?}");
        let documented = documented();
        let unknown: Vec<_> = names.iter().filter(|name| !documented.contains(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn requests_are_counted_by_route_method_and_status() {
        let metrics = Metrics::new();
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
