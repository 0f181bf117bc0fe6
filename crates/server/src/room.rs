//! Memory for the bodies of requests, of all together: [`Room`].
//!
//! `routes::read` takes of it while a body arrives, never more than twice of what came, so that who only says that much will
//! come holds nothing. Small bodies need none. Who finds it full waits a little, and is then told to come back; what a body
//! had taken is free again when the last copy of the body is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::ErrorCode;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::error::ApiError;

/// Of a body, what needs no room.
pub const FREE_BYTES: usize = 64 << 10;
const ALL_BYTES: usize = 64 << 20;
/// Of one account: it leaves the others room for one body of the largest size.
const ACCOUNT_BYTES: usize = 48 << 20;
/// Of one body, in all.
const PATIENCE: Duration = Duration::from_secs(5);
const RETRY_S: u64 = 5;

/// The room there is.
pub struct Room {
    all: Arc<Semaphore>,
    /// As many as there are accounts with a key, which the operator makes.
    accounts: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Default for Room {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL_BYTES)), accounts: Mutex::default() }
    }
}

impl Room {
    /// For one body of an account, which may become `most` bytes long.
    pub fn body(&self, account: &Arc<str>, most: usize) -> Growing {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let of_account = accounts.entry(Arc::clone(account));
        let of_account = of_account.or_insert_with(|| Arc::new(Semaphore::new(ACCOUNT_BYTES)));
        Growing {
            shares: [Arc::clone(of_account), Arc::clone(&self.all)],
            bytes: Vec::new(),
            room: FREE_BYTES.min(most),
            most,
            taken: Vec::new(),
            patience: PATIENCE,
        }
    }

    #[cfg(test)]
    pub fn free_bytes(&self) -> usize {
        self.all.available_permits()
    }
}

/// A body that arrives.
pub struct Growing {
    shares: [Arc<Semaphore>; 2],
    bytes: Vec<u8>,
    room: usize,
    most: usize,
    taken: Vec<OwnedSemaphorePermit>,
    patience: Duration,
}

impl Growing {
    pub fn most(&self) -> usize {
        self.most
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// `data` goes with what is there into `most`: whoever calls has seen to it.
    pub async fn add(&mut self, data: &[u8]) -> Result<(), ApiError> {
        let needed = self.bytes.len() + data.len();
        if needed > self.room {
            let room = self.room.saturating_mul(2).min(self.most).max(needed);
            self.take(room - self.room).await?;
            self.room = room;
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The whole body, which holds its room until its last copy is dropped.
    pub fn done(self) -> Bytes {
        if self.taken.is_empty() {
            return self.bytes.into();
        }
        Bytes::from_owner(Held { bytes: self.bytes, _taken: self.taken })
    }

    async fn take(&mut self, bytes: usize) -> Result<(), ApiError> {
        let count = u32::try_from(bytes).map_err(ApiError::internal)?;
        let began = Instant::now();
        let taking = async {
            let [account, all] = self.shares.clone();
            // The account's first: who waits for its own bodies holds nothing of the others'.
            Ok::<_, tokio::sync::AcquireError>([
                account.acquire_many_owned(count).await?,
                all.acquire_many_owned(count).await?,
            ])
        };
        let taken = tokio::time::timeout(self.patience, taking).await.map_err(|_| full())?;
        self.taken.extend(taken.map_err(ApiError::internal)?);
        self.patience = self.patience.saturating_sub(began.elapsed());
        Ok(())
    }
}

struct Held {
    bytes: Vec<u8>,
    _taken: Vec<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn full() -> ApiError {
    let message = format!(
        "the server holds as many large bodies as it may; try again in {RETRY_S} s, or send at most {FREE_BYTES} bytes"
    );
    ApiError::new(ErrorCode::ResourceExhausted, message).retry_after(RETRY_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    async fn grown(room: &Room, account: &Arc<str>, bytes: usize) -> Result<Growing, ApiError> {
        let mut growing = room.body(account, 16 * MIB);
        while growing.len() < bytes {
            growing.add(&[7; FREE_BYTES][..FREE_BYTES.min(bytes - growing.len())]).await?;
        }
        Ok(growing)
    }

    #[tokio::test(start_paused = true)]
    async fn an_account_and_all_together_have_a_bound_and_small_bodies_pass() {
        let room = Room::default();
        let [one, two]: [Arc<str>; 2] = ["one".into(), "two".into()];
        let mut held = Vec::new();
        for account in [&one, &one, &one, &two] {
            held.push(grown(&room, account, 16 * MIB).await.unwrap().done());
        }
        assert!(room.free_bytes() <= 4 * FREE_BYTES, "{}", room.free_bytes());
        for account in [&one, &two] {
            let began = Instant::now();
            let refused = grown(&room, account, 2 * MIB).await.err().unwrap();
            assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::ResourceExhausted, Some(RETRY_S)));
            assert!(began.elapsed() >= PATIENCE && began.elapsed() < PATIENCE * 2);
            assert_eq!(grown(&room, account, FREE_BYTES).await.unwrap().done().len(), FREE_BYTES);
        }
        // Who waits gets what is given back, and a copy holds as much as the body itself.
        let copy = held[0].clone();
        assert_eq!(copy.len(), 16 * MIB);
        held.remove(0);
        assert!(grown(&room, &one, 2 * MIB).await.is_err());
        let (waited, ()) = tokio::join!(grown(&room, &one, 2 * MIB), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(copy);
        });
        drop((waited.unwrap(), held));
        assert_eq!(room.free_bytes(), ALL_BYTES);
    }

    #[tokio::test]
    async fn what_a_body_holds_follows_what_came() {
        let room = Room::default();
        let growing = grown(&room, &"one".into(), 3 * MIB).await.unwrap();
        let held = ALL_BYTES - room.free_bytes();
        assert!((2 * MIB..=6 * MIB).contains(&held), "{held}");
        assert!(growing.bytes.capacity() <= held + FREE_BYTES);
        assert_eq!(&growing.done()[..], &vec![7; 3 * MIB][..]);
    }
}
