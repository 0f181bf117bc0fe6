//! Serves `/metrics` on its own listener: plain HTTP, without a key. `serve` owns the task.

use std::sync::Arc;
use std::time::Duration;

use admission::metrics::RequestMetrics;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use builder::Builder;
use engine::Engine;
use listen::{Answers, Fault, Limits, Listener, Server, Tls};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::registry;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
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

async fn figures(State(registry): State<Arc<Registry>>) -> Response {
    // Reads the traffic of each sandbox from the kernel: too slow for an async worker with hundreds of sandboxes.
    let looking = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).map(|()| text)
    });
    match looking.await {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, HeaderValue::from_static(TEXT))], text).into_response(),
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
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
