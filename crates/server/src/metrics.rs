//! What the operator can count: requests as they are answered, and the engine's own figures when somebody asks.
//!
//! The layers write through [`Metrics`], which costs two reads of a lock that hardly anybody writes. `serve` owns the
//! listener that hands out the text.

mod collect;
mod listener;
mod ports;

use std::time::Duration;

use engine::Engine;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use listener::serve;
pub use ports::OpenPort;
use ports::PortFigures;

/// From a read of memory to a create that had to wait for its image.
const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: &'static str,
    method: &'static str,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    route: &'static str,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// Counts of requests. Clones count together.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Answered, Counter>,
    seconds: Family<Asked, Histogram, fn() -> Histogram>,
    refusals: Family<Reason, Counter>,
    /// Through exposed ports, which is not of the interface.
    pub ports: PortFigures,
}

impl Metrics {
    pub fn new() -> Self {
        Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            refusals: Family::default(),
            ports: PortFigures::default(),
        }
    }

    /// A request was answered. `route` is a template, so that there are only so many.
    pub fn request(&self, route: &'static str, method: &'static str, status: u16, took: Duration) {
        self.requests.get_or_create(&Answered { route, method, status: status.into() }).inc();
        self.seconds.get_or_create(&Asked { route, method }).observe(took.as_secs_f64());
    }

    /// A request was turned away before the engine heard of it.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&Reason { reason }).inc();
    }

    /// Everything there is to hand out.
    fn registry(&self, engine: Engine) -> Registry {
        let mut registry = Registry::with_prefix("sandboxd");
        registry.register("build", "This program", Info::new(Build { version: env!("CARGO_PKG_VERSION") }));
        registry.register("http_requests", "Requests by what they were answered", self.requests.clone());
        registry.register(
            "http_request_duration_seconds",
            "Time from a request's head to its answer's head",
            self.seconds.clone(),
        );
        registry.register(
            "http_refusals",
            "Requests turned away before the engine heard of them, by reason",
            self.refusals.clone(),
        );
        self.ports.register(&mut registry);
        registry.register_collector(Box::new(collect::Living(engine)));
        registry.register_collector(Box::new(collect::Process::new()));
        registry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
