//! A name server whose answers a test chooses, also false ones. It builds messages by hand, so that the tests do not depend
//! on the DNS library of the daemon.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

pub const A: u16 = 1;
const CNAME: u16 = 5;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;

/// The answer for a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// Addresses, with a time to live in seconds.
    A(Vec<Ipv4Addr>, u32),
    Aaaa(Vec<Ipv6Addr>, u32),
    /// An alias and its answer, if the target is known here.
    Cname(String, u32),
    /// The first address in the first answer, the last one from then on. With a time to live of 0.
    InTurn(Vec<Vec<Ipv4Addr>>),
    /// No answer.
    Silence,
    Failure,
    /// Addresses of the name, and one for a foreign name.
    Lie {
        own: Ipv4Addr,
        other: String,
        others: Ipv4Addr,
    },
    /// A truncated answer over UDP; the complete one over TCP.
    OnlyOverTcp(Vec<Ipv4Addr>),
}

/// The names of this internet, and the queries received.
#[derive(Default)]
pub struct Names(Mutex<Book>);

#[derive(Default)]
struct Book {
    names: HashMap<String, (Says, usize)>,
    asked: Vec<(String, u16)>,
}

struct Record {
    name: String,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Udp,
    Tcp,
}

impl Names {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets an answer. A name that begins with `*.` stands for all names below that have no answer of their own.
    pub fn set(&self, name: &str, says: Says) {
        self.book().names.insert(name.to_ascii_lowercase(), (says, 0));
    }

    /// Queries for a name or anything below it.
    pub fn asked(&self, name: &str) -> Vec<(String, u16)> {
        let below = format!(".{name}");
        let book = self.book();
        book.asked.iter().filter(|(asked, _)| asked == name || asked.ends_with(&below)).cloned().collect()
    }

    /// The answer to a message; `None` for an invalid one, and for [`Says::Silence`].
    fn answer(&self, query: &[u8], way: Way) -> Option<Vec<u8>> {
        let (name, kind, end) = question(query)?;
        let mut book = self.book();
        book.asked.push((name.clone(), kind));
        let Some(says) = book.says(&name, kind) else { return Some(message(query, end, 3, &[], false)) };
        if says == Says::Silence {
            return None;
        }
        if says == Says::Failure {
            return Some(message(query, end, 2, &[], false));
        }
        if matches!(says, Says::OnlyOverTcp(_)) && way == Way::Udp {
            return Some(message(query, end, 0, &[], true));
        }
        let mut records = Vec::new();
        book.records(&name, kind, &says, &mut records);
        Some(message(query, end, 0, &records, false))
    }
}

impl Book {
    fn says(&mut self, name: &str, kind: u16) -> Option<Says> {
        let wildcards = name.match_indices('.').map(|(dot, _)| format!("*{}", &name[dot..]));
        let key =
            std::iter::once(name.to_owned()).chain(wildcards).find(|key| self.names.contains_key(key))?;
        let (says, turn) = self.names.get_mut(&key)?;
        let Says::InTurn(turns) = says else { return Some(says.clone()) };
        let now = turns.get((*turn).min(turns.len().saturating_sub(1))).cloned().unwrap_or_default();
        *turn += usize::from(kind == A);
        Some(Says::A(now, 0))
    }

    fn records(&mut self, name: &str, kind: u16, says: &Says, records: &mut Vec<Record>) {
        let mut add = |name: &str, kind, ttl, data: Vec<u8>| {
            records.push(Record { name: name.to_owned(), kind, ttl, data });
        };
        match says {
            Says::A(addresses, ttl) if kind == A => {
                addresses.iter().for_each(|address| add(name, A, *ttl, address.octets().to_vec()));
            }
            Says::OnlyOverTcp(addresses) if kind == A => {
                addresses.iter().for_each(|address| add(name, A, 60, address.octets().to_vec()));
            }
            Says::Aaaa(addresses, ttl) if kind == AAAA => {
                addresses.iter().for_each(|address| add(name, AAAA, *ttl, address.octets().to_vec()));
            }
            Says::Lie { own, other, others } if kind == A => {
                add(name, A, 300, own.octets().to_vec());
                add(other, A, 300, others.octets().to_vec());
            }
            Says::Cname(to, ttl) => {
                add(name, CNAME, *ttl, labels(to));
                if let Some(next) = self.says(to, kind)
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

fn message(query: &[u8], question_end: usize, code: u8, records: &[Record], cut_short: bool) -> Vec<u8> {
    let mut bytes = query[..2].to_vec();
    // An authoritative answer, with recursion available.
    bytes.push(0x84 | (query[2] & 0x01) | if cut_short { 0x02 } else { 0 });
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
        if let Some(answer) = names.answer(&buffer[..length], Way::Udp) {
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
        if let Some(answer) = names.answer(&query, Way::Tcp) {
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
    fn turns_follow_each_other_and_the_last_stays() {
        let names = Names::default();
        names.set("*.turn.example", Says::InTurn(vec![vec![[1, 2, 3, 4].into()], vec![[5, 6, 7, 8].into()]]));
        let last = |answer: Vec<u8>| answer[answer.len() - 4..].to_vec();
        let ask = |kind| names.answer(&query("A.turn.example", kind), Way::Udp).unwrap();
        assert_eq!(ask(AAAA)[7], 0);
        assert_eq!(last(ask(A)), [1, 2, 3, 4]);
        assert_eq!(last(ask(A)), [5, 6, 7, 8]);
        assert_eq!(last(ask(A)), [5, 6, 7, 8]);
        assert_eq!(names.asked("turn.example").len(), 4);
        assert_eq!(names.asked("urn.example").len(), 0);
    }

    #[test]
    fn an_alias_brings_what_it_stands_for() {
        let names = Names::default();
        names.set("a.example", Says::Cname("b.example".to_owned(), 5));
        names.set("b.example", Says::A(vec![[1, 2, 3, 4].into()], 5));
        assert_eq!(names.answer(&query("a.example", A), Way::Udp).unwrap()[7], 2);
        assert_eq!(names.answer(&query("c.example", A), Way::Udp).unwrap()[3] & 0xf, 3);
    }
}
