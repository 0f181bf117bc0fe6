//! The in-memory driver passes the conformance suite.

use std::sync::Arc;

use api::Isolation;
use driver::conformance::{Host, all};
use driver::fake::FakeDriver;

#[tokio::test]
async fn the_fake_driver_conforms() {
    for isolation in [Isolation::Container, Isolation::Gvisor] {
        let fake = FakeDriver::new();
        all(Host { driver: Arc::new(fake.clone()), isolation, layers: Vec::new() }).await;
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}
