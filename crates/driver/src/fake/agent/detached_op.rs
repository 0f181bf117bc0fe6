//! The state of a detached command of a fake sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use guest_proto::Exit;
use tokio::sync::{mpsc, watch};

/// The detached commands of one sandbox, by operation number.
pub type DetachedOps = BTreeMap<u64, Arc<DetachedOp>>;

/// A command that outlives its link.
pub struct DetachedOp {
    pub printed: watch::Sender<Printed>,
    stdin: mpsc::UnboundedSender<Option<Vec<u8>>>,
    received: watch::Sender<u64>,
    killed: watch::Sender<Option<i32>>,
}

/// All output of a command, and its end.
#[derive(Clone, Default)]
pub struct Printed {
    pub bytes: [Vec<u8>; 2],
    pub exit: Option<(Exit, u64)>,
}

impl DetachedOp {
    pub fn new(stdin: mpsc::UnboundedSender<Option<Vec<u8>>>, killed: watch::Sender<Option<i32>>) -> Self {
        Self { printed: watch::Sender::default(), stdin, received: watch::Sender::new(0), killed }
    }

    pub fn write_stdin(&self, bytes: Option<&[u8]>) {
        self.received.send_modify(|received| *received += bytes.map_or(0, |bytes| bytes.len() as u64));
        // Fails if the command has ended.
        let _ = self.stdin.send(bytes.map(<[u8]>::to_vec));
    }

    pub fn received(&self) -> u64 {
        *self.received.borrow()
    }

    pub fn kill(&self, signal: i32) {
        self.killed.send_replace(Some(signal));
    }

    /// Whether the positions are within the output.
    pub fn has(&self, positions: [u64; 2]) -> bool {
        let printed = self.printed.borrow();
        positions.iter().zip(&printed.bytes).all(|(position, bytes)| *position <= bytes.len() as u64)
    }
}
