//! Datagrams and connections.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::inside::{ONE, STRANGER, TestDns, addresses, question};
use crate::upstream::{Act, a, txt};

async fn connect(inside: &TestDns, from: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    socket.connect(inside.server).await.unwrap()
}

fn framed(message: &Message) -> Vec<u8> {
    let bytes = message.to_vec().unwrap();
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), &bytes[..]].concat()
}

async fn next(stream: &mut TcpStream) -> io::Result<Message> {
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; length.into()];
    stream.read_exact(&mut bytes).await?;
    Ok(Message::from_vec(&bytes).unwrap())
}

/// With `count` addresses.
fn many(name: &str, count: u8) -> Vec<Record> {
    (1..=count).map(|last| a(name, [192, 0, 2, last])).collect()
}

#[tokio::test]
async fn large_answers_are_available_over_tcp() {
    let inside = TestDns::start().await;
    inside.upstream.set("many.ok.example", RecordType::A, Act::OnlyTcp(many("many.ok.example", 200)));
    let part = inside.ask(ONE, "many.ok.example", RecordType::A).await;
    assert!(part.truncation && (20..100).contains(&part.answers.len()));
    let mut stream = connect(&inside, ONE).await;
    stream.write_all(&framed(&question("many.ok.example", RecordType::A))).await.unwrap();
    let whole = next(&mut stream).await.unwrap();
    assert!(!whole.truncation);
    assert_eq!(addresses(&whole).len(), 200);
    // All addresses are opened, also after a truncated answer.
    assert_eq!(inside.opened()[0].1.len(), 200);
}

#[tokio::test]
async fn the_size_of_an_answer_is_limited() {
    let inside = TestDns::start().await;
    let records = (0..200).map(|number| txt("large.ok.example", &format!("{number:0200}"))).collect();
    inside.upstream.set("large.ok.example", RecordType::TXT, Act::OnlyTcp(records));
    let mut stream = connect(&inside, ONE).await;
    stream.write_all(&framed(&question("large.ok.example", RecordType::TXT))).await.unwrap();
    let part = next(&mut stream).await.unwrap();
    assert!(part.truncation && (40..80).contains(&part.answers.len()), "{}", part.answers.len());
}

#[tokio::test]
async fn a_client_that_does_not_read_delays_no_other() {
    let mut inside = TestDns::start().await;
    let records = (0..60).map(|number| txt("large.ok.example", &format!("{number:0200}"))).collect();
    inside.upstream.set("large.ok.example", RecordType::TXT, Act::OnlyTcp(records));
    let questions = framed(&question("large.ok.example", RecordType::TXT));
    let mut deaf = Vec::new();
    for _ in 0..16 {
        let mut stream = connect(&inside, ONE).await;
        let writing = async {
            for _ in 0..60 {
                stream.write_all(&questions).await?;
            }
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_millis(20), writing).await;
        deaf.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let answer = inside.ask(ONE, "localhost", RecordType::A).await;
    assert_eq!(addresses(&answer), [Ipv4Addr::LOCALHOST]);
    assert_eq!(inside.next_refusal(), None);
}

#[tokio::test]
async fn pipelined_questions_are_answered_as_they_are_ready() {
    let inside = TestDns::start().await;
    inside.upstream.set(
        "slow.ok.example",
        RecordType::A,
        Act::Slow(Duration::from_millis(300), many("slow.ok.example", 1)),
    );
    inside.upstream.answer("quick.ok.example", &[txt("quick.ok.example", "x")]);
    let mut slow = question("slow.ok.example", RecordType::A);
    slow.metadata.id = 1;
    let mut quick = question("quick.ok.example", RecordType::TXT);
    quick.metadata.id = 2;
    let mut refused = question("evil.example", RecordType::A);
    refused.metadata.id = 3;
    let all = [framed(&slow), framed(&quick), framed(&refused)].concat();
    let mut stream = connect(&inside, ONE).await;
    // Split, as on a network.
    for piece in all.chunks(7) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(next(&mut stream).await.unwrap().id);
    }
    ids[..2].sort_unstable();
    assert_eq!(ids, [2, 3, 1]);
}

#[tokio::test]
async fn a_half_closed_client_gets_its_answers() {
    let inside = TestDns::start().await;
    inside.upstream.set(
        "slow.ok.example",
        RecordType::A,
        Act::Slow(Duration::from_millis(200), many("slow.ok.example", 1)),
    );
    let mut stream = connect(&inside, ONE).await;
    stream.write_all(&framed(&question("slow.ok.example", RecordType::A))).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(next(&mut stream).await.unwrap().answers.len(), 1);
    assert!(next(&mut stream).await.is_err(), "and then it is closed");
}

#[tokio::test]
async fn unknown_sources_and_violations_are_disconnected() {
    let inside = TestDns::start().await;
    let questions = framed(&question("localhost", RecordType::A));
    let mut stranger = connect(&inside, STRANGER).await;
    let _ = stranger.write_all(&questions).await;
    assert!(next(&mut stranger).await.is_err());
    let mut long = connect(&inside, ONE).await;
    long.write_all(&[0xff, 0xff]).await.unwrap();
    assert!(next(&mut long).await.is_err());
    let mut gone = connect(&inside, ONE).await;
    gone.write_all(&questions).await.unwrap();
    next(&mut gone).await.unwrap();
    inside.parts.registry.remove(ONE);
    gone.write_all(&questions).await.unwrap();
    // A question in progress at the removal may be answered by the old policy; later ones are not.
    gone.write_all(&questions).await.unwrap();
    let _ = next(&mut gone).await;
    assert!(next(&mut gone).await.is_err());
}

#[tokio::test]
async fn a_quiet_connection_is_closed() {
    let inside = TestDns::start().await;
    let mut quiet = connect(&inside, ONE).await;
    let mut slow = connect(&inside, ONE).await;
    slow.write_all(&[0, 40, 1]).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(12), async {
        assert!(next(&mut quiet).await.is_err());
        assert!(next(&mut slow).await.is_err());
    });
    ended.await.expect("closed by then");
}

#[tokio::test]
async fn invalid_datagrams_get_an_error_or_no_answer() {
    let inside = TestDns::start().await;
    let good = question("localhost", RecordType::A).to_vec().unwrap();
    let mut answer = good.clone();
    answer[2] |= 0x80;
    let mut update = good.clone();
    update[2] = 0x28;
    let next_refusal = Message::from_vec(&inside.send(ONE, &update).await.unwrap()).unwrap();
    assert_eq!(next_refusal.response_code, ResponseCode::NotImp);
    let next_refusal = Message::from_vec(&inside.send(ONE, &good[..20]).await.unwrap()).unwrap();
    assert_eq!((next_refusal.id, next_refusal.response_code), (4711, ResponseCode::FormErr));
    let mut padded = good.clone();
    padded.resize(5000, 0);
    let (scrap, reply, large) =
        tokio::join!(inside.send(ONE, &good[..11]), inside.send(ONE, &answer), inside.send(ONE, &padded));
    assert_eq!((scrap, reply, large), (None, None, None));
}

#[tokio::test]
async fn the_server_stops() {
    let inside = TestDns::start().await;
    inside.upstream.set("slow.ok.example", RecordType::A, Act::Silent);
    let mut idle = connect(&inside, ONE).await;
    let mut busy = connect(&inside, ONE).await;
    busy.write_all(&framed(&question("slow.ok.example", RecordType::A))).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    inside.stop.cancel();
    tokio::time::timeout(Duration::from_millis(500), inside.serving).await.expect("at once").unwrap();
    assert!(next(&mut idle).await.is_err());
    assert!(next(&mut busy).await.is_err());
}
