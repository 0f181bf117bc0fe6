//! Watches of directories: the changes that writes by the API are.

use e2e::service::{Client, Events};
use hyper::Method;

use crate::files::{files_path, put, write};
use crate::{create_sandbox, output, text, user};

/// Opens an active watch.
async fn watch(client: &Client, id: &str, query: &str) -> Events {
    let client = client.with_own_connections();
    let mut events = client.call(Method::GET, &files_path(id, "/watch", query)).stream().await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().name, "ready");
    events
}

/// The changes up to the end of a watch, as `KIND PATH`.
async fn changes(events: Events) -> Vec<String> {
    let mut events = events.rest().await.unwrap();
    assert_eq!(events.pop().map(|event| event.name).as_deref(), Some("done"));
    let shown = events.into_iter().map(|event| {
        assert_eq!(event.name, "change", "{event:?}");
        let change = event.json().unwrap();
        format!("{} {}", text(&change["kind"]), text(&change["path"]))
    });
    shown.collect()
}

#[tokio::test]
async fn a_write_is_one_change_of_its_path() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    output(&client, &id, "mkdir -p notes/below; echo old > notes/old").await;
    let flat = watch(&client, &id, "path=notes").await;
    let tree = watch(&client, &id, "path=notes&recursive=true").await;
    for path in ["today.txt", "old", "below/deep"] {
        write(&client, &id, &format!("notes/{path}"), vec![b'x'; 3_000_000]).await;
        write(&client, &id, &format!("notes/{path}"), "short").await;
    }
    put(&client, &files_path(&id, "", "path=notes/old&mode=0600"), "").await.is(200).unwrap();
    // One entry after the other: its listing has no order.
    output(&client, &id, "cd notes; rm today.txt; rm old; rm -r below; cd ..; rmdir notes").await;
    let expected_in_tree = [
        "create /workspace/notes/today.txt",
        "write /workspace/notes/today.txt",
        "write /workspace/notes/old",
        "write /workspace/notes/old",
        "create /workspace/notes/below/deep",
        "write /workspace/notes/below/deep",
        "write /workspace/notes/old",
        "remove /workspace/notes/today.txt",
        "remove /workspace/notes/old",
        "remove /workspace/notes/below/deep",
        "remove /workspace/notes/below",
        "remove /workspace/notes",
    ];
    assert_eq!(changes(tree).await, expected_in_tree);
    let below = "/workspace/notes/below/";
    let expected: Vec<&str> = expected_in_tree.into_iter().filter(|change| !change.contains(below)).collect();
    assert_eq!(changes(flat).await, expected);
}
