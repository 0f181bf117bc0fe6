//! Where copies are stored: a bucket of an S3 server, or a directory.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::ArchiveError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of one request, which transfers at most a chunk or a manifest.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// If the store stays unreachable for longer, the call fails.
const RETRIES: usize = 3;
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Directory(PathBuf),
    S3 { bucket: String, prefix: String },
}

/// Settings of an S3 server. What is absent comes from the environment variables that tools for S3 use, such as `AWS_REGION`.
#[derive(Debug, Clone, Default)]
pub struct S3Options {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    pub credentials: Option<Credentials>,
}

/// A key for an S3 server, in place of the one of the environment.
#[derive(Clone)]
pub struct Credentials {
    pub access_key_id: String,
    pub secret_access_key: String,
}

impl fmt::Debug for Credentials {
    /// Without the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

impl FromStr for Location {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if !path.starts_with('/') {
                return Err(format!("'{text}' is not the absolute path of a directory"));
            }
            return Ok(Self::Directory(PathBuf::from(path)));
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err(format!("'{text}' begins neither with 's3://' nor with 'file:'"));
        };
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_');
        if bucket.len() < 3 || bucket.len() > 63 || !bucket.chars().all(allowed) {
            return Err(format!("'{bucket}' is not the name of a bucket"));
        }
        Ok(Self::S3 { bucket: bucket.to_owned(), prefix: prefix.trim_end_matches('/').to_owned() })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(dir) => write!(f, "file:{}", dir.display()),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

impl Location {
    /// The store, and the path below which everything is.
    pub(crate) fn open(&self, options: &S3Options) -> Result<(Arc<dyn ObjectStore>, Path), ArchiveError> {
        let bad = |error: &dyn std::fmt::Display| ArchiveError::Configuration(error.to_string());
        match self {
            Self::Directory(dir) => {
                std::fs::create_dir_all(dir)?;
                let store = LocalFileSystem::new_with_prefix(dir).map_err(|error| bad(&error))?;
                Ok((Arc::new(store.with_automatic_cleanup(true).with_fsync(true)), Path::default()))
            }
            Self::S3 { bucket, prefix } => {
                let prefix = Path::parse(prefix).map_err(|error| bad(&error))?;
                let store = s3(bucket, options).build().map_err(|error| bad(&error))?;
                Ok((Arc::new(store), prefix))
            }
        }
    }
}

fn s3(bucket: &str, options: &S3Options) -> AmazonS3Builder {
    // reqwest takes that of the process. Fails if it was set before, to the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = ClientOptions::new().with_connect_timeout(CONNECT_TIMEOUT).with_timeout(REQUEST_TIMEOUT);
    let retry =
        RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_TIMEOUT, backoff: BackoffConfig::default() };
    // The server compares what arrives with the checksum, so a damaged upload is refused.
    let mut builder = AmazonS3Builder::from_env()
        .with_client_options(client)
        .with_bucket_name(bucket)
        .with_retry(retry)
        .with_checksum_algorithm(Checksum::SHA256);
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    // An endpoint without TLS is an explicit choice.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_allow_http(true);
    }
    if let Some(region) = &options.region {
        builder = builder.with_region(region);
    }
    if let Some(Credentials { access_key_id, secret_access_key }) = &options.credentials {
        builder = builder.with_access_key_id(access_key_id).with_secret_access_key(secret_access_key);
    }
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_or_a_directory() {
        let s3 = |bucket: &str, prefix: &str| {
            Ok(Location::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        };
        assert_eq!("s3://bucket".parse(), s3("bucket", ""));
        assert_eq!("s3://bucket/".parse(), s3("bucket", ""));
        assert_eq!("s3://my.bucket/a/b/".parse(), s3("my.bucket", "a/b"));
        for text in ["file:/srv/copies", "file:///srv/copies"] {
            assert_eq!(text.parse(), Ok(Location::Directory("/srv/copies".into())));
        }
        for text in ["", "bucket", "s3://", "s3://Bucket/a", "s3:///a", "file:copies", "gs://bucket"] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_prefix_cannot_lead_elsewhere() {
        for prefix in ["a//b", "../a", "a/../b", "a/./b"] {
            let location = Location::S3 { bucket: "bucket".to_owned(), prefix: prefix.to_owned() };
            assert!(location.open(&S3Options::default()).is_err(), "{prefix}");
        }
    }
}
