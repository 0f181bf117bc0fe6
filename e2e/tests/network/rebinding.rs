//! Names that point to closed addresses: at once, through an alias, or from the second answer on.

use std::net::Ipv4Addr;

use e2e::internet::{MACHINE, Says};
use serde_json::json;

use crate::guest::Guest;
use crate::world;

/// Private, metadata, the host itself, and loopback.
const CLOSED: [Ipv4Addr; 6] = [
    Ipv4Addr::new(10, 99, 1, 1),
    Ipv4Addr::new(169, 254, 169, 254),
    MACHINE[0],
    MACHINE[1],
    Ipv4Addr::LOCALHOST,
    Ipv4Addr::UNSPECIFIED,
];

#[tokio::test]
async fn names_of_closed_addresses() {
    let world = world().await;
    for policy in [json!({ "default": "deny", "allow": ["*.turned.example"] }), json!({ "default": "allow" })]
    {
        let guest = Guest::new(&world, policy).await;
        for (n, address) in CLOSED.into_iter().enumerate() {
            let (direct, alias) = (format!("direct-{n}.turned.example"), format!("alias-{n}.turned.example"));
            world.internet.names().set(&direct, Says::A(vec![address], 0));
            world.internet.names().set(&alias, Says::Cname(direct.clone(), 0));
            // One closed address among open ones refuses the answer.
            let mixed = format!("mixed-{n}.turned.example");
            world.internet.names().set(&mixed, Says::A(vec![Ipv4Addr::new(198, 51, 100, 200), address], 0));
            for name in [&direct, &alias, &mixed] {
                let said = guest.output(&format!("dig +short +time=3 +tries=1 {name}")).await;
                assert!(!said.contains(&address.to_string()), "{name}: {said}");
                let said = guest.run(&format!("curl -sS --max-time 5 http://{name}/latest/meta-data/")).await;
                assert!(!said.to_string().contains("the-secret"), "{said}");
            }
            guest.was_told(&["closed-answer"], &direct).await;
        }
        for address in &CLOSED[..2] {
            world.saw_nothing_at(*address);
        }
        guest.terminate().await;
    }
}

/// The answer changes between the sandbox's question and the proxy's.
#[tokio::test]
async fn an_answer_that_changes() {
    let world = world().await;
    let (good, evil) = (world.internet.address().unwrap(), Ipv4Addr::new(10, 99, 2, 2));
    let guest = world.strict(&["*.turning.example"]).await;
    for n in 0..3 {
        let name = format!("n{n}.turning.example");
        let turns = (0..=n).map(|_| vec![good]).chain([vec![evil]]).collect();
        world.internet.names().set(&name, Says::InTurn(turns));
        for _ in 0..4 {
            let said = guest
                .run(&format!(
                    "curl -sS --max-time 5 http://{name}/hello; curl -sS -k --max-time 5 https://{name}/hello"
                ))
                .await;
            assert!(!said.to_string().contains(&format!("at={evil}")), "{said}");
        }
    }
    world.saw_nothing_at(evil);
}

/// A server that answers for a foreign name is not trusted.
#[tokio::test]
async fn a_lie_beside_an_answer() {
    let world = world().await;
    let (listed, elsewhere) = (world.site("slandered"), world.internet.address().unwrap());
    let liar = world.internet.address().unwrap();
    let says = Says::Lie { own: liar, other: listed.name.clone(), others: elsewhere };
    world.internet.names().set("liar.web.example", says);
    let guest = world.strict(&[&listed.name, "liar.web.example"]).await;
    guest.output("dig +short +time=3 +tries=1 liar.web.example").await;
    let page = guest.output(&format!("curl -sS --max-time 10 http://{}/hello", listed.name)).await;
    assert!(page.contains(&format!("at={}", listed.address)), "{page}");
    world.saw_nothing_at(elsewhere);
}

/// An alias to an unlisted name passes, because the owner of the listed name chose it; the listed name decides.
#[tokio::test]
async fn an_alias_to_a_name_that_is_not_listed() {
    let world = world().await;
    let behind = world.site("behind-alias");
    world.internet.names().set("front.web.example", Says::Cname(behind.name.clone(), 60));
    let guest = world.strict(&["front.web.example"]).await;
    let page = guest.output("curl -sS --max-time 10 https://front.web.example/hello").await;
    assert!(page.contains(&format!("at={}", behind.address)), "{page}");
    guest.fails(&format!("curl -sS --max-time 10 https://{}/hello", behind.name)).await;
    guest.was_told(&["not-allowed"], &behind.name).await;
}
