//! Forwards a request body to a file operation, a few chunks at a time: the client is read at the speed of the sandbox's disk.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::BytesMut;
use engine::FileOperation;
use http_body_util::BodyExt;

use super::FileRequest;
use crate::error::ApiError;
use crate::routes::read::{broken_body, values};

/// Large enough to make the cost per frame of the link negligible; a body arrives in TLS records of 16 KiB.
const PIECE: usize = 192 * 1024;
/// How long received bytes wait for more.
const LINGER: Duration = Duration::from_millis(2);

/// Checks the headers of the body.
pub fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let encodings = values(headers, header::CONTENT_ENCODING);
    Ok(reader::raw_content(encodings, values(headers, header::CONTENT_RANGE))?)
}

/// Forwards the whole body. If the agent stops reading, the rest is left unread, and the agent's next response has the reason.
pub async fn forward(
    request: &FileRequest,
    work: &mut FileOperation,
    mut body: Body,
) -> Result<(), ApiError> {
    let mut joined = BytesMut::new();
    loop {
        let next = if joined.is_empty() {
            body.frame().await
        } else if let Ok(next) = tokio::time::timeout(LINGER, body.frame()).await {
            next
        } else {
            if !send_piece(request, work, &mut joined).await? {
                return Ok(());
            }
            continue;
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|fault| broken_body(&fault))?;
        let Ok(data) = frame.into_data() else { continue };
        joined.extend_from_slice(&data);
        if joined.len() >= PIECE && !send_piece(request, work, &mut joined).await? {
            return Ok(());
        }
    }
    if !joined.is_empty() && !send_piece(request, work, &mut joined).await? {
        return Ok(());
    }
    work.finish().await.map(drop).map_err(|error| request.fault(error))
}

/// `false` if the agent stopped reading.
async fn send_piece(
    request: &FileRequest,
    work: &mut FileOperation,
    joined: &mut BytesMut,
) -> Result<bool, ApiError> {
    let more = work.send_upload(joined).await.map_err(|error| request.fault(error))?;
    joined.clear();
    Ok(more)
}
