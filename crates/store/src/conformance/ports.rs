//! The exposed ports of sandboxes.
#![expect(clippy::unwrap_used, reason = "a suite of tests")]

use std::sync::Arc;

use api::PortVisibility;
use rules::TimeMs;

use super::{id, record};
use crate::{ExposedPort, SandboxRecord, Store, StoreError};

pub(super) async fn exposed_ports_follow_the_record(store: Arc<dyn Store>) {
    let port = |port, visibility, auto_resume| ExposedPort {
        port,
        visibility,
        auto_resume,
        exposed_at: TimeMs(1_700_000_000_000 + u64::from(port)),
        seal: [u8::MAX - port.to_be_bytes()[1]; 16],
    };
    let mut open = record(1);
    open.ports = vec![port(1, PortVisibility::Public, false), port(65_535, PortVisibility::Private, true)];
    store.put(open.clone()).await.unwrap();
    store.put(record(2)).await.unwrap();
    assert_eq!(store.get(&id(1)).await.unwrap().as_ref(), Some(&open));
    assert_eq!(store.living().await.unwrap(), [open.clone(), record(2)]);
    let mut fewer = SandboxRecord { revision: 2, ..open.clone() };
    fewer.ports.remove(0);
    store.put(fewer.clone()).await.unwrap();
    assert_eq!(store.get(&id(1)).await.unwrap(), Some(fewer));
    for ports in [vec![open.ports[1].clone(), open.ports[0].clone()], vec![open.ports[0].clone(); 2]] {
        let refused = store.put(SandboxRecord { revision: 3, ports, ..open.clone() }).await;
        assert!(matches!(refused, Err(StoreError::BadRecord { .. })), "{refused:?}");
    }
}
