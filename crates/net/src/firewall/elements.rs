//! Changes elements of the table's sets by netlink. A change for one sandbox is one transaction of a few hundred
//! bytes, independent of the number of sandboxes.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use netlink::DATAGRAM_BYTES;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, Nla,
};
use netlink_packet_netfilter::nftables::{
    DataAttribute, ListAttribute, NfTablesMessage, RuleAttribute, RuleMessage, SetElementAttribute,
    SetElementList, SetElementMessage,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily,
};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::io::Errno;

const SUBSYSTEM_NFTABLES: u16 = 10;
/// Elements in one message; a netlink attribute has at most 64 KiB.
const IN_MESSAGE_MAX: usize = 512;
/// Changes in one transaction; a socket accepts about 200 KiB at a time.
const IN_BATCH_MAX: usize = 768;
const LINK_BYTES: usize = 16;
const NFTA_DATA_VALUE: u16 = 1;

/// A set of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Set {
    Guests,
    Open,
    Strict,
    Learnt,
    Listed,
    AllowedNetworks,
    DeniedNetworks,
    Closed,
    Opened,
    OpenedHere,
    ClosedByOperator,
}

impl Set {
    fn name(self) -> &'static str {
        match self {
            Self::Guests => "guests",
            Self::Open => "open",
            Self::Strict => "strict",
            Self::Learnt => "learnt",
            Self::Listed => "listed",
            Self::AllowedNetworks => "allowed_networks",
            Self::DeniedNetworks => "denied_networks",
            Self::Closed => "closed",
            Self::Opened => "opened",
            Self::OpenedHere => "opened_here",
            Self::ClosedByOperator => "closed_by_operator",
        }
    }
}

/// A sandbox's link and address and, in [`Set::Learnt`], the address that it may reach.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ElementKey {
    pub link: String,
    pub guest: Ipv4Addr,
    pub target: Option<Ipv4Addr>,
}

impl ElementKey {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.link.clone().into_bytes();
        bytes.resize(LINK_BYTES, 0);
        bytes.extend(self.guest.octets());
        bytes.extend(self.target.iter().flat_map(Ipv4Addr::octets));
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (link, rest) = bytes.split_at_checked(LINK_BYTES)?;
        let link = link.split(|byte| *byte == 0).next()?;
        let (guest, rest) = rest.split_first_chunk::<4>()?;
        let target = rest.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets));
        Some(Self { link: String::from_utf8(link.to_vec()).ok()?, guest: Ipv4Addr::from(*guest), target })
    }
}

/// A sandbox's address and a range of addresses, in [`Set::AllowedNetworks`] and [`Set::DeniedNetworks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RangeKey {
    pub guest: Ipv4Addr,
    pub first: Ipv4Addr,
    pub last: Ipv4Addr,
}

impl RangeKey {
    fn bytes(&self) -> [Vec<u8>; 2] {
        [self.first, self.last].map(|target| [self.guest.octets(), target.octets()].concat())
    }

    fn read(element: &FoundElement) -> Option<Self> {
        let end = element.end.as_ref().unwrap_or(&element.key);
        let (guest, first) = element.key.split_first_chunk::<4>()?;
        let last = end.get(4..)?.first_chunk::<4>()?;
        let [guest, first, last] =
            [guest, first.first_chunk::<4>()?, last].map(|octets| Ipv4Addr::from(*octets));
        Some(Self { guest, first, last })
    }
}

/// One change of one set. Can be repeated. Ranges of one sandbox in one set must not overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Put(Set, ElementKey),
    /// With a timeout, which starts now even if the element exists.
    PutFor(Set, ElementKey, Duration),
    Drop(Set, ElementKey),
    PutRange(Set, RangeKey),
    DropRange(Set, RangeKey),
}

impl Change {
    /// The key, if the change adds it to the set without a timeout.
    pub fn put_into(&self, into: Set) -> Option<&ElementKey> {
        match self {
            Self::Put(set, key) if *set == into => Some(key),
            _ => None,
        }
    }
}

/// Changes and lists elements of one table.
pub struct Elements {
    table: String,
    /// The port number of this socket: notifications name the socket that made a change.
    pub number: u32,
    inner: SetsSocket,
}

struct SetsSocket {
    socket: Socket,
    sequence: u32,
}

impl Elements {
    pub fn open(table: String) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        let number = socket.bind_auto()?.port_number();
        Ok(Self { table, number, inner: SetsSocket { socket, sequence: 0 } })
    }

    /// Applies changes in transactions of up to 768. Each transaction is atomic.
    pub fn change(&mut self, changes: &[Change]) -> io::Result<()> {
        for some in changes.chunks(IN_BATCH_MAX) {
            self.inner.transact(messages(&self.table, some))?;
        }
        Ok(())
    }

    /// Lists a set of sandboxes, with the remaining timeouts.
    pub fn list(&mut self, set: Set) -> io::Result<Vec<(ElementKey, Option<Duration>)>> {
        let found = self.dump(set)?;
        Ok(found.into_iter().filter_map(|found| Some((ElementKey::read(&found.key)?, found.left))).collect())
    }

    /// Lists a set of ranges.
    pub fn ranges(&mut self, set: Set) -> io::Result<Vec<RangeKey>> {
        Ok(self.dump(set)?.iter().filter_map(RangeKey::read).collect())
    }

    /// Lists the raw keys of a set.
    pub fn raw(&mut self, set: Set) -> io::Result<Vec<Vec<u8>>> {
        let mut found: Vec<Vec<u8>> = self.dump(set)?.into_iter().map(|found| found.key).collect();
        found.sort_unstable();
        Ok(found)
    }

    fn dump(&mut self, set: Set) -> io::Result<Vec<FoundElement>> {
        let question = NfTablesMessage::GetSetElement(message(&self.table, set, Vec::new()));
        Ok(self.inner.dump(question)?.into_iter().flat_map(read).collect())
    }

    /// The handles of all rules of the table. The kernel does not reuse them.
    pub fn rules(&mut self) -> io::Result<Vec<u64>> {
        let question = RuleMessage { attributes: vec![RuleAttribute::Table(self.table.clone())] };
        let found = match self.inner.dump(NfTablesMessage::GetRule(question)) {
            Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => Vec::new(),
            found => found?,
        };
        let rules = found.into_iter().filter_map(|message| match message.inner {
            NetfilterMessageInner::NfTables(NfTablesMessage::NewRule(rule)) => Some(rule.attributes),
            _ => None,
        });
        let numbers = rules.flatten().filter_map(|attribute| match attribute {
            RuleAttribute::Handle(number) => Some(number),
            _ => None,
        });
        Ok(numbers.collect())
    }
}

/// The messages of one transaction. Neighbours that change the same set in the same way share one.
fn messages(table: &str, changes: &[Change]) -> Vec<NfTablesMessage> {
    let mut messages = Vec::new();
    let mut rest = changes;
    while let Some(first) = rest.first() {
        let same = rest
            .iter()
            .take_while(|change| set_and_result(change) == set_and_result(first))
            .count()
            .min(IN_MESSAGE_MAX);
        let (now, later) = rest.split_at(same);
        rest = later;
        let (set, result) = set_and_result(first);
        let plain: Vec<_> = now.iter().map(|change| ListAttribute::Element(key_of(change))).collect();
        // Deleting a missing element would fail the whole transaction, so it is added first.
        messages.push(NfTablesMessage::NewSetElement(message(table, set, plain.clone())));
        if result != ElementResult::Lasting {
            messages.push(NfTablesMessage::DeleteSetElement(message(table, set, plain)));
        }
        if result == ElementResult::Passing {
            // Older kernels do not change the timeout of an existing element, so it is deleted and added again.
            let timed = now.iter().map(timed_element).collect();
            messages.push(NfTablesMessage::NewSetElement(message(table, set, timed)));
        }
    }
    messages
}

fn message(table: &str, set: Set, elements: Vec<ListAttribute<SetElementAttribute>>) -> SetElementMessage {
    let mut attributes =
        vec![SetElementList::Table(table.to_owned()), SetElementList::Set(set.name().to_owned())];
    if !elements.is_empty() {
        attributes.push(SetElementList::Elements(elements));
    }
    SetElementMessage { attributes }
}

/// The result of a change for its element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementResult {
    Lasting,
    Passing,
    Nothing,
}

fn set_and_result(change: &Change) -> (Set, ElementResult) {
    match change {
        Change::Put(set, _) | Change::PutRange(set, _) => (*set, ElementResult::Lasting),
        Change::PutFor(set, ..) => (*set, ElementResult::Passing),
        Change::Drop(set, _) | Change::DropRange(set, _) => (*set, ElementResult::Nothing),
    }
}

/// The key of the element, or the range of keys.
fn key_of(change: &Change) -> Vec<SetElementAttribute> {
    let key = |bytes| SetElementAttribute::Key(DataAttribute::Value(bytes));
    match change {
        Change::Put(_, one) | Change::PutFor(_, one, _) | Change::Drop(_, one) => vec![key(one.bytes())],
        Change::PutRange(_, range) | Change::DropRange(_, range) => {
            let [first, last] = range.bytes();
            vec![key(first), SetElementAttribute::KeyEnd(vec![DefaultNla::new(NFTA_DATA_VALUE, last)])]
        }
    }
}

/// The element with its timeout, if it has one.
fn timed_element(change: &Change) -> ListAttribute<SetElementAttribute> {
    let mut attributes = key_of(change);
    if let Change::PutFor(_, _, lasting) = change {
        let milliseconds = base::millis(*lasting);
        attributes.push(SetElementAttribute::Timeout(milliseconds));
    }
    ListAttribute::Element(attributes)
}

impl SetsSocket {
    fn transact(&mut self, messages: Vec<NfTablesMessage>) -> io::Result<()> {
        let control = |message| {
            (NetfilterProtoFamily::Unspec, SUBSYSTEM_NFTABLES, NetfilterMessageInner::None(message))
        };
        let mut batch = vec![(control(ControlMessage::BatchBegin), 0)];
        batch.extend(messages.into_iter().map(|message| {
            ((NetfilterProtoFamily::Inet, 0, NetfilterMessageInner::NfTables(message)), NLM_F_CREATE)
        }));
        // The kernel answers after the transaction; one acknowledgement is enough.
        if let Some((_, flags)) = batch.last_mut() {
            *flags |= NLM_F_ACK;
        }
        batch.push((control(ControlMessage::BatchEnd), 0));
        let mut bytes = Vec::new();
        for ((family, resource, inner), flags) in batch {
            let header = NetfilterHeader::new(family, 0, resource);
            self.append(&mut bytes, NetfilterMessage::new(header, inner), flags);
        }
        self.socket.send(&bytes, 0)?;
        self.verdict()
    }

    fn append(&mut self, bytes: &mut Vec<u8>, message: NetfilterMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        message.finalize();
        let start = bytes.len();
        bytes.resize(start + message.buffer_len().next_multiple_of(4), 0);
        message.serialize(&mut bytes[start..]);
    }

    /// The kernel has answered before `send` returned, so this does not wait.
    fn verdict(&mut self) -> io::Result<()> {
        let mut verdict = Err(io::Error::other("the kernel did not answer"));
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            buffer.reserve(DATAGRAM_BYTES);
            let length = match self.socket.recv(&mut buffer, DONT_WAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return verdict,
                Err(error) if error.raw_os_error() == Some(Errno::NOBUFS.raw_os_error()) => continue,
                length => length?,
            };
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let answer =
                    NetlinkMessage::<NetfilterMessage>::deserialize(rest).map_err(io::Error::other)?;
                rest = &rest[aligned_length(&answer, rest)..];
                if let NetlinkPayload::Error(error) = answer.payload {
                    match error.code {
                        Some(_) => verdict = Err(error.to_io()),
                        None if !matches!(&verdict, Err(error) if error.raw_os_error().is_some()) => {
                            verdict = Ok(());
                        }
                        None => {}
                    }
                }
            }
        }
    }

    fn dump(&mut self, question: NfTablesMessage) -> io::Result<Vec<NetfilterMessage>> {
        let header = NetfilterHeader::new(NetfilterProtoFamily::Inet, 0, 0);
        let mut bytes = Vec::new();
        self.append(&mut bytes, NetfilterMessage::new(header, question), NLM_F_DUMP);
        self.socket.send(&bytes, 0)?;
        let (mut found, mut buffer) = (Vec::new(), Vec::new());
        loop {
            buffer.clear();
            buffer.reserve(DATAGRAM_BYTES);
            let length = self.socket.recv(&mut buffer, 0)?;
            let mut rest = &buffer[..length];
            while !rest.is_empty() {
                let answer =
                    NetlinkMessage::<NetfilterMessage>::deserialize(rest).map_err(io::Error::other)?;
                rest = &rest[aligned_length(&answer, rest)..];
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(found),
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(message) => found.push(message),
                    _ => {}
                }
            }
        }
    }
}

const DONT_WAIT: i32 = 0x40;

fn aligned_length(answer: &NetlinkMessage<NetfilterMessage>, rest: &[u8]) -> usize {
    (answer.header.length as usize).next_multiple_of(4).clamp(1, rest.len())
}

/// An element as the kernel lists it.
struct FoundElement {
    key: Vec<u8>,
    /// The end of a range.
    end: Option<Vec<u8>>,
    left: Option<Duration>,
}

fn read(message: NetfilterMessage) -> Vec<FoundElement> {
    let NetfilterMessageInner::NfTables(NfTablesMessage::NewSetElement(message)) = message.inner else {
        return Vec::new();
    };
    let lists = message.attributes.into_iter().filter_map(|attribute| match attribute {
        SetElementList::Elements(elements) => Some(elements),
        _ => None,
    });
    let elements = lists.flatten().filter_map(|element| match element {
        ListAttribute::Element(attributes) => read_element(&attributes),
        _ => None,
    });
    elements.collect()
}

fn read_element(attributes: &[SetElementAttribute]) -> Option<FoundElement> {
    let (mut key, mut end, mut left) = (None, None, None);
    for attribute in attributes {
        match attribute {
            SetElementAttribute::Key(DataAttribute::Value(bytes)) => key = Some(bytes.clone()),
            SetElementAttribute::KeyEnd(nested) => end = nested.first().map(value),
            SetElementAttribute::Expiration(milliseconds) => {
                left = Some(Duration::from_millis(*milliseconds));
            }
            _ => {}
        }
    }
    Some(FoundElement { key: key?, end, left })
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut bytes = vec![0; attribute.value_len()];
    attribute.emit_value(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);
    const TARGET: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

    fn key(number: usize) -> ElementKey {
        ElementKey { link: format!("sb0001-{number}"), guest: GUEST, target: None }
    }

    fn range(first: Ipv4Addr, last: Ipv4Addr) -> RangeKey {
        RangeKey { guest: GUEST, first, last }
    }

    /// What each message does, to which set, and to how many elements, of which how many have a timeout.
    fn shown(changes: &[Change]) -> Vec<(&'static str, String, usize, usize)> {
        let shown = |message: &NfTablesMessage| {
            let (verb, content) = match message {
                NfTablesMessage::NewSetElement(content) => ("new", content),
                NfTablesMessage::DeleteSetElement(content) => ("delete", content),
                _ => panic!("no change of elements"),
            };
            let (mut set, mut count, mut timed) = (String::new(), 0, 0);
            for attribute in &content.attributes {
                match attribute {
                    SetElementList::Set(name) => set.clone_from(name),
                    SetElementList::Elements(elements) => {
                        count = elements.len();
                        timed = elements.iter().filter(|element| has_timeout(element)).count();
                    }
                    _ => {}
                }
            }
            (verb, set, count, timed)
        };
        messages("t", changes).iter().map(shown).collect()
    }

    fn has_timeout(element: &ListAttribute<SetElementAttribute>) -> bool {
        let ListAttribute::Element(attributes) = element else { return false };
        attributes.iter().any(|attribute| matches!(attribute, SetElementAttribute::Timeout(_)))
    }

    #[test]
    fn every_set_is_one_of_the_table() {
        let table = include_str!("table.nft");
        for set in [
            Set::Guests,
            Set::Open,
            Set::Strict,
            Set::Learnt,
            Set::Listed,
            Set::AllowedNetworks,
            Set::DeniedNetworks,
            Set::Closed,
            Set::Opened,
            Set::OpenedHere,
            Set::ClosedByOperator,
        ] {
            let is_declared = |line: &str| {
                let declared = line.strip_prefix("add set inet @TABLE@ ");
                declared.is_some_and(|rest| rest.split_whitespace().next() == Some(set.name()))
            };
            assert!(table.lines().any(is_declared), "{}", set.name());
        }
    }

    #[test]
    fn an_element_is_added_before_it_is_deleted_and_again_for_its_timeout() {
        let one = |verb, timed| (verb, "guests".to_owned(), 1, timed);
        assert_eq!(shown(&[Change::Put(Set::Guests, key(1))]), [one("new", 0)]);
        assert_eq!(shown(&[Change::Drop(Set::Guests, key(1))]), [one("new", 0), one("delete", 0)]);
        let passing = [Change::PutFor(Set::Guests, key(1), Duration::from_secs(1))];
        assert_eq!(shown(&passing), [one("new", 0), one("delete", 0), one("new", 1)]);
        assert!(shown(&[]).is_empty());
    }

    #[test]
    fn neighbours_share_a_message_and_the_order_of_others_stays() {
        let changes = [
            Change::Put(Set::Guests, key(1)),
            Change::Put(Set::Guests, key(2)),
            Change::Put(Set::Open, key(1)),
            Change::Put(Set::Guests, key(3)),
            Change::Drop(Set::Guests, key(4)),
        ];
        let message = |verb, set: &str, count| (verb, set.to_owned(), count, 0);
        assert_eq!(
            shown(&changes),
            [
                message("new", "guests", 2),
                message("new", "open", 1),
                message("new", "guests", 1),
                message("new", "guests", 1),
                message("delete", "guests", 1),
            ]
        );
    }

    #[test]
    fn a_message_has_at_most_512_elements() {
        let changes: Vec<_> =
            (0..IN_MESSAGE_MAX + 1).map(|number| Change::Put(Set::Guests, key(number))).collect();
        let counts: Vec<usize> = shown(&changes).into_iter().map(|(_, _, count, _)| count).collect();
        assert_eq!(counts, [512, 1]);
    }

    #[test]
    fn keys_have_the_layout_of_the_sets_and_come_back() {
        let plain = key(1);
        let learnt = ElementKey { target: Some(TARGET), ..key(1) };
        assert_eq!(plain.bytes(), [&b"sb0001-1\0\0\0\0\0\0\0\0"[..], &[10, 64, 0, 2]].concat());
        assert_eq!(learnt.bytes()[20..], [203, 0, 113, 7]);
        for key in [plain, learnt, ElementKey { link: "a".repeat(16), guest: GUEST, target: None }] {
            assert_eq!(ElementKey::read(&key.bytes()), Some(key));
        }
        for foreign in [&b""[..], &[0; 16], &[0; 19], &[0xff; 20]] {
            assert_eq!(ElementKey::read(foreign), None, "{foreign:?}");
        }
    }

    #[test]
    fn a_range_without_an_end_is_one_address() {
        let network = range(Ipv4Addr::new(203, 0, 113, 0), Ipv4Addr::new(203, 0, 113, 255));
        let [first, last] = network.bytes();
        assert_eq!(
            (&first[..], &last[..]),
            (&[10, 64, 0, 2, 203, 0, 113, 0][..], &[10, 64, 0, 2, 203, 0, 113, 255][..])
        );
        let found = |key: &[u8], end: Option<&[u8]>| {
            RangeKey::read(&FoundElement { key: key.to_vec(), end: end.map(<[u8]>::to_vec), left: None })
        };
        assert_eq!(found(&first, Some(&last)), Some(network));
        assert_eq!(found(&first, None), Some(range(network.first, network.first)));
        assert_eq!(found(&first[..7], None), None);
        assert_eq!(found(&first, Some(&last[..6])), None);
    }

    #[test]
    fn an_element_that_the_kernel_lists_has_a_key_and_what_is_left_of_its_timeout() {
        let value = |bytes: &[u8]| SetElementAttribute::Key(DataAttribute::Value(bytes.to_vec()));
        let end = SetElementAttribute::KeyEnd(vec![DefaultNla::new(NFTA_DATA_VALUE, vec![9, 8])]);
        let found = read_element(&[value(&[1, 2]), end, SetElementAttribute::Expiration(1500)]).unwrap();
        assert_eq!((found.key, found.end), (vec![1, 2], Some(vec![9, 8])));
        assert_eq!(found.left, Some(Duration::from_millis(1500)));
        let lasting = read_element(&[value(&[1])]).unwrap();
        assert_eq!((lasting.end, lasting.left), (None, None));
        assert!(read_element(&[SetElementAttribute::Expiration(1)]).is_none());
    }

    #[test]
    fn only_a_lasting_change_puts_an_element_into_a_set() {
        let put = Change::Put(Set::Open, key(1));
        assert_eq!(put.put_into(Set::Open), Some(&key(1)));
        assert_eq!(put.put_into(Set::Strict), None);
        for other in [
            Change::Drop(Set::Open, key(1)),
            Change::PutFor(Set::Open, key(1), Duration::from_secs(1)),
            Change::PutRange(Set::Open, range(TARGET, TARGET)),
        ] {
            assert_eq!(other.put_into(Set::Open), None);
        }
    }
}
