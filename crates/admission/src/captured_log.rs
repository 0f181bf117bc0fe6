//! What a test logs. Compiled for tests only.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, Once};

use base::IgnorePoison;
use serde_json::Value;

/// What this thread logs from `begin` until the returned [`Capture`] is dropped.
#[derive(Clone, Default)]
pub struct CapturedLog(Arc<Mutex<Vec<u8>>>);

thread_local! {
    static LOG: RefCell<CapturedLog> = RefCell::default();
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends the capture that [`CapturedLog::begin`] started.
pub struct Capture;

impl Drop for Capture {
    fn drop(&mut self) {
        LOG.take();
    }
}

impl CapturedLog {
    /// Captures the log of this thread. All tests share one subscriber: one that is installed by each test can miss the first message
    /// of another thread.
    pub fn begin(&self) -> Capture {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            tracing_subscriber::fmt()
                .json()
                .with_writer(|| LOG.with_borrow(Clone::clone))
                .with_max_level(tracing::Level::TRACE)
                .init();
        });
        LOG.set(self.clone());
        Capture
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.lock()).into_owned()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().ignore_poison()
    }

    /// The lines of requests.
    pub fn requests(&self) -> Vec<Value> {
        self.of_target("sandboxd::request")
    }

    /// The lines of a module, or of a target that the code names.
    pub fn of_target(&self, target: &str) -> Vec<Value> {
        let text = self.text();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["target"] == target).collect()
    }
}
