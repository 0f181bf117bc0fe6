//! The decoded body of an upload. Gzip is decoded in small steps, so a body that expands enormously is held one step at a time; the
//! sandbox's disk limits the rest.

use std::io::Write as _;

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;

use crate::envd::connect::{RpcError, next_chunk};

/// Compressed bytes of one step. They expand to at most about a thousand times as many.
const STEP: usize = 1024;

/// A body, decoded while it is read.
pub struct DecodedBody {
    body: Body,
    decoder: Option<Decoder>,
}

struct Decoder {
    inner: MultiGzDecoder<Vec<u8>>,
    input: Bytes,
    is_finished: bool,
}

impl DecodedBody {
    pub fn new(body: Body, is_gzip: bool) -> Self {
        let decoder = is_gzip.then(|| Decoder {
            inner: MultiGzDecoder::new(Vec::new()),
            input: Bytes::new(),
            is_finished: false,
        });
        Self { body, decoder }
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RpcError> {
        let Some(decoder) = &mut self.decoder else { return next_chunk(&mut self.body).await };
        loop {
            if decoder.is_finished {
                return Ok(None);
            }
            if decoder.input.is_empty() {
                match next_chunk(&mut self.body).await? {
                    Some(input) => decoder.input = input,
                    None => {
                        decoder.is_finished = true;
                        decoder.inner.try_finish().map_err(|error| invalid(&error))?;
                    }
                }
            }
            let step = decoder.input.len().min(STEP);
            decoder.inner.write_all(&decoder.input[..step]).map_err(|error| invalid(&error))?;
            decoder.input.advance(step);
            let output = std::mem::take(decoder.inner.get_mut());
            if !output.is_empty() {
                return Ok(Some(output.into()));
            }
        }
    }
}

fn invalid(error: &std::io::Error) -> RpcError {
    RpcError::invalid(format!("the body is not valid gzip: {error}"))
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    async fn decode(body: Vec<u8>) -> Result<(usize, usize), RpcError> {
        let mut body = DecodedBody::new(Body::from(body), true);
        let (mut total, mut largest) = (0, 0);
        while let Some(bytes) = body.next().await? {
            total += bytes.len();
            largest = largest.max(bytes.len());
        }
        Ok((total, largest))
    }

    #[tokio::test]
    async fn a_bomb_is_decoded_in_small_steps() {
        let (total, largest) = decode(gzip(&vec![0; 64 << 20])).await.unwrap();
        assert_eq!(total, 64 << 20);
        assert!(largest <= 2 << 20, "{largest}");
    }

    #[tokio::test]
    async fn broken_gzip_is_refused() {
        let whole = gzip(b"content of a file");
        assert_eq!(decode(whole.clone()).await.unwrap().0, 17);
        assert_eq!(decode([whole.clone(), whole.clone()].concat()).await.unwrap().0, 34);
        assert!(decode(whole[..whole.len() - 4].to_vec()).await.is_err());
        assert!(decode(b"not gzip".to_vec()).await.is_err());
        assert!(decode([&whole[..], b"trailing"].concat()).await.is_err());
    }
}
