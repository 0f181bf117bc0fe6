//! API keys for tests, created with the command that operators use.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::IgnorePoison;

use super::{Client, Service};

/// A running server accepts a new key within a second; a machine under load may need longer.
const KEY_TIMEOUT: Duration = Duration::from_secs(90);
/// Keys that are created together. A running server looks for new keys a few times a second; most tests then need not wait.
const BATCH: usize = 6;

/// Unused accounts with their keys.
#[derive(Default)]
pub(super) struct Keys {
    spare: Mutex<Vec<(String, String)>>,
    next: AtomicU32,
}

impl Service {
    /// Runs `sandboxd key create`. The server may need a moment to accept the key.
    pub fn key(&self, account: &str, scopes: &str) -> Result<String> {
        self.key_with(account, scopes, &[])
    }

    /// With further arguments, such as `--limits none`.
    pub fn key_with(&self, account: &str, scopes: &str, arguments: &[&str]) -> Result<String> {
        let mut command = self.program()?;
        command.args(["key", "create", "--account", account, "--scopes", scopes]).args(arguments);
        let output = command.output()?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "'key create' ended with {}: {stderr}", output.status);
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// A client with a new key that the server accepts.
    pub async fn client_with_new_key(&self, account: &str, scopes: &str) -> Result<Client> {
        let client = self.client(&self.key(account, scopes)?)?;
        wait_until_accepted(&client).await?;
        Ok(client)
    }

    /// A client with all scopes in an account that no other test uses.
    pub async fn account(&self) -> Result<Client> {
        let spare = self.keys.spare.lock().ignore_poison().pop();
        let (_, key) = match spare {
            Some(spare) => spare,
            None => self.create_accounts().await?,
        };
        self.client(&key)
    }

    async fn create_accounts(&self) -> Result<(String, String)> {
        let mut created = Vec::with_capacity(BATCH);
        for _ in 0..BATCH {
            let account = format!("account-{}", self.keys.next.fetch_add(1, Ordering::Relaxed));
            let key = self.key(&account, "read,execute,write")?;
            created.push((account, key));
        }
        let (_, last) = created.last().context("no key")?;
        wait_until_accepted(&self.client(last)?).await?;
        let one = created.pop().context("no key")?;
        self.keys.spare.lock().ignore_poison().extend(created);
        Ok(one)
    }
}

async fn wait_until_accepted(client: &Client) -> Result<()> {
    let begin = Instant::now();
    while client.get("/v1/sandboxes?limit=1").await?.status == 401 {
        ensure!(begin.elapsed() < KEY_TIMEOUT, "the server does not accept a new key");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
