//! No network: sandboxes have only a loopback interface.

use std::os::fd::BorrowedFd;

use api::EgressPolicy;
use async_trait::async_trait;

use crate::contract::{Guest, NetError, Network, Usage};

/// A network that connects nothing.
pub struct NoNetwork;

#[async_trait]
impl Network for NoNetwork {
    async fn recover(&self, _living: &[(Guest, EgressPolicy)]) -> Result<(), NetError> {
        Ok(())
    }

    fn plug(&self, _guest: &Guest, _namespace: BorrowedFd<'_>) -> Result<(), NetError> {
        Ok(())
    }

    async fn apply(&self, _guest: &Guest, _policy: &EgressPolicy) -> Result<(), NetError> {
        Ok(())
    }

    async fn unplug(&self, _guest: &Guest) -> Result<(), NetError> {
        Ok(())
    }

    async fn usage(&self, _guest: &Guest) -> Usage {
        Usage::default()
    }

    fn total_usage(&self, _guests: &[Guest]) -> Usage {
        Usage::default()
    }

    async fn close(&self) {}

    async fn retire(&self) -> Result<(), NetError> {
        Ok(())
    }
}
