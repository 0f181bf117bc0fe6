//! Websockets: after the program has agreed, bytes are copied in both directions. The copy ends when both sides have closed, after the
//! idle timeout, when the port is closed, and when the daemon stops.

use std::time::Duration;

use admission::error::ApiError;
use axum::body::Body;
use axum::response::Response;
use hyper_util::rt::TokioIo;
use listen::{Takeover, UpgradedStream};
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};

use super::exchange::{ProgramResponse, invalid_response};
use super::heads;
use super::tunnel::ProgramConnection;

/// The buffer of each direction.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long closing the client's side may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Answers `101` and takes the connection over.
pub async fn switch(answer: ProgramResponse) -> Result<Response, ApiError> {
    let gone = || invalid_response("it closed the connection with its response");
    let mut driver = answer.driver;
    if !answer.driven {
        let ended = std::future::poll_fn(|cx| driver.poll_without_shutdown(cx)).await;
        ended.map_err(|error| gone().with_cause(error))?;
    }
    let parts = driver.into_parts();
    let mut connection = TokioIo::into_inner(parts.io);
    connection.unread(parts.read_buf);
    connection.state.ends_at_stop();
    let mut response = heads::switched(answer.head).map(|()| Body::empty());
    response.extensions_mut().insert(Takeover::new(move |client| carry(client, connection)));
    Ok(response)
}

async fn carry(mut client: UpgradedStream, mut connection: ProgramConnection) {
    let carried =
        copy_bidirectional_with_sizes(&mut client, &mut connection, BUFFER_BYTES, BUFFER_BYTES).await;
    if let Err(error) = carried {
        tracing::debug!(target: "sandboxd::relay", %error, "a websocket failed");
    }
    drop(connection);
    // A client that does not close in time has gone.
    let _ = tokio::time::timeout(GOODBYE, client.shutdown()).await;
}
