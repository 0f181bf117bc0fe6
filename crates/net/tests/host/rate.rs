//! The rate limit of each sandbox.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use net::{HostNetwork, HostSettings, Network};

use crate::fixture::{Fixture, SERVER, TestSandbox, allow_all, plug};

const UPLOAD_PORT: u16 = 7009;
const DOWNLOAD_PORT: u16 = 7010;
/// The duration of a measurement, after as much time for TCP to find the rate.
const MEASURED: Duration = Duration::from_secs(2);
const MBIT: f64 = 1e6 / 8.0;

/// Serves an endless download, or discards an endless upload, on each connection.
fn serve(fixture: &Fixture) {
    fixture.outside.run_inside(|| {
        for port in [UPLOAD_PORT, DOWNLOAD_PORT] {
            let listener = TcpListener::bind((SERVER, port)).unwrap();
            thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    thread::spawn(move || {
                        let mut buffer = vec![7; 65_536];
                        match port {
                            UPLOAD_PORT => while stream.read(&mut buffer).is_ok_and(|length| length > 0) {},
                            _ => while stream.write_all(&buffer).is_ok() {},
                        }
                    });
                }
            });
        }
    });
}

/// The number of bytes so far, and the time at which it was read: again if this thread was preempted in between.
fn sample(bytes: &AtomicU64) -> (u64, Instant) {
    loop {
        let before = Instant::now();
        let count = bytes.load(Ordering::Relaxed);
        if before.elapsed() < Duration::from_millis(5) {
            return (count, before);
        }
    }
}

/// The rate in one direction that a connection of a sandbox gets, in Mbit/s.
async fn measure(one: &TestSandbox, port: u16) -> f64 {
    let mut stream = one.namespace.run_inside(|| TcpStream::connect((SERVER, port)).unwrap());
    // Data in the send buffer is counted as sent, so the buffer is small.
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 128 << 10).unwrap();
    let (bytes, connection) = (Arc::new(AtomicU64::new(0)), stream.try_clone().unwrap());
    let counting = Arc::clone(&bytes);
    let moving = thread::spawn(move || {
        let mut buffer = vec![7; 65_536];
        loop {
            let moved = match port {
                UPLOAD_PORT => stream.write(&buffer),
                _ => stream.read(&mut buffer),
            };
            match moved {
                Ok(length @ 1..) => counting.fetch_add(length as u64, Ordering::Relaxed),
                _ => return,
            };
        }
    });
    tokio::time::sleep(MEASURED).await;
    let (before, since) = sample(&bytes);
    tokio::time::sleep(MEASURED).await;
    let (after, until) = sample(&bytes);
    let rate = (after - before) as f64 / (until - since).as_secs_f64() / MBIT;
    connection.shutdown(std::net::Shutdown::Both).unwrap();
    moving.join().unwrap();
    rate
}

#[tokio::test]
async fn the_rate_limit_holds_per_sandbox_and_direction_also_after_a_restart() {
    let fixture = Fixture::new();
    serve(&fixture);
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let unlimited = measure(&one, DOWNLOAD_PORT).await;
    network.close().await;
    drop(network);
    let living = [(one.guest.clone(), allow_all())];
    for rate_mbit in [50, 200] {
        let (network, _refusals) =
            HostNetwork::open(HostSettings { rate_mbit, ..fixture.settings() }).unwrap();
        network.recover(&living).await.unwrap();
        let beside = plug(&network, 1);
        network.apply(&beside.guest, &allow_all()).await.unwrap();
        for port in [UPLOAD_PORT, DOWNLOAD_PORT] {
            let mut missed = Vec::new();
            loop {
                let (first, second) = tokio::join!(measure(&one, port), measure(&beside, port));
                eprintln!(
                    "rate_mbit {rate_mbit}, port {port}: {first:.1} and {second:.1} Mbit/s ({unlimited:.0} without)"
                );
                let limit = f64::from(rate_mbit);
                if [first, second].iter().all(|rate| (0.8..=1.2).contains(&(rate / limit))) {
                    break;
                }
                // On a busy machine TCP does not use its rate up, or a stall lets it catch up.
                missed.push((first, second));
                assert!(missed.len() < 3, "{missed:?}");
            }
        }
        network.unplug(&beside.guest).await.unwrap();
        network.close().await;
    }
    assert!(unlimited > 400.0, "{unlimited}");
}
