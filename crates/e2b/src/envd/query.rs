//! The query of `/files`.

use super::connect::RpcError;
use crate::percent::strictly_decoded;

/// The parameters, decoded. An empty one counts as absent, except in the signature, where both are the same.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct FileQuery {
    pub path: String,
    pub username: String,
    pub signature: Option<String>,
    pub signature_expiration: Option<i64>,
}

impl FileQuery {
    /// Parses a query. Unknown parameters are ignored; of a repeated one the first counts.
    pub fn parse(query: Option<&str>) -> Result<Self, RpcError> {
        let find = |wanted: &str| -> Result<Option<String>, RpcError> {
            let pairs = query.unwrap_or_default().split('&');
            let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
            let Some((_, value)) = pairs.find(|(name, _)| *name == wanted) else { return Ok(None) };
            let decoded = strictly_decoded(value).ok_or_else(|| {
                RpcError::invalid(format!("the parameter '{wanted}' is not percent-encoded UTF-8"))
            })?;
            Ok(Some(decoded))
        };
        let expiration = find("signature_expiration")?.filter(|text| !text.is_empty());
        let signature_expiration = match expiration {
            None => None,
            Some(text) => Some(text.parse().map_err(|_| {
                RpcError::invalid("the parameter 'signature_expiration' is not a number of seconds")
            })?),
        };
        Ok(Self {
            path: find("path")?.unwrap_or_default(),
            username: find("username")?.unwrap_or_default(),
            signature: find("signature")?,
            signature_expiration,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parameters_are_decoded_once() {
        let query =
            FileQuery::parse(Some("path=%2Ftmp%2Fa+b%252F&username=root&signature=v1_a%2Bb&x=y")).unwrap();
        assert_eq!(query.path, "/tmp/a b%2F");
        assert_eq!(query.username, "root");
        assert_eq!(query.signature.as_deref(), Some("v1_a+b"));
        assert_eq!(FileQuery::parse(None).unwrap(), FileQuery::default());
        for broken in ["path=%", "path=%2", "path=%zz", "path=%+1", "path=%ff", "signature_expiration=x"] {
            assert!(FileQuery::parse(Some(broken)).is_err(), "{broken}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_read_without_panic(text in ".{0,200}") {
            let _ = FileQuery::parse(Some(&text));
        }
    }
}
