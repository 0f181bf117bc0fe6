//! A websocket: once the program agreed, bytes both ways as they come. It ends when both sides have, when nothing moves for too long,
//! with the exposure, and when the daemon stops.

use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use hyper_util::rt::TokioIo;
use listen::{Taken, Takeover};
use tokio::io::{AsyncWriteExt, copy_bidirectional_with_sizes};

use super::exchange::{Answer, bad_answer};
use super::heads;
use super::inside::Inside;
use crate::error::ApiError;

/// What is under way in each direction here.
const BUFFER_BYTES: usize = 16 * 1024;
/// For the client to be told of the end.
const GOODBYE: Duration = Duration::from_secs(1);

/// Answers `101`, and says what happens then.
pub async fn switch(answer: Answer) -> Result<Response, ApiError> {
    let gone = || bad_answer("it closed the connection with its answer");
    let mut driver = answer.driver;
    if !answer.driven {
        let ended = std::future::poll_fn(|cx| driver.poll_without_shutdown(cx)).await;
        ended.map_err(|error| gone().with_cause(error))?;
    }
    let parts = driver.into_parts();
    let mut inside = TokioIo::into_inner(parts.io);
    inside.unread(parts.read_buf);
    inside.state.ends_at_stop();
    let mut response = heads::switched(answer.head).map(|()| Body::empty());
    response.extensions_mut().insert(Takeover::new(move |client| carry(client, inside)));
    Ok(response)
}

async fn carry(mut client: Taken, mut inside: Inside) {
    let carried = copy_bidirectional_with_sizes(&mut client, &mut inside, BUFFER_BYTES, BUFFER_BYTES).await;
    if let Err(error) = carried {
        tracing::debug!(target: "sandboxd::relay", %error, "a websocket broke off");
    }
    drop(inside);
    // Whoever does not take it has gone.
    let _ = tokio::time::timeout(GOODBYE, client.shutdown()).await;
}
