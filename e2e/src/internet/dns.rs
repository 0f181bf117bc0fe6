//! A name server whose answers a test chooses, also false ones. It builds messages by hand, so that the tests do not depend
//! on the DNS library of the daemon.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::Result;
use base::IgnorePoison;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

pub const A: u16 = 1;
const CNAME: u16 = 5;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;

/// The answer for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsAnswer {
    /// Addresses, with a time to live in seconds.
    A(Vec<Ipv4Addr>, u32),
    Aaaa(Vec<Ipv6Addr>, u32),
    /// An alias and its answer, if the target is known here.
    Cname(String, u32),
    /// One list of addresses per query; the last list repeats. With a time to live of 0.
    Sequence(Vec<Vec<Ipv4Addr>>),
    /// No answer.
    NoResponse,
    Failure,
    /// The address of the name, and a forged address for another name.
    Forged {
        own: Ipv4Addr,
        other: String,
        others: Ipv4Addr,
    },
    /// A truncated answer over UDP; the complete one over TCP.
    OnlyOverTcp(Vec<Ipv4Addr>),
}

/// The names of this internet, and the queries received.
#[derive(Default)]
pub struct Names(Mutex<NamesState>);

#[derive(Default)]
struct NamesState {
    names: HashMap<String, (DnsAnswer, usize)>,
    queries: Vec<(String, u16)>,
}

struct Record {
    name: String,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl Names {
    fn state(&self) -> MutexGuard<'_, NamesState> {
        self.0.lock().ignore_poison()
    }

    /// Sets an answer. A name that begins with `*.` stands for all names below that have no answer of their own.
    pub fn set(&self, name: &str, answer: DnsAnswer) {
        self.state().names.insert(name.to_ascii_lowercase(), (answer, 0));
    }

    /// Queries for a name or anything below it.
    pub fn queries(&self, name: &str) -> Vec<(String, u16)> {
        let below = format!(".{name}");
        let state = self.state();
        state
            .queries
            .iter()
            .filter(|(queried, _)| queried == name || queried.ends_with(&below))
            .cloned()
            .collect()
    }

    /// The answer to a message; `None` for an invalid one, and for [`DnsAnswer::NoResponse`].
    fn answer(&self, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
        let (name, kind, end) = question(query)?;
        let mut state = self.state();
        state.queries.push((name.clone(), kind));
        let Some(answer) = state.lookup(&name, kind) else { return Some(message(query, end, 3, &[], false)) };
        if answer == DnsAnswer::NoResponse {
            return None;
        }
        if answer == DnsAnswer::Failure {
            return Some(message(query, end, 2, &[], false));
        }
        if matches!(answer, DnsAnswer::OnlyOverTcp(_)) && transport == Transport::Udp {
            return Some(message(query, end, 0, &[], true));
        }
        let mut records = Vec::new();
        state.records(&name, kind, &answer, &mut records);
        Some(message(query, end, 0, &records, false))
    }
}

impl NamesState {
    fn lookup(&mut self, name: &str, kind: u16) -> Option<DnsAnswer> {
        let wildcards = name.match_indices('.').map(|(dot, _)| format!("*{}", &name[dot..]));
        let key =
            std::iter::once(name.to_owned()).chain(wildcards).find(|key| self.names.contains_key(key))?;
        let (answer, turn) = self.names.get_mut(&key)?;
        let DnsAnswer::Sequence(turns) = answer else { return Some(answer.clone()) };
        let now = turns.get((*turn).min(turns.len().saturating_sub(1))).cloned().unwrap_or_default();
        *turn += usize::from(kind == A);
        Some(DnsAnswer::A(now, 0))
    }

    fn records(&mut self, name: &str, kind: u16, answer: &DnsAnswer, records: &mut Vec<Record>) {
        let mut add = |name: &str, kind, ttl, data: Vec<u8>| {
            records.push(Record { name: name.to_owned(), kind, ttl, data });
        };
        match answer {
            DnsAnswer::A(addresses, ttl) if kind == A => {
                addresses.iter().for_each(|address| add(name, A, *ttl, address.octets().to_vec()));
            }
            DnsAnswer::OnlyOverTcp(addresses) if kind == A => {
                addresses.iter().for_each(|address| add(name, A, 60, address.octets().to_vec()));
            }
            DnsAnswer::Aaaa(addresses, ttl) if kind == AAAA => {
                addresses.iter().for_each(|address| add(name, AAAA, *ttl, address.octets().to_vec()));
            }
            DnsAnswer::Forged { own, other, others } if kind == A => {
                add(name, A, 300, own.octets().to_vec());
                add(other, A, 300, others.octets().to_vec());
            }
            DnsAnswer::Cname(to, ttl) => {
                add(name, CNAME, *ttl, labels(to));
                if let Some(next) = self.lookup(to, kind)
                    && records.len() < 16
                {
                    self.records(to, kind, &next, records);
                }
            }
            _ => {}
        }
    }
}

/// The question's name and type, and where it ends.
fn question(query: &[u8]) -> Option<(String, u16, usize)> {
    let mut at = 12;
    let mut name = String::new();
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(query.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*query.get(at)?, *query.get(at + 1)?]);
    query.get(at + 3)?;
    Some((name, kind, at + 4))
}

fn labels(name: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).unwrap_or(63));
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes.push(0);
    bytes
}

fn message(query: &[u8], question_end: usize, code: u8, records: &[Record], truncated: bool) -> Vec<u8> {
    let mut bytes = query[..2].to_vec();
    // An authoritative answer, with recursion available.
    bytes.push(0x84 | (query[2] & 0x01) | if truncated { 0x02 } else { 0 });
    bytes.push(0x80 | code);
    bytes.extend_from_slice(&[0, 1]);
    bytes.extend_from_slice(&u16::try_from(records.len()).unwrap_or(0).to_be_bytes());
    bytes.extend_from_slice(&[0, 0, 0, 0]);
    bytes.extend_from_slice(&query[12..question_end]);
    for record in records {
        bytes.extend(labels(&record.name));
        bytes.extend_from_slice(&record.kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes.extend_from_slice(&record.ttl.to_be_bytes());
        bytes.extend_from_slice(&u16::try_from(record.data.len()).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(&record.data);
    }
    bytes
}

pub(super) async fn serve_udp(names: Arc<Names>, socket: UdpSocket) -> Result<()> {
    let mut buffer = vec![0; 4096];
    loop {
        let (length, from): (usize, SocketAddr) = socket.recv_from(&mut buffer).await?;
        if let Some(answer) = names.answer(&buffer[..length], Transport::Udp) {
            // The client may be gone.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

pub(super) async fn serve_tcp(names: Arc<Names>, listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(serve_connection(Arc::clone(&names), stream));
    }
}

async fn serve_connection(names: Arc<Names>, mut stream: TcpStream) -> Result<()> {
    loop {
        let mut query = vec![0; usize::from(stream.read_u16().await?)];
        stream.read_exact(&mut query).await?;
        if let Some(answer) = names.answer(&query, Transport::Tcp) {
            stream.write_u16(u16::try_from(answer.len())?).await?;
            stream.write_all(&answer).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(labels(name));
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&[0, 1]);
        bytes
    }

    #[test]
    fn a_sequence_is_answered_in_order_and_the_last_answer_repeats() {
        let names = Names::default();
        names.set(
            "*.turn.example",
            DnsAnswer::Sequence(vec![vec![[1, 2, 3, 4].into()], vec![[5, 6, 7, 8].into()]]),
        );
        let last = |answer: Vec<u8>| answer[answer.len() - 4..].to_vec();
        let ask = |kind| names.answer(&query("A.turn.example", kind), Transport::Udp).unwrap();
        assert_eq!(ask(AAAA)[7], 0);
        assert_eq!(last(ask(A)), [1, 2, 3, 4]);
        assert_eq!(last(ask(A)), [5, 6, 7, 8]);
        assert_eq!(last(ask(A)), [5, 6, 7, 8]);
        assert_eq!(names.queries("turn.example").len(), 4);
        assert_eq!(names.queries("urn.example").len(), 0);
    }

    #[test]
    fn the_answer_for_an_alias_contains_the_records_of_its_target() {
        let names = Names::default();
        names.set("a.example", DnsAnswer::Cname("b.example".to_owned(), 5));
        names.set("b.example", DnsAnswer::A(vec![[1, 2, 3, 4].into()], 5));
        assert_eq!(names.answer(&query("a.example", A), Transport::Udp).unwrap()[7], 2);
        assert_eq!(names.answer(&query("c.example", A), Transport::Udp).unwrap()[3] & 0xf, 3);
    }
}
