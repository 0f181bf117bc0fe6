//! Adoptions by hosts that are not hostile.

use std::collections::HashSet;

use super::*;

const ID: &str = "sb_1";

/// A host with a stored sandbox, and two others.
async fn hosts() -> (Fixture, [Archive; 2]) {
    let fixture = Fixture::new();
    let disk = fixture.disk("disk", 1, &[(0, 3)]);
    fixture.upload(&fixture.source(ID, "a", &[(ID, disk)])).await;
    let others = ["one", "two"].map(|name| open(&fixture.dir, &fixture.objects, name));
    (fixture, others)
}

#[tokio::test]
async fn of_several_hosts_one_adopts_until_it_gives_back() {
    let (fixture, [one, two]) = hosts().await;
    let host = fixture.archive.ledger.host.clone();
    assert!(one.adopt(&host, ID).await.unwrap());
    assert!(!two.adopt(&host, ID).await.unwrap());
    // A request that is repeated, also after a crash.
    assert!(one.adopt(&host, ID).await.unwrap());
    one.give_back(&host, ID).await.unwrap();
    assert!(two.adopt(&host, ID).await.unwrap());
    assert!(!one.adopt(&host, ID).await.unwrap());
}

#[tokio::test]
async fn a_host_learns_what_was_adopted_from_it_and_not_from_others() {
    let (fixture, [one, two]) = hosts().await;
    assert!(fixture.archive.adopted().await.unwrap().is_empty());
    one.adopt(&fixture.archive.ledger.host, ID).await.unwrap();
    one.adopt(&two.ledger.host, "sb_2").await.unwrap();
    assert_eq!(fixture.archive.adopted().await.unwrap(), HashSet::from([ID.to_owned()]));
    assert_eq!(two.adopted().await.unwrap(), HashSet::from(["sb_2".to_owned()]));
    assert!(one.adopted().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_stays_until_its_new_host_has_withdrawn_it() {
    let (mut fixture, [one, _]) = hosts().await;
    one.adopt(&fixture.archive.ledger.host, ID).await.unwrap();
    fixture.archive.hand_over(ID).unwrap();
    fixture.restart();
    let archive = &fixture.archive;
    assert!(archive.is_handed_over(ID) && archive.is_offered(ID).await.unwrap());
    assert_eq!(
        (archive.handed_over(), archive.remove_unreferenced().await.unwrap()),
        (vec![ID.to_owned()], 0)
    );
    one.withdraw(ID).await.unwrap();
    assert!(!archive.is_offered(ID).await.unwrap());
    archive.acknowledge(ID).await.unwrap();
    assert!(archive.adopted().await.unwrap().is_empty() && !archive.is_handed_over(ID));
    // Its chunk is not needed any more.
    assert_eq!(archive.remove_unreferenced().await.unwrap(), 1);
    assert_eq!(fixture.objects.paths().await, []);
    // A crash before the last step repeats the others.
    fixture.archive.acknowledge(ID).await.unwrap();
    fixture.restart();
    assert!(fixture.archive.handed_over().is_empty() && fixture.archive.ids().is_empty());
}

#[tokio::test]
async fn a_host_withdraws_nothing_that_it_has_stored_itself() {
    let (fixture, [one, _]) = hosts().await;
    fixture.archive.withdraw(ID).await.unwrap();
    assert!(fixture.archive.is_offered(ID).await.unwrap());
    assert!(!one.is_offered(ID).await.unwrap(), "another host offers it");
}
