//! The effect of one sandbox on the DNS server and on others. Memory and time are measured, so these tests run in
//! sequence in a separate process.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the tests of what is answered use the rest")]
#[path = "../dns/inside.rs"]
mod inside;
#[expect(dead_code, reason = "the tests of what is answered use the rest")]
#[path = "../dns/upstream.rs"]
mod upstream;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::Mutex;

use crate::inside::{ONE, TWO, TestDns, question};
use crate::upstream::{Act, a};

static ALONE: Mutex<()> = Mutex::const_new(());

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Sends questions for different names without waiting, and counts the answers until no more arrive.
async fn flood(inside: &TestDns, count: usize, name: impl Fn(usize) -> String) -> usize {
    let socket = Arc::new(UdpSocket::bind((ONE, 0)).await.unwrap());
    socket.connect(inside.server).await.unwrap();
    let counting = tokio::spawn({
        let socket = Arc::clone(&socket);
        async move {
            let (mut answers, mut buffer) = (0, [0; 4096]);
            while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(3), socket.recv(&mut buffer)).await
            {
                answers += 1;
            }
            answers
        }
    });
    for number in 0..count {
        let bytes = question(&name(number), RecordType::A).to_vec().unwrap();
        socket.send(&bytes).await.unwrap();
        if number % 20 == 0 {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }
    counting.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_refused_names_does_not_affect_others() {
    let _alone = ALONE.lock().await;
    let mut inside = TestDns::start().await;
    inside.strict(TWO, &["ok.example"]);
    inside.upstream.answer("ok.example", &[a("ok.example", [192, 0, 2, 1])]);
    let before = resident_kib();
    let other = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let start = Instant::now();
        assert_eq!(inside.ask(TWO, "ok.example", RecordType::A).await.answers.len(), 1);
        start.elapsed()
    };
    let (answered, waited) = tokio::join!(flood(&inside, 10_000, |n| format!("{n:050}.evil.example")), other);
    let grown = resident_kib().saturating_sub(before);
    println!("10,000 at once: {answered} answered, {grown} KiB more, another waited {waited:?}");
    assert!((1000..5000).contains(&answered), "{answered}");
    assert!(grown < 20_000, "{grown}");
    assert!(waited < Duration::from_millis(900), "{waited:?}");
    assert_eq!(inside.upstream.questions().len(), 1, "nothing of it goes out");
    let mut next_refusal = Vec::new();
    while let Some((reason, _)) = inside.next_refusal() {
        next_refusal.push(reason);
    }
    assert!(next_refusal.len() <= 128 && next_refusal.contains(&"not-allowed"), "{}", next_refusal.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered_questions_use_a_limited_number_of_permits() {
    let _alone = ALONE.lock().await;
    let mut inside = TestDns::start().await;
    for number in 0..1000 {
        inside.upstream.set(&format!("s{number}.ok.example"), RecordType::A, Act::Silent);
    }
    let before = resident_kib();
    let answered = flood(&inside, 1000, |n| format!("s{n}.ok.example")).await;
    let grown = resident_kib().saturating_sub(before);
    println!("1,000 without an answer: {answered} answered, {grown} KiB more memory");
    // As many as there are permits; waiting questions get theirs afterwards.
    assert!((1..=256).contains(&answered), "{answered}");
    assert!(grown < 50_000, "{grown}");
    assert_eq!(inside.next_refusal().unwrap().0, "too-many");
    inside.upstream.answer("a.ok.example", &[a("a.ok.example", [192, 0, 2, 1])]);
    assert_eq!(inside.ask(ONE, "a.ok.example", RecordType::A).await.answers.len(), 1);
}

#[tokio::test]
async fn connections_of_one_sandbox_are_bounded() {
    let _alone = ALONE.lock().await;
    let mut inside = TestDns::start().await;
    inside.strict(TWO, &[]);
    let questions = question("localhost", RecordType::A).to_vec().unwrap();
    let framed = [&u16::try_from(questions.len()).unwrap().to_be_bytes(), &questions[..]].concat();
    let mut open = Vec::new();
    let mut served = 0;
    for _ in 0..40 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((ONE, 0).into()).unwrap();
        let mut stream = socket.connect(inside.server).await.unwrap();
        let _ = stream.write_all(&framed).await;
        served += usize::from(stream.read_u16().await.is_ok());
        open.push(stream);
    }
    assert_eq!(served, 16);
    assert_eq!(inside.next_refusal(), Some(("too-many", String::new())));
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((TWO, 0).into()).unwrap();
    let mut other = socket.connect(inside.server).await.unwrap();
    other.write_all(&framed).await.unwrap();
    other.read_u16().await.unwrap();
    drop(open);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((ONE, 0).into()).unwrap();
    let mut again = socket.connect(inside.server).await.unwrap();
    again.write_all(&framed).await.unwrap();
    again.read_u16().await.unwrap();
}

/// Sends a question over a new connection and returns the connection. `None` if it was refused.
async fn asking(inside: &TestDns, from: Ipv4Addr, framed: &[u8]) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut stream = socket.connect(inside.server).await.unwrap();
    let _ = stream.write_all(framed).await;
    let length = stream.read_u16().await.ok()?;
    stream.read_exact(&mut vec![0; length.into()]).await.unwrap();
    Some(stream)
}

#[tokio::test]
async fn connections_of_many_sandboxes_leave_permits_for_others() {
    let _alone = ALONE.lock().await;
    let inside = TestDns::start().await;
    let questions = question("localhost", RecordType::A).to_vec().unwrap();
    let framed = [&u16::try_from(questions.len()).unwrap().to_be_bytes(), &questions[..]].concat();
    let greedy: Vec<Ipv4Addr> = (1..=40).map(|last| Ipv4Addr::new(127, 0, 1, last)).collect();
    let mut held = Vec::new();
    for guest in &greedy {
        inside.strict(*guest, &[]);
        for _ in 0..16 {
            held.extend(asking(&inside, *guest, &framed).await);
        }
    }
    assert!((256..400).contains(&held.len()), "{}", held.len());
    inside.strict(TWO, &[]);
    let honest = asking(&inside, TWO, &framed).await.expect("a place is left");
    // Idle connections of sandboxes with many are closed.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    let is_open = |stream: &TcpStream| matches!(stream.try_read(&mut [0; 8]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    let open = held.iter().filter(|stream| is_open(stream)).count();
    assert!(open < held.len() - 10, "{open} of {}", held.len());
    assert!(is_open(&honest), "one that has few stays");
}

/// The CPU time of this process. Unlike elapsed time, it does not depend on the load of the machine.
fn cpu_time() -> Duration {
    const TICKS_A_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the name, which is in brackets: the state is the first, time in user space and in the kernel the 12th and 13th.
    let fields = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace();
    let ticks: u64 = fields.skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_A_SECOND)
}

#[tokio::test]
async fn a_cached_answer_uses_little_cpu_time() {
    const TIMES: u32 = 1500;
    let _alone = ALONE.lock().await;
    let inside = TestDns::start().await;
    inside.upstream.answer("a.ok.example", &[a("a.ok.example", [192, 0, 2, 1])]);
    let socket = UdpSocket::bind((ONE, 0)).await.unwrap();
    socket.connect(inside.server).await.unwrap();
    let bytes = question("a.ok.example", RecordType::A).to_vec().unwrap();
    let mut buffer = [0; 1232];
    let mut took = Vec::new();
    let before = cpu_time();
    for _ in 0..TIMES {
        let start = Instant::now();
        socket.send(&bytes).await.unwrap();
        let length = socket.recv(&mut buffer).await.unwrap();
        took.push(start.elapsed());
        assert_eq!(Message::from_vec(&buffer[..length]).unwrap().answers.len(), 1);
    }
    let each = (cpu_time() - before) / TIMES;
    took.sort_unstable();
    println!("kept answers: {each:?} computed each, with the client; median {:?}", took[took.len() / 2]);
    assert!(each < Duration::from_micros(100), "{each:?}");
}
