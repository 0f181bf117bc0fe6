//! `sandboxd serve`: puts the service together, serves until it is told to stop, and takes it apart again.
//!
//! Whatever fails before the ready line fails the start, and nothing of it needs to be undone: starting is recovering. What
//! fails later ends a connection at most. Sandboxes live on when the daemon ends, however it ends.

mod images;
mod lock;
mod parts;
mod signals;
mod welcome;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use engine::Engine;
use net::Network;
use rustix::fs::{FlockOperation, flock};
use tokio_util::sync::CancellationToken;

use crate::app::lxcfs::{Source, Supervisor};
use crate::app::{Pool, images_lock, make_private_dir, open_engine, open_images, server_scope};
use crate::cli::ServeArguments;
use crate::config::Config;
use crate::first_key::first_key;
use crate::layers;
use crate::notify::{self, notify};

use parts::Doors;
use signals::Signals;
use welcome::Welcome;

/// How long requests that are under way may take once the daemon is told to stop.
const GRACE: Duration = Duration::from_secs(30);

pub async fn run(config: &Config, flags: &ServeArguments) -> Result<ExitCode> {
    let began = Instant::now();
    let mut signals = Signals::listen()?;
    if let Err(error) = listen::raise_file_limit() {
        tracing::warn!(%error, "could not raise the limit on open files");
    }
    make_private_dir(&config.data_dir)?;
    make_private_dir(&config.run_dir)?;
    let _one_daemon = (lock::lock(&config.data_dir)?, lock::lock(&config.run_dir)?);
    // Nobody may remove layers that a sandbox is about to stand on.
    let in_use = images_lock(config)?;
    flock(&in_use, FlockOperation::LockShared)?;
    // An address that is taken is found out before anything takes its time.
    let doors = Doors::bind(config)?;
    let images = open_images(config)?;
    if flags.fetch_images {
        tokio::select! {
            () = images::fetch_example(&images) => {}
            signal = signals.stop() => {
                tracing::info!(signal, "stopped while fetching images");
                images.close().await;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let lxcfs = Supervisor::start(&Source::of(config, &config.run_dir)?);
    let opened = open_engine(config, &images, &server_scope(config), Pool::AsConfigured).await?;
    let network = opened.network;
    let key = first_key(opened.store.as_ref(), &config.data_dir).await?;
    let service = parts::service(config, opened.engine, opened.store, images, doors.port()).await?;
    let served = CancellationToken::new();
    let tending = layers::tend(Arc::clone(&service), served.clone());
    let open = doors.open(config, &service, GRACE)?;
    let welcome = Welcome {
        url: open.url(),
        certificate: open.certificate(),
        metrics: open.metrics(),
        key: &key,
        show_key: flags.show_key,
    };
    // Nobody there to read it is no reason not to serve.
    let _ = std::io::stdout().write_all(welcome.text().as_bytes());
    notify(notify::READY);
    let start_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    tracing::info!(url = open.url(), start_ms, "ready");
    let fetching = flags
        .fetch_images
        .then(|| tokio::spawn(images::fetch_others(service.images.clone(), service.stopping.clone())));

    let signal = signals.stop().await;
    tracing::info!(signal, grace_s = GRACE.as_secs(), "stopping; a second signal stops at once");
    notify(notify::STOPPING);
    service.stopping.cancel();
    let orderly = async {
        open.closed().await;
        service.once.settle().await;
        // A key that is revoked while the last requests are served is refused until the end.
        served.cancel();
        service.images.close().await;
        leave(&service.engine, network.as_ref(), lxcfs).await;
        if let Some(fetching) = fetching {
            fetching.await.context("the task that fetches images")?;
        }
        tending.await.context("the task that tends keys and limits")
    };
    tokio::select! {
        ended = orderly => ended?,
        signal = signals.stop() => tracing::warn!(signal, "stopping at once"),
    }
    tracing::info!("stopped; sandboxes live on");
    Ok(ExitCode::SUCCESS)
}

/// Sandboxes that live on keep what lets them through, and above all what does not. Where none does, nothing of it stays.
async fn leave(engine: &Engine, network: &dyn Network, lxcfs: Option<Supervisor>) {
    let living = engine.living();
    engine.shutdown().await;
    network.close().await;
    if let Some(lxcfs) = lxcfs {
        // Ends within a moment: the supervisor looks for its stop five times a second.
        let stopped = tokio::task::spawn_blocking(move || lxcfs.stop(living)).await;
        if let Err(error) = stopped {
            tracing::warn!(%error, "the supervisor of lxcfs panicked");
        }
    }
    if living == 0
        && let Err(error) = network.retire().await
    {
        tracing::warn!(%error, "something of the network stays on this host");
    }
}
