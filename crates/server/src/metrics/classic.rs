//! The text format of Prometheus from before OpenMetrics, made of the OpenMetrics text that the library writes. Scrapers that do not ask for
//! OpenMetrics and tools such as `promtool check metrics` read only this one.

/// The same metrics in the older format: there the name of a counter ends with `_total` in its metadata, too, and units, the type `info` and
/// the end mark are unknown.
pub fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The help precedes the type, which decides the name.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(named) = line.strip_prefix("# HELP ") {
            help = named.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                text.push_str(&format!("# HELP {name}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Label {
        kind: &'static str,
    }

    #[test]
    fn metadata_has_the_names_of_the_samples() {
        let mut registry = Registry::with_prefix("x");
        let counts: Family<Label, Counter> = Family::default();
        counts.get_or_create(&Label { kind: "# odd" }).inc();
        registry.register("requests", "Requests", counts);
        registry.register("open", "Open files", Gauge::<i64>::default());
        registry.register("seconds", "Times", Histogram::new([1.0]));
        registry.register("build", "This program", Info::new(Label { kind: "a" }));
        let mut open_metrics = String::new();
        encode(&mut open_metrics, &registry).unwrap();
        assert_eq!(
            classic(&open_metrics),
            "# HELP x_requests_total Requests.\n\
             # TYPE x_requests_total counter\n\
             x_requests_total{kind=\"# odd\"} 1\n\
             # HELP x_open Open files.\n\
             # TYPE x_open gauge\n\
             x_open 0\n\
             # HELP x_seconds Times.\n\
             # TYPE x_seconds histogram\n\
             x_seconds_sum 0.0\n\
             x_seconds_count 0\n\
             x_seconds_bucket{le=\"1.0\"} 0\n\
             x_seconds_bucket{le=\"+Inf\"} 0\n\
             # HELP x_build_info This program.\n\
             # TYPE x_build_info gauge\n\
             x_build_info{kind=\"a\"} 1\n"
        );
    }
}
