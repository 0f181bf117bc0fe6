//! Metrics: counters of requests, and the engine's metrics, which are collected for each scrape. `serve` owns the task of the listener.

mod classic;
mod collect;
mod latency;
mod listener;

use admission::metrics::RequestMetrics;
use builder::Builder;
use engine::Engine;
use listen::Tls;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use listener::serve;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// The registry of all metrics.
fn registry(requests: &RequestMetrics, engine: Engine, builder: Builder, tls: Option<Tls>) -> Registry {
    let mut registry = Registry::with_prefix("sandboxd");
    registry.register("build", "This program", Info::new(Build { version: env!("CARGO_PKG_VERSION") }));
    requests.register(&mut registry);
    registry.register_collector(Box::new(collect::EngineCollector(engine)));
    registry.register_collector(Box::new(collect::BuildCollector(builder)));
    registry.register_collector(Box::new(collect::ProcessCollector::new()));
    if let Some(tls) = tls {
        registry.register_collector(Box::new(collect::CertificateCollector(tls)));
    }
    registry
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

    /// What one account may take from all others raises an alert, and so does a service that is gone.
    #[test]
    fn alert_rules_cover_what_keeps_others_from_working() {
        let rules = include_str!("../../../docs/alerts.yml");
        for part in ["absent(sandboxd_build_info)", "resource=\"quota\"", "capacity|user_ids"] {
            assert!(rules.contains(part), "{part}");
        }
        for resource in ["vcpus", "memory_bytes"] {
            let rule = format!("sandboxd_used_{resource} > 0.9 * sandboxd_capacity_{resource}");
            assert!(rules.contains(&rule), "{rule}");
        }
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
}
