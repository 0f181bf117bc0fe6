//! A request's body on its way into a sandbox, never more of it than a few chunks. The sandbox takes as fast as its disk does, and
//! the client is read as fast as that.

use api::ErrorCode;
use axum::body::Body;
use axum::http::{HeaderMap, header};
use engine::FileWork;
use http_body_util::BodyExt;

use super::Asked;
use crate::error::ApiError;
use crate::routes::read::values;

/// Whether the body can be what it says.
pub fn check(headers: &HeaderMap) -> Result<(), ApiError> {
    let encodings = values(headers, header::CONTENT_ENCODING);
    Ok(reader::raw_content(encodings, values(headers, header::CONTENT_RANGE))?)
}

/// Feeds all of it. A sandbox that takes no more says why in what it says next; the rest is then left unread.
pub async fn feed(asked: &Asked, work: &mut FileWork, mut body: Body) -> Result<(), ApiError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| {
            let message = format!("the body could not be read to its end: {fault}");
            ApiError::new(ErrorCode::InvalidRequest, message)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if !work.feed(&data).await.map_err(|error| asked.fault(error))? {
            return Ok(());
        }
    }
    work.finish().await.map(drop).map_err(|error| asked.fault(error))
}
