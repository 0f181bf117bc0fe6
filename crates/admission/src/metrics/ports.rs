//! Metrics of traffic through exposed ports, written by the relay. Labels for sandboxes or accounts would be too many.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// The metrics. Clones share their counters.
#[derive(Debug, Clone, Default)]
pub struct PortMetrics {
    requests: Family<ClassLabel, Counter>,
    refusals: Family<ReasonLabel, Counter>,
    bytes: Family<DirectionLabel, Counter>,
    open: Gauge,
}

/// Counts a connection to a program as open until it is dropped.
#[derive(Debug)]
pub struct OpenPort {
    to_program: Counter,
    from_program: Counter,
    open: Gauge,
}

impl PortMetrics {
    /// Counts a program's response by status class: a program can invent any status, and each would be a label.
    pub fn answered(&self, status: u16) {
        const CLASSES: [&str; 6] = ["other", "1xx", "2xx", "3xx", "4xx", "5xx"];
        let class = CLASSES.get(usize::from(status / 100)).copied().unwrap_or("other");
        self.requests.get_or_create(&ClassLabel { class }).inc();
    }

    /// Counts an error response of the service, by code.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub fn opened(&self) -> OpenPort {
        let bytes = |direction| self.bytes.get_or_create(&DirectionLabel { direction }).clone();
        self.open.inc();
        OpenPort { to_program: bytes("in"), from_program: bytes("out"), open: self.open.clone() }
    }

    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "port_requests",
            "Requests through ports with a response of the program, by status class; websockets are 1xx",
            self.requests.clone(),
        );
        registry.register(
            "port_refusals",
            "Refused requests for ports, by error code",
            self.refusals.clone(),
        );
        registry.register("port_bytes", "Bytes to programs and from them", self.bytes.clone());
        registry.register(
            "port_connections",
            "Open requests and websockets through ports",
            self.open.clone(),
        );
    }
}

impl OpenPort {
    pub fn count_to_program(&self, bytes: usize) {
        self.to_program.inc_by(bytes as u64);
    }

    pub fn count_from_program(&self, bytes: usize) {
        self.from_program.inc_by(bytes as u64);
    }
}

impl Drop for OpenPort {
    fn drop(&mut self) {
        self.open.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_counted_while_it_goes_and_afterwards() {
        let figures = PortMetrics::default();
        let mut registry = Registry::default();
        figures.register(&mut registry);
        let assert_line = |line: &str| {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            assert!(text.lines().any(|given| given == line), "no {line} in:\n{text}");
        };
        let (one, two) = (figures.opened(), figures.opened());
        one.count_to_program(3);
        two.count_to_program(4);
        two.count_from_program(5);
        assert_line("port_connections 2");
        drop((one, two));
        assert_line("port_connections 0");
        assert_line("port_bytes_total{direction=\"in\"} 7");
        assert_line("port_bytes_total{direction=\"out\"} 5");
        for status in [101, 200, 204, 999] {
            figures.answered(status);
        }
        figures.refused("RATE_LIMITED");
        assert_line("port_requests_total{class=\"1xx\"} 1");
        assert_line("port_requests_total{class=\"2xx\"} 2");
        assert_line("port_requests_total{class=\"other\"} 1");
        assert_line("port_refusals_total{reason=\"RATE_LIMITED\"} 1");
    }
}
