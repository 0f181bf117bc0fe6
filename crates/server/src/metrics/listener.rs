//! Hands the figures out at `/metrics`, on a listener of its own: plain HTTP, without a key. `serve` owns its task.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use engine::Engine;
use listen::{Answers, Fault, Limits, Listener, Server};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Metrics;

const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Scrapers, and people who look.
const CONNECTIONS: usize = 64;
/// Figures are handed out in milliseconds; who has not read them by then does without.
const GRACE: Duration = Duration::from_secs(1);

/// Serves until told to stop.
pub async fn serve(socket: TcpListener, metrics: &Metrics, engine: Engine, stop: CancellationToken) {
    let registry = Arc::new(metrics.registry(engine));
    let server = Server {
        application: Arc::new(Router::new().route("/metrics", get(figures)).with_state(registry)),
        answers: Arc::new(Plain),
        limits: Limits { max_connections: CONNECTIONS, ..Limits::default() },
        is_exempt: Arc::new(|_| false),
    };
    listen::serve(server, vec![Listener::Http { socket }], stop, GRACE).await;
}

async fn figures(State(registry): State<Arc<Registry>>) -> Response {
    // The kernel is asked about the traffic of each sandbox: with hundreds too long for who serves others meanwhile.
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

/// Answers in plain text: no client of the service comes here.
struct Plain;

impl Answers for Plain {
    fn fault(&self, fault: Fault, _: Option<&HeaderValue>) -> Response {
        (fault.status(), fault.to_string()).into_response()
    }

    fn moved(&self, location: &str, _: Option<&HeaderValue>) -> Response {
        (StatusCode::MOVED_PERMANENTLY, location.to_owned()).into_response()
    }
}
