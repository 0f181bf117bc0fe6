//! What there is of a fake sandbox's commands that outlive their link.

use std::collections::BTreeMap;
use std::sync::Arc;

use guest_proto::Exit;
use tokio::sync::{mpsc, watch};

/// Those of one sandbox, by the host's numbers.
pub type DetachedOps = BTreeMap<u64, Arc<DetachedOp>>;

/// A command that is not its link's.
pub struct DetachedOp {
    pub printed: watch::Sender<Printed>,
    stdin: mpsc::UnboundedSender<Option<Vec<u8>>>,
    received: watch::Sender<u64>,
    killed: watch::Sender<Option<i32>>,
}

/// All that it ever printed, and its end.
#[derive(Default)]
pub struct Printed {
    pub bytes: [Vec<u8>; 2],
    pub exit: Option<(Exit, u64)>,
}

impl DetachedOp {
    pub fn new(stdin: mpsc::UnboundedSender<Option<Vec<u8>>>, killed: watch::Sender<Option<i32>>) -> Self {
        Self { printed: watch::Sender::default(), stdin, received: watch::Sender::new(0), killed }
    }

    pub fn feed(&self, bytes: Option<&[u8]>) {
        self.received.send_modify(|received| *received += bytes.map_or(0, |bytes| bytes.len() as u64));
        // A command that has ended hears nothing.
        let _ = self.stdin.send(bytes.map(<[u8]>::to_vec));
    }

    pub fn received(&self) -> u64 {
        *self.received.borrow()
    }

    pub fn kill(&self, signal: i32) {
        self.killed.send_replace(Some(signal));
    }

    /// Whether the place is one of its output.
    pub fn has(&self, positions: [u64; 2]) -> bool {
        let printed = self.printed.borrow();
        positions.iter().zip(&printed.bytes).all(|(position, bytes)| *position <= bytes.len() as u64)
    }
}
