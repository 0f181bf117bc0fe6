//! The fake backend passes the conformance suite.

use std::sync::Arc;

use driver::conformance::{Host, all};
use driver::fake::FakeDriver;

#[tokio::test]
async fn the_fake_behaves_as_a_wall_does() {
    let fake = FakeDriver::new();
    all(Host { driver: Arc::new(fake.clone()), layers: Vec::new() }).await;
    assert_eq!(fake.violations(), Vec::<String>::new());
}
