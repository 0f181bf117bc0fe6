//! Serves `/metrics` on its own listener: plain HTTP, without a key. `serve` owns the task.

use std::sync::Arc;
use std::time::Duration;

use admission::metrics::RequestMetrics;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use builder::Builder;
use engine::Engine;
use listen::{Answers, Fault, Limits, Listener, Server, Tls};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::classic::classic;
use super::registry;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Enough for scrapers and people.
const CONNECTIONS: usize = 64;
/// A response takes milliseconds; a slower reader is disconnected at shutdown.
const GRACE: Duration = Duration::from_secs(1);

/// Serves until `stop` is cancelled.
pub async fn serve(
    socket: TcpListener,
    requests: &RequestMetrics,
    (engine, builder): (Engine, Builder),
    tls: Option<Tls>,
    stop: CancellationToken,
) {
    let registry = Arc::new(registry(requests, engine, builder, tls));
    let server = Server {
        application: Arc::new(Router::new().route("/metrics", get(figures)).with_state(registry)),
        answers: Arc::new(Plain),
        limits: Limits { max_connections: CONNECTIONS, ..Limits::default() },
        is_exempt: Arc::new(|_| false),
    };
    listen::serve(server, vec![Listener::Http { socket }], stop, GRACE).await;
}

async fn figures(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> Response {
    let is_open = accepts_open_metrics(&headers);
    // Reads the traffic of each sandbox from the kernel: too slow for an async worker with hundreds of sandboxes.
    let looking = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).map(|()| text)
    });
    match looking.await {
        Ok(Ok(text)) => {
            let (kind, text) = if is_open { (OPEN_METRICS, text) } else { (CLASSIC, classic(&text)) };
            ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Whether the scraper reads OpenMetrics, as Prometheus does. Others get the older format.
fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("application/openmetrics-text"))
}

/// Error responses in plain text: this is not the API.
struct Plain;

impl Answers for Plain {
    fn fault(&self, fault: Fault, _: Option<&HeaderValue>) -> Response {
        (fault.status(), fault.to_string()).into_response()
    }

    fn moved(&self, location: &str, _: Option<&HeaderValue>) -> Response {
        (StatusCode::MOVED_PERMANENTLY, location.to_owned()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_for_open_metrics_gets_it() {
        let asks = |accept: Option<&'static str>| {
            let accept = accept.map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
            accepts_open_metrics(&accept.into_iter().collect())
        };
        assert!(asks(Some(
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3"
        )));
        assert!(!asks(Some("text/plain")) && !asks(Some("*/*")) && !asks(None));
    }
}
