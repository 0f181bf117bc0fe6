//! New random ids.

use api::{ExecutionId, SandboxId, SnapshotId};
use rand::Rng;

pub fn new_sandbox_id() -> SandboxId {
    SandboxId::from_random(random())
}

pub fn new_snapshot_id() -> SnapshotId {
    SnapshotId::from_random(random())
}

pub fn new_execution_id() -> ExecutionId {
    ExecutionId::from_random(random())
}

fn random() -> [u8; 20] {
    let mut random = [0; 20];
    rand::rng().fill_bytes(&mut random);
    random
}
