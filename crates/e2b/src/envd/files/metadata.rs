//! The metadata of an upload: headers `X-Metadata-KEY: VALUE`, stored as extended attributes of the file.

use axum::http::HeaderMap;
use engine::FileAttributes;

use crate::envd::connect::RpcError;
use crate::envd::filesystem::entry::METADATA_PREFIX;

const HEADER_PREFIX: &str = "x-metadata-";
/// Most bytes in all keys and values.
const MAX_BYTES: usize = 4096;

/// The attributes that replace those of the file. Names of headers are in lower case.
pub fn attributes(headers: &HeaderMap) -> Result<FileAttributes, RpcError> {
    let mut pairs = Vec::new();
    for (name, value) in headers {
        let Some(key) = name.as_str().strip_prefix(HEADER_PREFIX) else { continue };
        if key.is_empty() {
            return Err(RpcError::invalid("a metadata key is empty"));
        }
        let text =
            value.to_str().map_err(|_| RpcError::invalid(format!("metadata '{key}' is not ASCII text")))?;
        if pairs.iter().any(|(other, _)| other == key) {
            return Err(RpcError::invalid(format!("metadata '{key}' was sent more than once")));
        }
        pairs.push((key.to_owned(), text.to_owned()));
    }
    let bytes: usize = pairs.iter().map(|(key, value): &(String, String)| key.len() + value.len()).sum();
    if bytes > MAX_BYTES {
        return Err(RpcError::invalid(format!(
            "the metadata has {bytes} bytes; allowed: at most {MAX_BYTES}"
        )));
    }
    Ok(FileAttributes { prefix: METADATA_PREFIX.to_owned(), pairs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&'static str, &str)]) -> Result<Vec<(String, String)>, RpcError> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        attributes(&headers).map(|attributes| attributes.pairs)
    }

    #[test]
    fn only_headers_with_the_prefix_count() {
        let found = of(&[("x-metadata-author", "me"), ("x-other", "1")]).unwrap();
        assert_eq!(found, [("author".to_owned(), "me".to_owned())]);
        assert_eq!(of(&[]).unwrap(), []);
    }

    #[test]
    fn unusable_metadata_is_refused() {
        assert!(of(&[("x-metadata-", "a")]).is_err());
        assert!(of(&[("x-metadata-a", "1"), ("x-metadata-a", "2")]).is_err());
        assert!(of(&[("x-metadata-a", &"x".repeat(4096))]).is_err());
        assert!(of(&[("x-metadata-a", &"x".repeat(4095))]).is_ok());
        let mut headers = HeaderMap::new();
        headers.insert("x-metadata-a", axum::http::HeaderValue::from_bytes(b"\xe9").unwrap());
        assert!(attributes(&headers).is_err());
    }
}
