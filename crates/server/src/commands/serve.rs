//! `sandboxd serve`: starts the service, serves until a signal, and shuts down.
//!
//! An error before the ready line fails the start. What it leaves on the host is recovered by the next start, except for the lxcfs that
//! it has started, which it ends. A later error ends a connection at most. Sandboxes keep running when the daemon ends or crashes.

mod full_disk;
mod images;
mod local_service;
mod lock;
mod parts;
mod shared_host;
mod signals;
mod welcome;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::Isolation;
use engine::Engine;
use image::Images;
use net::Network;
use rustix::fs::{FlockOperation, flock};
use service::Service;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::app::isolation::MissingIsolation;
use crate::app::lxcfs::{LxcfsSource, Supervisor};
use crate::app::{
    Opened, Pool, images_lock, make_private_dir, oom_score, open_engine, open_images, require_records,
    server_scope,
};
use crate::cli::ServeArguments;
use crate::config::Config;
use crate::first_key::{LocalKey, first_key};
use crate::notify::{self, notify};
use crate::replaced_database::{self, OpenDatabase};

pub use lock::path as lock_path;
use parts::BoundListeners;
use signals::Signals;
use welcome::Welcome;

/// The time that open requests get after the first signal.
const GRACE: Duration = Duration::from_secs(30);

pub async fn run(config: &Config, flags: &ServeArguments) -> Result<ExitCode> {
    let started = Instant::now();
    let mut signals = Signals::listen()?;
    if let Err(error) = listen::raise_file_limit() {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
    // Before the first program is started, which inherits it.
    oom_score::protect("self");
    make_private_dir(&config.data_dir)?;
    make_private_dir(&config.run_dir)?;
    let _one_daemon = (lock::lock(&config.data_dir)?, lock::lock(&config.run_dir)?);
    if !flags.discard_orphans {
        require_records(config)?;
    }
    // Prevents `image` commands from removing layers that a starting sandbox is about to use.
    let in_use = images_lock(config)?;
    flock(&in_use, FlockOperation::LockShared)?;
    // Before the slow steps, so that an address in use fails the start at once.
    let listeners = BoundListeners::bind(config).map_err(|error| full_disk::explain(error, config))?;
    let images = open_images(config).map_err(|error| full_disk::explain(error, config))?;
    if flags.pull_images {
        tokio::select! {
            () = images::fetch_example(&images) => {}
            signal = signals.stop() => {
                tracing::info!(signal, "stopped during the pull of images");
                images.close().await;
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
    let lxcfs = Supervisor::start(&LxcfsSource::of(config, &config.run_dir)?);
    let begun = match begin(config, images, listeners).await {
        Ok(begun) => begun,
        Err(error) => {
            if let Some(lxcfs) = lxcfs {
                end_lxcfs(move || lxcfs.abandon()).await;
            }
            return Err(full_disk::explain(error, config));
        }
    };
    let Begun { service, network, isolations, key, serving, served, maintenance } = begun;
    announce(config, flags, &serving, &key, &isolations, started);
    shared_host::warn_without_quotas(&config.quotas.table(), &service.gate.keyring.accounts());
    let fetching = images::start_others(flags.pull_images, config.e2b.base_image(), &service);

    let signal = signals.stop().await;
    tracing::info!(signal, grace_s = GRACE.as_secs(), "stopping; a second signal stops immediately");
    notify(notify::STOPPING);
    service.stopping.cancel();
    let orderly = async {
        serving.closed(&service).await;
        service.idempotency.settle().await;
        // The keyring is refreshed until here, so that a key that is revoked during shutdown is refused.
        served.cancel();
        service.images.close().await;
        service.builder.shutdown().await;
        let running = shut_down(&service.engine, network.as_ref(), lxcfs).await;
        fetching.await.context("the task that pulls images failed")?;
        maintenance.await.context("the maintenance task failed").map(|()| running)
    };
    tokio::select! {
        ended = orderly => log_stopped(ended?),
        signal = signals.stop() => {
            tracing::warn!(signal, "stopping immediately");
            log_stopped(service.engine.running());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A service that accepts connections.
struct Begun {
    service: Arc<Service>,
    network: Arc<dyn Network>,
    isolations: (Vec<Isolation>, Vec<MissingIsolation>),
    key: LocalKey,
    serving: parts::ServingListeners,
    /// Ends the maintenance.
    served: CancellationToken,
    maintenance: JoinHandle<()>,
}

async fn begin(config: &Config, images: Images, listeners: BoundListeners) -> Result<Begun> {
    let opened = open_engine(config, &images, &server_scope(config), Pool::AsConfigured).await?;
    let engine = opened.engine.clone();
    let begun = begin_serving(config, opened, images, listeners).await;
    if begun.is_err() {
        // Removes the warm pool, whose sandboxes use lxcfs.
        engine.shutdown().await;
    }
    begun
}

async fn begin_serving(
    config: &Config,
    opened: Opened,
    images: Images,
    listeners: BoundListeners,
) -> Result<Begun> {
    let network = Arc::clone(&opened.network);
    let isolations = (opened.isolation.available.clone(), opened.missing_isolations.clone());
    let database = OpenDatabase::of(&config.data_dir)?;
    let key = first_key(opened.store.as_ref(), &config.data_dir).await?;
    let service = parts::service(config, opened, images, listeners.port()).await?;
    let served = CancellationToken::new();
    let maintenance = admission::maintain(Arc::clone(&service.gate), served.clone());
    // Ends with its error, or with the runtime.
    drop(replaced_database::watch(database, served.clone()));
    let serving = listeners.serve(config, &service, GRACE)?;
    Ok(Begun { service, network, isolations, key, serving, served, maintenance })
}

/// Says that the service is ready, to people and to systemd.
fn announce(
    config: &Config,
    flags: &ServeArguments,
    serving: &parts::ServingListeners,
    key: &LocalKey,
    isolations: &(Vec<Isolation>, Vec<MissingIsolation>),
    started: Instant,
) {
    let (isolations, missing_isolations) = isolations;
    let welcome = Welcome {
        url: serving.url(),
        certificate: serving.certificate(),
        authorities: serving.authorities(),
        metrics: serving.metrics(),
        other_data_dir: (config.data_dir != Config::default().data_dir).then_some(config.data_dir.as_path()),
        key,
        show_key: flags.show_key,
        isolations,
        missing_isolations,
        e2b_base: config.e2b.base_image(),
    };
    // A closed standard output must not stop the service.
    let _ = std::io::stdout().write_all(welcome.text().as_bytes());
    notify(notify::READY);
    let start_ms = base::millis(started.elapsed());
    // With the places that only this service has, for those who remove it.
    let (run_dir, cgroup) = (config.run_dir.display(), &config.runtime.cgroup_parent);
    tracing::info!(url = serving.url(), start_ms, %run_dir, cgroup, "ready");
    // After the ready line, so that a loss is among the last lines of a start.
    for missing in missing_isolations {
        missing.log();
    }
}

/// The last line of the log. `running` is the number of sandboxes that the daemon leaves, as far as it is known.
fn log_stopped(running: usize) {
    if running > 0 {
        tracing::info!(running, "stopped; sandboxes keep running");
    } else {
        tracing::info!("stopped");
    }
}

/// Short: the supervisor checks for its stop five times a second.
async fn end_lxcfs(end: impl FnOnce() + Send + 'static) {
    if let Err(error) = tokio::task::spawn_blocking(end).await {
        tracing::warn!(%error, "the supervisor of lxcfs panicked");
    }
}

/// Stops the engine, the network and lxcfs. Running sandboxes keep their firewall rules; without any, network and lxcfs are
/// removed. Returns the number of sandboxes that run.
async fn shut_down(engine: &Engine, network: &dyn Network, lxcfs: Option<Supervisor>) -> usize {
    // Before the engine forgets its sandboxes.
    let (living, running) = (engine.living(), engine.running());
    engine.shutdown().await;
    network.close().await;
    if let Some(lxcfs) = lxcfs {
        end_lxcfs(move || lxcfs.stop(living)).await;
    }
    if living == 0
        && let Err(error) = network.retire().await
    {
        tracing::warn!(%error, "cannot remove the network of the sandboxes from this host");
    }
    running
}

#[cfg(test)]
mod tests {
    use admission::captured_log::CapturedLog;

    use super::*;

    #[test]
    fn the_end_says_that_sandboxes_run_only_if_some_do() {
        for (running, expected) in [(0, "stopped"), (2, "stopped; sandboxes keep running")] {
            let log = CapturedLog::default();
            let _capture = log.begin();
            log_stopped(running);
            let lines = log.of_target("sandboxd::commands::serve");
            assert_eq!(lines.len(), 1, "{lines:?}");
            assert_eq!(lines[0]["fields"]["message"], expected);
        }
    }
}
