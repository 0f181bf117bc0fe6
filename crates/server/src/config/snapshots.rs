//! `[snapshots]`: where copies of snapshots are stored.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use archive::{Credentials, Location, S3Options, Secrets, WithoutCode};
use serde::{Deserialize, Serialize};

use super::declare::{shapes, table};
use super::problems::Problems;

/// Snapshots stay on this host only.
const NONE: &str = "file:";
/// In the data directory, made at the first start with an object store.
const SECRET_FILE: &str = "snapshots.secret";
const HOUR_MS: u64 = 3600 * 1000;

table! {
    /// Copies of snapshots in an object store; see [object-store.md](object-store.md).
    pub struct SnapshotStore {
        /// Where copies of snapshots are stored: a bucket, or a directory such as that of a network file system. `"file:"`:
        /// snapshots are on this host only.
        store: String = NONE.to_owned(), "`\"file:\"`, `\"s3://BUCKET/PREFIX\"` or `\"file:/DIR\"`";
        /// Address of an S3 server. `""`: `AWS_ENDPOINT_URL` of the environment, or that of the region.
        endpoint: String, "URL";
        /// Region of the bucket. `""`: `AWS_REGION` of the environment, or `us-east-1`.
        region: String, "name";
        /// Key of the S3 server. `""`: `AWS_ACCESS_KEY_ID` of the environment, or the credentials of the cloud's machine.
        access_key_id: String, "text";
        /// Its secret. Nobody but root may be able to read the file then. `""`: `AWS_SECRET_ACCESS_KEY` of the environment.
        secret_access_key: Secret, "text";
        /// File with the secret that all hosts with this store share; only its owner may be able to read it. `""`:
        /// `snapshots.secret` in the data directory, which is made at the first start.
        secret_file: PathBuf, "path";
        /// Accepts copies that earlier releases have stored, which have no authentication code. Whoever can write to the store
        /// can then replace snapshots.
        accept_unauthenticated: bool = false, "boolean";
        /// Snapshots that are in the object store and that nothing has used for this time are removed from this host; the next
        /// use copies them back. `0`: never.
        local_hours: u64 = 0, "hours" in 0..=10 * 365 * 24;
    }
}

/// A text that logs do not show.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

shapes! { Text: Secret; }

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "(not shown)" })
    }
}

impl SnapshotStore {
    pub(super) fn check(&self) -> Result<(), Problems> {
        Problems::of([self.check_store(), self.check_credentials(), self.check_endpoint()])
    }

    fn check_store(&self) -> Result<()> {
        let has_store = self.location()?.is_some();
        ensure!(
            has_store || self.local_hours == 0,
            "snapshots.local_hours is {}, but snapshots.store names no object store",
            self.local_hours
        );
        Ok(())
    }

    fn check_credentials(&self) -> Result<()> {
        ensure!(
            self.access_key_id.is_empty() == self.secret_access_key.0.is_empty(),
            "snapshots.access_key_id and snapshots.secret_access_key must be set together"
        );
        Ok(())
    }

    fn check_endpoint(&self) -> Result<()> {
        let endpoint = &self.endpoint;
        ensure!(
            endpoint.is_empty() || endpoint.starts_with("https://") || endpoint.starts_with("http://"),
            "snapshots.endpoint is '{endpoint}'; it must be a URL such as https://s3.example.com"
        );
        Ok(())
    }

    /// Whether the file of the configuration has a secret.
    pub fn has_secret(&self) -> bool {
        !self.secret_access_key.0.is_empty()
    }

    /// Where copies are stored; `None` if snapshots stay on this host only.
    pub fn location(&self) -> Result<Option<Location>> {
        if self.store == NONE {
            return Ok(None);
        }
        let location = self.store.parse().map_err(|error: String| anyhow::anyhow!(error));
        location.map(Some).context("snapshots.store")
    }

    pub fn options(&self) -> S3Options {
        let given = |text: &String| (!text.is_empty()).then(|| text.clone());
        let credentials = given(&self.access_key_id).map(|access_key_id| Credentials {
            access_key_id,
            secret_access_key: self.secret_access_key.0.clone(),
        });
        S3Options { endpoint: given(&self.endpoint), region: given(&self.region), credentials }
    }

    /// The secret of this host. A file that the operator names must exist.
    pub fn secrets(&self, data_dir: &Path) -> Result<Secrets> {
        let without_code =
            if self.accept_unauthenticated { WithoutCode::Accept } else { WithoutCode::Refuse };
        let secrets = if self.secret_file.as_os_str().is_empty() {
            Secrets::read_or_create(&data_dir.join(SECRET_FILE), without_code)
        } else {
            Secrets::read(&self.secret_file, without_code)
        };
        Ok(secrets?)
    }

    pub const fn local_ms(&self) -> u64 {
        self.local_hours.saturating_mul(HOUR_MS)
    }
}
