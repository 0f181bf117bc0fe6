//! Whether the kernel kills processes of a sandbox for lack of memory while a command runs.
//!
//! The count is that of the sandbox and not of the command ([`OutOfMemory`]). It begins at zero with each start of the sandbox, so kills
//! before a wake are not seen by the commands that are continued.

use std::sync::Arc;

use api::SandboxId;
use driver::MemoryKills;
use rules::OutOfMemory;
use store::SandboxRecord;

use crate::host::Host;
use crate::record::status::ProcessLoss;

/// Since when a command runs, in kills and in revisions of the record.
pub struct MemoryWatch {
    host: Arc<Host>,
    id: SandboxId,
    limit_mb: u32,
    revision: u64,
    before: Option<MemoryKills>,
}

impl MemoryWatch {
    /// To be called together with the start of the command: nothing exhausts memory as fast as a file is read.
    pub async fn begin(host: &Arc<Host>, record: &SandboxRecord) -> Self {
        Self {
            host: Arc::clone(host),
            id: record.id.clone(),
            limit_mb: record.config.resources.memory_mb,
            revision: record.revision,
            before: host.driver().memory_kills(&record.id).await,
        }
    }

    /// Whether the kernel has killed processes since then.
    pub async fn out_of_memory(&self) -> Option<OutOfMemory> {
        self.compare(self.host.driver().memory_kills(&self.id).await)
    }

    /// Whether it had when all processes were lost. A loss before the command is another one.
    pub fn out_of_memory_at(&self, loss: ProcessLoss) -> Option<OutOfMemory> {
        if self.is_over_at(loss) { self.compare(loss.memory_kills) } else { None }
    }

    /// Whether the command has ended by a loss of all processes.
    pub fn is_over_at(&self, loss: ProcessLoss) -> bool {
        loss.number > self.revision
    }

    fn compare(&self, now: Option<MemoryKills>) -> Option<OutOfMemory> {
        out_of_memory(self.before?, now?, self.limit_mb)
    }
}

fn out_of_memory(before: MemoryKills, now: MemoryKills, limit_mb: u32) -> Option<OutOfMemory> {
    let whose = if now.has_reached_limit {
        OutOfMemory::Sandbox { limit_mb }
    } else {
        OutOfMemory::Host { limit_mb }
    };
    (now.count > before.count).then_some(whose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kills_since_the_start_count_and_the_limit_that_was_reached_is_named() {
        let kills = |count, has_reached_limit| MemoryKills { count, has_reached_limit };
        let since_one = |now| out_of_memory(kills(1, true), now, 512);
        assert_eq!(since_one(kills(1, true)), None);
        assert_eq!(since_one(kills(2, true)), Some(OutOfMemory::Sandbox { limit_mb: 512 }));
        assert_eq!(since_one(kills(2, false)), Some(OutOfMemory::Host { limit_mb: 512 }));
        // The sandbox was started again.
        assert_eq!(since_one(kills(0, false)), None);
    }
}
