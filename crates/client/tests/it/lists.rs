//! Lists that change between two pages: no item that stays is repeated or skipped.

use futures_util::TryStreamExt;
use sandboxd_client::{Client, ItemStream};

use crate::proxy::Proxy;

const IMAGE: &str = "ubuntu:24.04";

/// Reads the first page, of two items, changes the list, and reads the rest. Returns all ids in order of the alphabet.
async fn read<T>(
    mut list: ItemStream<T>,
    id: impl Fn(&T) -> String,
    change: impl AsyncFnOnce(Vec<String>),
) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < 2 {
        let item = list.try_next().await.unwrap().unwrap();
        found.push(id(&item));
    }
    change(found.clone()).await;
    while let Some(item) = list.try_next().await.unwrap() {
        found.push(id(&item));
    }
    found.sort();
    found
}

/// Creates sandboxes and returns their ids in order of the alphabet.
async fn sandboxes(client: &Client, count: usize) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(client.create(IMAGE).await.unwrap().id().to_string());
    }
    ids.sort();
    ids
}

#[tokio::test]
async fn terminated_sandboxes_skip_none() {
    let proxy = Proxy::start();
    let client = proxy.direct();
    let ids = sandboxes(&client, 6).await;
    let list = proxy.client().list().page_size(2).stream();
    // The next sandboxes move to the places of those on the first page.
    let terminate = async |first: Vec<String>| {
        assert_eq!(proxy.seen().len(), 1, "a page is requested when it is needed");
        for id in first {
            client.sandbox(&id).unwrap().terminate().await.unwrap();
        }
    };
    assert_eq!(read(list, |item| item.id.to_string(), terminate).await, ids);
}

#[tokio::test]
async fn created_sandboxes_repeat_none() {
    let proxy = Proxy::start();
    let client = proxy.direct();
    let ids = sandboxes(&client, 5).await;
    let list = proxy.client().list().page_size(2).stream();
    let create = async |_: Vec<String>| {
        client.create(IMAGE).await.unwrap();
    };
    let mut found = read(list, |item| item.id.to_string(), create).await;
    found.retain(|id| ids.contains(id));
    assert_eq!(found, ids);
}

#[tokio::test]
async fn deleted_and_new_snapshots_neither_skip_nor_repeat() {
    let proxy = Proxy::start();
    let client = proxy.direct();
    let sandbox = client.create(IMAGE).await.unwrap();
    let mut ids = Vec::new();
    for _ in 0..6 {
        ids.push(sandbox.snapshot().await.unwrap().id.to_string());
    }
    ids.sort();
    let list = proxy.client().snapshots().page_size(2).stream();
    let delete = async |first: Vec<String>| {
        for id in first {
            client.delete_snapshot(&id).await.unwrap();
        }
    };
    assert_eq!(read(list, |snapshot| snapshot.id.to_string(), delete).await, ids);
    let left: Vec<_> = client.snapshots().all().await.unwrap();
    ids.retain(|id| left.iter().any(|snapshot| snapshot.id.as_str() == id));
    assert_eq!(ids.len(), 4);
    let list = proxy.client().snapshots().page_size(2).stream();
    let take = async |_: Vec<String>| {
        sandbox.snapshot().await.unwrap();
    };
    let mut found = read(list, |snapshot| snapshot.id.to_string(), take).await;
    found.retain(|id| ids.contains(id));
    assert_eq!(found, ids);
}

#[tokio::test]
async fn deleted_templates_skip_none() {
    let proxy = Proxy::start();
    let client = proxy.direct();
    let mut ids = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let accepted = client.build_template(name).dockerfile("FROM ubuntu:24.04").await.unwrap();
        ids.push(accepted.id.to_string());
    }
    ids.sort();
    let list = proxy.client().templates().page_size(2).stream();
    let delete = async |first: Vec<String>| {
        for id in first {
            client.delete_template(&id).await.unwrap();
        }
    };
    assert_eq!(read(list, |template| template.id.to_string(), delete).await, ids);
}

#[tokio::test]
async fn a_directory_that_changes_neither_skips_nor_repeats() {
    let proxy = Proxy::start();
    let files = proxy.client().create(IMAGE).await.unwrap().files();
    for name in ["b", "c", "d", "e", "f"] {
        files.write(name, "").await.unwrap();
    }
    let list = files.list(".").page_size(2).stream();
    let delete = async |first: Vec<String>| {
        for name in first {
            files.delete(name).await.unwrap();
        }
    };
    assert_eq!(read(list, |entry| entry.name.clone(), delete).await, ["b", "c", "d", "e", "f"]);
    let list = files.list(".").page_size(2).stream();
    // It comes before the others, which are sorted by name.
    let write = async |_: Vec<String>| {
        files.write("a", "").await.unwrap();
    };
    assert_eq!(read(list, |entry| entry.name.clone(), write).await, ["d", "e", "f"]);
}
