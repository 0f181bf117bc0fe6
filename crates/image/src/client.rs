//! What bounds the pulls that clients of the API cause: bytes of their account, and turns among all accounts.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use permits::{SharedPermit, SharedPermits};
use rules::PullQuotaReached;
use serde::{Deserialize, Serialize};

use crate::error::FailureKind;
use crate::fault::Fault;

/// Pulls of one account that run or wait. Callers of the same image share one.
pub(crate) const PULLS_OF_ACCOUNT: usize = 16;
/// The time for a pull. A registry could send slowly for ever, and other pulls of the account would wait.
pub(crate) const PULL_TIMEOUT: Duration = Duration::from_secs(3600);
/// Pulls of clients that transfer layers at a time, and of one account.
const TRANSFERS: usize = 32;
const TRANSFERS_OF_ACCOUNT: usize = 2;
/// Layers for clients that unpack at a time. An account has one of them, so that large layers of one do not block all.
const UNPACKS: usize = 3;
const UNPACKS_OF_ACCOUNT: usize = 1;

/// Who has named an image or a registry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NamedBy {
    /// The operator, in the configuration or on the command line.
    #[default]
    Operator,
    /// A client of the API.
    Client,
}

/// Who may use the layers of an image that is on this host without having received them. To know the id of a layer is not enough: a
/// manifest can name it without having it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Audience {
    /// All accounts: the operator has chosen the image, or everybody can pull it without a login.
    Everyone,
    /// Pulls from this repository.
    Repository(String),
}

impl Audience {
    /// Whether a pull whose layers are for `other` may use these.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        *self == Self::Everyone || self == other
    }
}

/// Counts what accounts pull. The server knows their quotas.
pub trait PullQuota: Send + Sync {
    /// Whether the account may pull so many bytes more.
    fn check(&self, account: &str, bytes: u64) -> Result<(), PullQuotaReached>;

    /// Counts bytes that were received for the account. Called for each part of a transfer, so it must not block.
    fn take(&self, account: &str, bytes: u64) -> Result<(), PullQuotaReached>;
}

/// Whose request a pull is for, and what an image for it may take.
#[derive(Clone)]
pub struct ClientPull {
    pub account: Arc<str>,
    pub quota: Arc<dyn PullQuota>,
    /// Unpacked bytes of one image, if the operator allows less than [`crate::ImageLimits`].
    pub max_unpacked_bytes: Option<u64>,
    /// Free bytes that the pull has to leave on the disk.
    pub min_free_bytes: u64,
}

/// The pulls of clients take turns, so that no account delays others for long.
pub(crate) struct ClientTurns {
    transfers: SharedPermits,
    unpacks: SharedPermits,
}

impl Default for ClientTurns {
    fn default() -> Self {
        Self {
            transfers: SharedPermits::new(TRANSFERS, TRANSFERS_OF_ACCOUNT),
            unpacks: SharedPermits::new(UNPACKS, UNPACKS_OF_ACCOUNT),
        }
    }
}

/// A pull for a client while it runs.
pub(crate) struct ClientCharge {
    client: ClientPull,
    turns: Arc<ClientTurns>,
    reached: OnceLock<PullQuotaReached>,
}

impl ClientCharge {
    pub(crate) fn new(client: ClientPull, turns: Arc<ClientTurns>) -> Self {
        Self { client, turns, reached: OnceLock::new() }
    }

    /// Fails if the account has not so many bytes left.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), Fault> {
        self.client.quota.check(&self.client.account, bytes).map_err(|reached| self.refuse(reached))
    }

    /// Counts received bytes.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Fault> {
        self.client.quota.take(&self.client.account, bytes).map_err(|reached| self.refuse(reached))
    }

    /// The quota that has ended the pull.
    pub(crate) fn reached(&self) -> Option<PullQuotaReached> {
        self.reached.get().copied()
    }

    pub(crate) async fn transfer_turn(&self) -> SharedPermit {
        self.turns.transfers.acquire(&self.client.account).await
    }

    pub(crate) async fn unpack_turn(&self) -> SharedPermit {
        self.turns.unpacks.acquire(&self.client.account).await
    }

    fn refuse(&self, reached: PullQuotaReached) -> Fault {
        let _ = self.reached.set(reached); // one of several transfers was the first
        Fault::new(FailureKind::TooBig, format!("the account may not pull more: {}", reached.limit()))
    }
}
