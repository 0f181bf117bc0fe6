use std::sync::Arc;

use super::*;
use crate::context::incoming::Incoming;
use crate::context::spool::tests::spool;
use crate::context::tests::archive;

const NOW: TimeMs = TimeMs(1_000_000);

async fn stored(content: &str) -> StoredContext {
    let file = archive(&[("file", content)]);
    let incoming = Incoming::new(&Arc::new(spool(1 << 20)), "own").unwrap();
    let content = std::fs::read(file.path()).unwrap();
    incoming.write(content.into()).await.unwrap().finish().await.unwrap()
}
fn id(number: u8) -> BuildContextId {
    BuildContextId::from_random([number; 20])
}

#[tokio::test]
async fn the_oldest_contexts_of_an_account_make_room_by_number_and_size() {
    let contexts = Contexts::default();
    let context = stored("a").await;
    let has = |account: &str, number: u8| contexts.find(account, &id(number), NOW).is_some();
    contexts.add("other", id(0), context.clone(), u64::MAX / 8, NOW);
    for number in 0..11 {
        contexts.add("own", id(number), context.clone(), u64::MAX / 8, NOW);
    }
    assert!(!has("own", 0) && has("own", 1) && has("own", 10) && has("other", 0));
    // Four of this size are the most: of ten, three stay beside the new one.
    contexts.add("own", id(11), context.clone(), context.size_bytes, NOW);
    assert!(!has("own", 7) && has("own", 8) && has("own", 10) && has("own", 11) && has("other", 0));
    // The same content again replaces itself.
    contexts.add("own", id(8), context.clone(), context.size_bytes, NOW);
    assert!(has("own", 9) && has("own", 10) && has("own", 11) && has("own", 8));
    assert!(contexts.find("own", &id(8), NOW.after(VALID_MS)).is_none());
}
