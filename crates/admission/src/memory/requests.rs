//! The memory for the bodies of requests: [`RequestMemory`].

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rules::ReachedLimit;

use super::{Exhausted, MemoryBudget, Reservation, reserved_bytes};
use crate::error::{ApiError, RefusalCode};

/// Bytes of a request's body that need no reservation.
pub const FREE_BYTES: usize = 64 << 10;
const REQUEST_BYTES: usize = 64 << 20;
/// Leaves the other accounts enough for one body of the largest size.
const REQUEST_ACCOUNT_BYTES: usize = 48 << 20;
/// How long one body waits in all.
const REQUEST_MAX_WAIT: Duration = Duration::from_secs(5);
const RETRY_S: u64 = 5;

/// Bodies of an account in progress that need no reservation for their first [`FREE_BYTES`]. More of them reserve all their bytes.
const FREE_BODIES: usize = 256;

/// The memory for the bodies of requests. A body reserves as it arrives, never more than twice what has arrived, so that a
/// client that only announces a long body holds nothing.
pub struct RequestMemory {
    budget: MemoryBudget,
    /// For the first bytes of bodies, without a limit of all accounts together.
    free: MemoryBudget,
}

impl Default for RequestMemory {
    fn default() -> Self {
        Self {
            budget: MemoryBudget::new(REQUEST_BYTES, REQUEST_ACCOUNT_BYTES),
            free: MemoryBudget::new(usize::MAX, FREE_BODIES * FREE_BYTES),
        }
    }
}

impl RequestMemory {
    /// For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn reserved_bytes(&self) -> usize {
        self.budget.reserved_bytes()
    }

    /// For one body of at most `most` bytes.
    pub fn body(&self, account: &Arc<str>, most: usize) -> GrowingBody {
        let mut free = self.free.reservation(account, Duration::ZERO);
        let first = FREE_BYTES.min(most);
        let covered = if free.try_grow(first).is_ok() { first } else { 0 };
        GrowingBody {
            reservation: self.budget.reservation(account, REQUEST_MAX_WAIT),
            bytes: Vec::new(),
            covered,
            most,
            free,
        }
    }
}

/// The body of a request while it arrives.
pub struct GrowingBody {
    reservation: Reservation,
    bytes: Vec<u8>,
    covered: usize,
    most: usize,
    free: Reservation,
}

impl GrowingBody {
    /// The greatest length.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Bytes that have arrived.
    pub fn received(&self) -> usize {
        self.bytes.len()
    }

    /// The caller makes sure that `data` fits into `most` with what has arrived.
    pub async fn add(&mut self, data: &[u8]) -> Result<(), ApiError> {
        let needed = self.bytes.len() + data.len();
        if needed > self.covered {
            // Without free bytes the first reservation is as large as they are.
            let covered = self.covered.saturating_mul(2).max(FREE_BYTES).min(self.most).max(needed);
            self.reservation.grow(covered - self.covered).await.map_err(too_many_bodies)?;
            self.covered = covered;
            self.bytes.reserve_exact(covered - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The whole body, which keeps its reservation until its last clone is dropped.
    pub fn done(self) -> Bytes {
        if self.reservation.permits.is_none() && self.free.permits.is_none() {
            return self.bytes.into();
        }
        reserved_bytes(self.bytes, (self.reservation, self.free))
    }
}

fn too_many_bodies(exhausted: Exhausted) -> ApiError {
    let why = format!("the memory for request bodies is full; send at most {FREE_BYTES} bytes, or wait");
    let (bytes, counts) = match exhausted {
        Exhausted::OfAccount => (REQUEST_ACCOUNT_BYTES, "bytes of request bodies of an account"),
        Exhausted::OfAll => (REQUEST_BYTES, "bytes of request bodies of all accounts"),
    };
    let limit = ReachedLimit::fixed(bytes as u64, counts);
    ApiError::refused(RefusalCode::ResourceExhausted, why, limit, RETRY_S)
}

#[cfg(test)]
mod tests {
    use api::ErrorCode;
    use tokio::time::Instant;

    use super::*;

    const MIB: usize = 1 << 20;

    async fn grown(
        memory: &RequestMemory,
        account: &Arc<str>,
        bytes: usize,
    ) -> Result<GrowingBody, ApiError> {
        let mut growing = memory.body(account, 16 * MIB);
        while growing.received() < bytes {
            growing.add(&[7; FREE_BYTES][..FREE_BYTES.min(bytes - growing.received())]).await?;
        }
        Ok(growing)
    }

    #[tokio::test(start_paused = true)]
    async fn each_account_and_all_together_have_a_limit_and_small_bodies_pass() {
        let memory = RequestMemory::default();
        let [one, two]: [Arc<str>; 2] = ["one".into(), "two".into()];
        let mut held = Vec::new();
        for account in [&one, &one, &one, &two] {
            held.push(grown(&memory, account, 16 * MIB).await.unwrap().done());
        }
        assert!(REQUEST_BYTES - memory.reserved_bytes() <= 4 * FREE_BYTES);
        for (account, value) in [(&one, REQUEST_ACCOUNT_BYTES), (&two, REQUEST_BYTES)] {
            let began = Instant::now();
            let refused = grown(&memory, account, 2 * MIB).await.err().unwrap();
            assert_eq!((refused.code, refused.retry_after_s), (ErrorCode::ResourceExhausted, Some(RETRY_S)));
            assert_eq!(refused.details["value"], value);
            assert!(began.elapsed() >= REQUEST_MAX_WAIT && began.elapsed() < REQUEST_MAX_WAIT * 2);
            assert_eq!(grown(&memory, account, FREE_BYTES).await.unwrap().done().len(), FREE_BYTES);
        }
        // A clone keeps the whole reservation, and a body that waits gets what is released.
        let clone = held[0].clone();
        assert_eq!(clone.len(), 16 * MIB);
        held.remove(0);
        assert!(grown(&memory, &one, 2 * MIB).await.is_err());
        let (waited, ()) = tokio::join!(grown(&memory, &one, 2 * MIB), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(clone);
        });
        drop((waited.unwrap(), held));
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn bodies_of_an_account_are_free_up_to_a_number() {
        let memory = RequestMemory::default();
        let one: Arc<str> = "one".into();
        let mut free = Vec::new();
        for _ in 0..FREE_BODIES {
            free.push(grown(&memory, &one, FREE_BYTES).await.unwrap().done());
        }
        assert_eq!(memory.reserved_bytes(), 0);
        let counted = grown(&memory, &one, FREE_BYTES).await.unwrap().done();
        assert_eq!(memory.reserved_bytes(), FREE_BYTES);
        // Another account has free ones of its own, and those of this one are free again when they are dropped.
        drop((grown(&memory, &"two".into(), FREE_BYTES).await.unwrap(), counted, free.pop()));
        drop(grown(&memory, &one, FREE_BYTES).await.unwrap());
        assert_eq!(memory.reserved_bytes(), 0);
    }

    #[tokio::test]
    async fn the_reservation_follows_the_bytes_that_arrived() {
        let memory = RequestMemory::default();
        let growing = grown(&memory, &"one".into(), 3 * MIB).await.unwrap();
        let held = memory.reserved_bytes();
        assert!((2 * MIB..=6 * MIB).contains(&held), "{held}");
        assert!(growing.bytes.capacity() <= held + FREE_BYTES);
        assert_eq!(&growing.done()[..], &vec![7; 3 * MIB][..]);
    }
}
