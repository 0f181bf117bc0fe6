//! Opens websockets on dedicated connections. `terminal` defines the messages.

use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::transport::{Transport, collect_body, request_id};
use crate::{Error, Result};

/// Far above the messages of the service.
const LONGEST_MESSAGE: usize = 4 << 20;

pub type Socket = WebSocketStream<TokioIo<Upgraded>>;

fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(LONGEST_MESSAGE))
        .max_frame_size(Some(LONGEST_MESSAGE))
        .write_buffer_size(0)
}

impl Transport {
    /// Opens a websocket at `path`, or returns the error of the service.
    pub async fn websocket(&self, path: &str) -> Result<Socket> {
        let opened = tokio::time::timeout(self.timeout(), self.opened(path)).await;
        opened.unwrap_or_else(|_| {
            Err(Error::network(format!(
                "the websocket was not opened within {} ms",
                self.timeout().as_millis()
            )))
        })
    }

    async fn opened(&self, path: &str) -> Result<Socket> {
        let lost = |error: Box<dyn std::error::Error + Send + Sync>| {
            Error::network(format!("cannot open a websocket at {}", self.service_url().url("")))
                .caused_by(error)
        };
        let stream = self.connector().open(self.service_url()).await.map_err(|error| lost(error.into()))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(stream).await.map_err(|error| lost(error.into()))?;
        // The task ends with the connection, or after the upgrade.
        tokio::spawn(connection.with_upgrades());
        let key = generate_key();
        let response =
            sender.send_request(self.asking(path, &key)?).await.map_err(|error| lost(error.into()))?;
        let status = response.status();
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let (head, body) = response.into_parts();
            let retry = head.headers.get(header::RETRY_AFTER);
            let retry = retry.and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
            let id = request_id(&head.headers);
            return Err(Error::of_answer(status.as_u16(), &collect_body(body).await?, id, retry));
        }
        let accept = derive_accept_key(key.as_bytes());
        if response.headers().get(header::SEC_WEBSOCKET_ACCEPT).is_none_or(|value| value != accept.as_str()) {
            return Err(lost("the response is not a websocket upgrade".into()));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| lost(error.into()))?;
        Ok(WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, Some(config())).await)
    }

    fn asking(&self, path: &str, key: &str) -> Result<Request<Empty<Bytes>>> {
        let wrong = |what: &str| Error::configuration(format!("{what} is not valid in a header"));
        let (target, host) = self.service_url().target(path);
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = target.parse().map_err(|_| wrong("the path"))?;
        let headers = request.headers_mut();
        headers.insert(header::HOST, HeaderValue::from_str(&host).map_err(|_| wrong("the host"))?);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        headers.insert(header::SEC_WEBSOCKET_KEY, HeaderValue::from_str(key).map_err(|_| wrong("the key"))?);
        self.own_headers(headers);
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use allocation_counter::measure;
    use sandboxd::testing::websocket::check_bombs;

    use super::*;

    #[test]
    fn a_bomb_takes_no_more_than_a_few_times_the_longest_message() {
        check_bombs(Role::Client, config(), |work| measure(work).bytes_max).unwrap();
    }
}
