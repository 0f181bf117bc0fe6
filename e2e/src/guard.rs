//! Removes a rig even if its test fails. A test that passed fails if the rig cannot be removed.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::Poll;

use crate::{Rig, RigOptions};

/// Runs a test on a new rig.
pub async fn with_rig<T>(options: RigOptions, test: impl AsyncFnOnce(&Rig) -> T) -> T {
    let rig = match Rig::new(options).await {
        Ok(rig) => rig,
        Err(error) => panic!("could not create a rig: {error:#}"),
    };
    let outcome = {
        let mut running = pin!(test(&rig));
        poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Ok(value)),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await
    };
    let cleared = rig.clear().await;
    match outcome {
        Ok(value) => {
            assert!(cleared.is_ok(), "the rig could not be cleared: {cleared:?}");
            value
        }
        Err(panic) => {
            if let Err(error) = cleared {
                eprintln!("the rig could not be cleared: {error:#}");
            }
            resume_unwind(panic)
        }
    }
}
