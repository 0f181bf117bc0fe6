//! Detached commands of a fake sandbox. Each link sends the output from the position that the host asks for.

use std::io;
use std::sync::Arc;

use guest_proto::{Channel, DETACHED_WINDOW, ToHost};
use tokio::sync::{mpsc, watch};

use super::detached_op::DetachedOp;
use super::guest::{GuestState, Inbox, Inner, Out, index, lock};
use super::script::{self, Command, Stream};

const PIECE: usize = 16 * 1024;

/// Starts a command. It ends with its sandbox at the latest.
pub fn start(op: u64, command: Command, inner: &Arc<Inner>) -> Arc<DetachedOp> {
    let (stdin, from_host) = mpsc::unbounded_channel();
    let (killed, kill) = watch::channel(None);
    // No credit: the output is stored, and links read it.
    let (_, credit) = watch::channel([0; 2]);
    let detached_op = Arc::new(DetachedOp::new(stdin, killed));
    lock(&inner.detached_ops).insert(op, Arc::clone(&detached_op));
    let stream = Stream::detached(op, Arc::clone(inner), Arc::clone(&detached_op));
    let inbox = Inbox { stdin: from_host, credit, killed: kill };
    let inner = Arc::clone(inner);
    tokio::spawn(async move {
        let mut life = inner.life.subscribe();
        tokio::select! {
            _ = life.wait_for(|life| *life == GuestState::Dead) => {}
            _ = script::run(stream, command, inbox) => {}
        }
    });
    detached_op
}

/// Sends a command's output and its end over one link.
pub async fn forward_output(
    op: u64,
    detached_op: Arc<DetachedOp>,
    out: Out,
    mut sent: [u64; 2],
    mut credit: watch::Receiver<[u64; 2]>,
) -> io::Result<()> {
    let mut printed = detached_op.printed.subscribe();
    loop {
        let granted = *credit.borrow_and_update();
        let mut has_sent = false;
        for channel in [Channel::Stdout, Channel::Stderr] {
            let n = index(channel);
            let piece = {
                let printed = printed.borrow_and_update();
                let from = usize::try_from(sent[n]).unwrap_or(usize::MAX).min(printed.bytes[n].len());
                let room = usize::try_from(granted[n] - sent[n]).unwrap_or(usize::MAX);
                let rest = &printed.bytes[n][from..];
                rest[..rest.len().min(room).min(PIECE)].to_vec()
            };
            if !piece.is_empty() {
                out.send(&ToHost::Data { op, channel, bytes: &piece }).await?;
                sent[n] += piece.len() as u64;
                has_sent = true;
            }
        }
        if has_sent {
            continue;
        }
        let is_all = (0..2).all(|n| printed.borrow().bytes[n].len() as u64 == sent[n]);
        let exit = printed.borrow().exit;
        if let Some((exit, duration_us)) = exit.filter(|_| is_all) {
            return out.send(&ToHost::Exited { op, exit, duration_us }).await;
        }
        tokio::select! {
            changed = printed.changed() => changed.map_err(io::Error::other)?,
            changed = credit.changed() => changed.map_err(io::Error::other)?,
        }
    }
}

/// The initial credit of a link that starts at these positions.
pub fn first_grant(positions: [u64; 2]) -> [u64; 2] {
    positions.map(|position| position + u64::from(DETACHED_WINDOW))
}
