//! A rig for the duration of a bench, removed even if the bench fails.

use anyhow::{Context as _, Result, bail};
use e2e::{Rig, RigOptions};

/// Runs `body` with a rig. An interrupt from the keyboard ends the body, and the rig is removed.
pub async fn with_rig<T>(options: RigOptions, body: impl AsyncFnOnce(&Rig) -> Result<T>) -> Result<T> {
    let rig = Rig::new(options).await.context("starting an engine")?;
    with(rig, body).await
}

pub async fn with<T>(rig: Rig, body: impl AsyncFnOnce(&Rig) -> Result<T>) -> Result<T> {
    let result = tokio::select! {
        result = body(&rig) => result,
        interrupted = tokio::signal::ctrl_c() => match interrupted {
            Ok(()) => Err(anyhow::anyhow!("interrupted")),
            Err(error) => Err(error.into()),
        },
    };
    let name = rig.name.clone();
    match (result, rig.clear().await) {
        (Ok(value), Ok(())) => Ok(value),
        (Ok(_), Err(error)) => Err(error).with_context(|| format!("removing {name}")),
        (Err(error), Ok(())) => Err(error),
        (Err(error), Err(clearing)) => bail!("{error:#}; also, removing {name} failed: {clearing:#}"),
    }
}
