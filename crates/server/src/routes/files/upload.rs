//! A request's body on its way into a sandbox, never more of it than a few chunks. The sandbox takes as fast as its disk does, and
//! the client is read as fast as that.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::BytesMut;
use engine::FileOperation;
use http_body_util::BodyExt;

use super::Asked;
use crate::error::ApiError;
use crate::routes::read::{broken_body, values};

/// Enough that what a frame of the link costs does not count: a body comes in frames of 16 KiB, as TLS has them.
const PIECE: usize = 192 * 1024;
/// What has come waits so long for more.
const LINGER: Duration = Duration::from_millis(2);

/// Whether the body can be what it says.
pub fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let encodings = values(headers, header::CONTENT_ENCODING);
    Ok(reader::raw_content(encodings, values(headers, header::CONTENT_RANGE))?)
}

/// Feeds all of it. A sandbox that takes no more says why in what it says next; the rest is then left unread.
pub async fn feed(asked: &Asked, work: &mut FileOperation, mut body: Body) -> Result<(), ApiError> {
    let mut joined = BytesMut::new();
    loop {
        let next = if joined.is_empty() {
            body.frame().await
        } else if let Ok(next) = tokio::time::timeout(LINGER, body.frame()).await {
            next
        } else {
            if !fed(asked, work, &mut joined).await? {
                return Ok(());
            }
            continue;
        };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|fault| broken_body(&fault))?;
        let Ok(data) = frame.into_data() else { continue };
        joined.extend_from_slice(&data);
        if joined.len() >= PIECE && !fed(asked, work, &mut joined).await? {
            return Ok(());
        }
    }
    if !joined.is_empty() && !fed(asked, work, &mut joined).await? {
        return Ok(());
    }
    work.finish().await.map(drop).map_err(|error| asked.fault(error))
}

/// False when it takes no more.
async fn fed(asked: &Asked, work: &mut FileOperation, joined: &mut BytesMut) -> Result<bool, ApiError> {
    let more = work.feed(joined).await.map_err(|error| asked.fault(error))?;
    joined.clear();
    Ok(more)
}
