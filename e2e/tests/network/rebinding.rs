//! Names that point to closed addresses: at once, through an alias, or from the second answer on.

use std::net::Ipv4Addr;

use e2e::internet::{DnsAnswer, MACHINE};
use serde_json::json;

use crate::guest::Guest;
use crate::shared_net;

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
async fn names_of_closed_addresses_are_refused() {
    let net = shared_net().await;
    for policy in [json!({ "default": "deny", "allow": ["*.turned.example"] }), json!({ "default": "allow" })]
    {
        let guest = Guest::new(&net, policy).await;
        for (n, address) in CLOSED.into_iter().enumerate() {
            let (direct, alias) = (format!("direct-{n}.turned.example"), format!("alias-{n}.turned.example"));
            net.internet.names().set(&direct, DnsAnswer::A(vec![address], 0));
            net.internet.names().set(&alias, DnsAnswer::Cname(direct.clone(), 0));
            // One closed address among open ones refuses the answer.
            let mixed = format!("mixed-{n}.turned.example");
            net.internet
                .names()
                .set(&mixed, DnsAnswer::A(vec![Ipv4Addr::new(198, 51, 100, 200), address], 0));
            for name in [&direct, &alias, &mixed] {
                let result = guest.output(&format!("dig +short +time=3 +tries=1 {name}")).await;
                assert!(!result.contains(&address.to_string()), "{name}: {result}");
                let result =
                    guest.run(&format!("curl -sS --max-time 5 http://{name}/latest/meta-data/")).await;
                assert!(!result.to_string().contains("the-secret"), "{result}");
            }
            guest.wait_for_refusal(&["closed-answer"], &direct).await;
        }
        for address in &CLOSED[..2] {
            net.assert_no_packets_to(*address);
        }
        guest.terminate().await;
    }
}

/// The answer changes between the sandbox's question and the proxy's.
#[tokio::test]
async fn an_answer_that_changes_to_a_closed_address_is_refused() {
    let net = shared_net().await;
    let (good, evil) = (net.internet.unused_address().unwrap(), Ipv4Addr::new(10, 99, 2, 2));
    let guest = net.strict(&["*.turning.example"]).await;
    for n in 0..3 {
        let name = format!("n{n}.turning.example");
        let turns = (0..=n).map(|_| vec![good]).chain([vec![evil]]).collect();
        net.internet.names().set(&name, DnsAnswer::Sequence(turns));
        for _ in 0..4 {
            let result = guest
                .run(&format!(
                    "curl -sS --max-time 5 http://{name}/hello; curl -sS -k --max-time 5 https://{name}/hello"
                ))
                .await;
            assert!(!result.to_string().contains(&format!("at={evil}")), "{result}");
        }
    }
    net.assert_no_packets_to(evil);
}

/// A server that answers for a foreign name is not trusted.
#[tokio::test]
async fn forged_records_for_other_names_are_ignored() {
    let net = shared_net().await;
    let (listed, elsewhere) = (net.site("slandered"), net.internet.unused_address().unwrap());
    let liar = net.internet.unused_address().unwrap();
    let answer = DnsAnswer::Forged { own: liar, other: listed.name.clone(), others: elsewhere };
    net.internet.names().set("liar.web.example", answer);
    let guest = net.strict(&[&listed.name, "liar.web.example"]).await;
    guest.output("dig +short +time=3 +tries=1 liar.web.example").await;
    let page = guest.output(&format!("curl -sS --max-time 10 http://{}/hello", listed.name)).await;
    assert!(page.contains(&format!("at={}", listed.address)), "{page}");
    net.assert_no_packets_to(elsewhere);
}

/// An alias to an unlisted name passes, because the owner of the listed name chose it; the listed name decides.
#[tokio::test]
async fn an_alias_of_a_listed_name_to_an_unlisted_name_works() {
    let net = shared_net().await;
    let behind = net.site("behind-alias");
    net.internet.names().set("front.web.example", DnsAnswer::Cname(behind.name.clone(), 60));
    let guest = net.strict(&["front.web.example"]).await;
    let page = guest.output("curl -sS --max-time 10 https://front.web.example/hello").await;
    assert!(page.contains(&format!("at={}", behind.address)), "{page}");
    guest.fails(&format!("curl -sS --max-time 10 https://{}/hello", behind.name)).await;
    guest.wait_for_refusal(&["not-allowed"], &behind.name).await;
}
