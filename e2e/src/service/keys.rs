//! API keys for tests, created with the command that operators use.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Client, Service};

/// A running server is said to know a new key within a second; on a machine under load it may sleep longer.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
/// Made at a time: a running server looks for new ones a few times a second, and tests then need not wait.
const BATCH: usize = 6;

/// Accounts that nobody uses yet.
#[derive(Default)]
pub(super) struct Keys {
    spare: Mutex<Vec<(String, String)>>,
    next: AtomicU32,
}

impl Service {
    /// `sandboxd key create`. The server may need a moment to know the key.
    pub fn key(&self, account: &str, scopes: &str) -> Result<String> {
        let output =
            self.program()?.args(["key", "create", "--account", account, "--scopes", scopes]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "'key create' ended with {}: {said}", output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// A client with a new key that the server knows.
    pub async fn client_of(&self, account: &str, scopes: &str) -> Result<Client> {
        let client = self.client(&self.key(account, scopes)?)?;
        known(&client).await?;
        Ok(client)
    }

    /// A client that may do everything, in an account of its own.
    pub async fn account(&self) -> Result<Client> {
        let spare = self.keys.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let (_, key) = match spare {
            Some(spare) => spare,
            None => self.more_accounts().await?,
        };
        self.client(&key)
    }

    async fn more_accounts(&self) -> Result<(String, String)> {
        let mut made = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let account = format!("account-{}", self.keys.next.fetch_add(1, Ordering::Relaxed));
            let key = self.key(&account, "read,execute,write")?;
            made.push((account, key));
        }
        let (_, last) = made.last().context("no key")?;
        known(&self.client(last)?).await?;
        let one = made.pop().context("no key")?;
        self.keys.spare.lock().unwrap_or_else(PoisonError::into_inner).extend(made);
        Ok(one)
    }
}

async fn known(client: &Client) -> Result<()> {
    let begin = Instant::now();
    while client.get("/v1/sandboxes?limit=1").await?.status == 401 {
        ensure!(begin.elapsed() < KNOWN_WITHIN, "the server does not get to know a new key");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
