//! What an operator sees of a service: its metrics, and its memory.

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Service;
use crate::process;

impl Service {
    /// The response with all metrics.
    pub async fn read_metrics(&self) -> Result<String> {
        let mut stream = TcpStream::connect(self.metrics).await?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        ensure!(response.starts_with("HTTP/1.1 200"), "{response}");
        Ok(response)
    }

    /// The resident memory of the daemon.
    pub fn resident_kb(&self) -> Result<u64> {
        process::resident_kb(self.pid().context("the service is not running")?)
    }

    /// The number of open files of the daemon.
    pub fn open_files(&self) -> Result<usize> {
        process::open_files(self.pid().context("the service is not running")?)
    }
}

/// The sum of the samples with this name and all of these labels.
///
/// # Panics
///
/// If a line of the metrics is no sample.
pub fn sample(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let has_name = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
    let has_labels = |line: &&str| labels.iter().all(|label| line.contains(label));
    let value = |line: &str| -> f64 {
        let value = line.rsplit_once(' ').and_then(|(_, value)| value.parse().ok());
        value.unwrap_or_else(|| panic!("not a sample: {line}"))
    };
    metrics.lines().filter(has_name).filter(has_labels).map(value).sum()
}
