//! The 512-byte header of a tar entry, written as ustar with pax records and read as ustar, pax or GNU. Used by
//! `pack` and `archive`.

/// Headers, and contents with their padding, are multiples of this.
pub const BLOCK: usize = 512;
/// Limits of the fields of ustar.
const NAME_BYTES: usize = 100;
const MAX_OCTAL: u64 = 0o77_777_777_777;
const CHECKSUM: std::ops::Range<usize> = 148..156;

/// An entry, without its content.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The type flag of the archive: `0` a file, `2` a link, `5` a directory and so on.
    pub kind: u8,
    pub name: Vec<u8>,
    pub link: Vec<u8>,
    pub mode: u32,
    pub size: u64,
    pub modified_s: i64,
    /// The fraction of the modification time, which only pax records have.
    pub modified_ns: i64,
}

/// Length of the padding after this many bytes.
pub fn padding(size: u64) -> usize {
    ((BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64) as usize
}

/// Appends a header. Values that it cannot hold are in a pax entry before it.
pub fn encode(header: &Header, out: &mut Vec<u8>) {
    let mut records = Vec::new();
    if header.name.len() > NAME_BYTES {
        record(&mut records, "path", &header.name);
    }
    if header.link.len() > NAME_BYTES {
        record(&mut records, "linkpath", &header.link);
    }
    if header.size > MAX_OCTAL {
        record(&mut records, "size", header.size.to_string().as_bytes());
    }
    let plain_time = u64::try_from(header.modified_s).ok().filter(|time| *time <= MAX_OCTAL);
    if plain_time.is_none() || !records.is_empty() {
        // Readers of pax records expect the time there.
        record(&mut records, "mtime", time(header.modified_s, header.modified_ns).as_bytes());
        block(b'x', b"pax", &[], 0o644, records.len() as u64, 0, out);
        let end = padding(records.len() as u64);
        out.extend_from_slice(&records);
        out.resize(out.len() + end, 0);
    }
    let size = if header.size > MAX_OCTAL { 0 } else { header.size };
    block(header.kind, &header.name, &header.link, header.mode, size, plain_time.unwrap_or(0), out);
}

fn block(kind: u8, name: &[u8], link: &[u8], mode: u32, size: u64, modified: u64, out: &mut Vec<u8>) {
    let mut block = [0u8; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(NAME_BYTES)]);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000\x000000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, format!("{modified:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &link[..link.len().min(NAME_BYTES)]);
    put(257, b"ustar\x0000");
    put(265, b"root");
    put(297, b"root");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&block);
}

/// The time of a record. Before 1970 the kernel's nanoseconds count forwards, and the fraction of a record backwards.
fn time(seconds: i64, nanoseconds: i64) -> String {
    match (seconds, nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds, nanoseconds) if seconds >= 0 => format!("{seconds}.{nanoseconds:09}"),
        (seconds, nanoseconds) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanoseconds),
    }
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    out.extend_from_slice(format!("{length} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Parses a block. `None`: it is not a header.
pub fn decode(block: &[u8; BLOCK]) -> Option<Header> {
    let stored = number(&block[CHECKSUM])?;
    let sum: u64 = block
        .iter()
        .enumerate()
        .map(|(at, byte)| if CHECKSUM.contains(&at) { u64::from(b' ') } else { u64::from(*byte) })
        .sum();
    if sum != stored {
        return None;
    }
    let mut name = text(&block[..NAME_BYTES]).to_vec();
    // GNU uses the field that holds the prefix of a long name in ustar for other values.
    if block[257..263] == *b"ustar\0" {
        let prefix = text(&block[345..500]);
        if !prefix.is_empty() {
            name = [prefix, b"/", &name].concat();
        }
    }
    Some(Header {
        kind: block[156],
        name,
        link: text(&block[157..257]).to_vec(),
        mode: u32::try_from(number(&block[100..108])? & 0o7777).ok()?,
        size: number(&block[124..136])?,
        modified_s: i64::try_from(number(&block[136..148]).unwrap_or(0)).unwrap_or(0),
        modified_ns: 0,
    })
}

/// The key and value of each pax record. `None` for a malformed one.
pub fn records(mut text: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut records = Vec::new();
    while !text.is_empty() && text.iter().any(|byte| *byte != 0) {
        let space = text.iter().take(20).position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
        let record = text.get(space + 1..length)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        records.push((&record[..equals], &record[equals + 1..]));
        text = &text[length..];
    }
    Some(records)
}

fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Octal digits, or GNU's big-endian number behind a set bit.
fn number(field: &[u8]) -> Option<u64> {
    if field.first().is_some_and(|byte| byte & 0x80 != 0) {
        let (high, low) = field.split_at(field.len().saturating_sub(8));
        let empty = high.iter().enumerate().all(|(at, byte)| *byte == if at == 0 { 0x80 } else { 0 });
        let low = low.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        return empty.then_some(if high.is_empty() { low & (u64::MAX >> 1) } else { low });
    }
    let digits = text(field);
    let digits = std::str::from_utf8(digits).ok()?.trim_matches(' ');
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(header: &Header) -> Vec<u8> {
        let mut out = Vec::new();
        encode(header, &mut out);
        assert_eq!(out.len() % BLOCK, 0);
        out
    }

    #[test]
    fn a_header_round_trips() {
        let header = Header {
            kind: b'2',
            name: b"a/\xff b".to_vec(),
            link: b"../x".to_vec(),
            mode: 0o4755,
            size: 0,
            modified_s: 1_700_000_000,
            modified_ns: 0,
        };
        let out = encoded(&header);
        assert_eq!(decode(out[..].first_chunk().unwrap()), Some(header));
        let mut bad = out;
        bad[3] ^= 1;
        assert_eq!(decode(bad[..].first_chunk().unwrap()), None);
        assert_eq!(decode(&[0; BLOCK]), None);
    }

    #[test]
    fn values_beyond_ustar_are_in_pax_records() {
        let name = [b"d/".as_slice(), &[b'n'; 150]].concat();
        let header =
            Header { kind: b'0', name: name.clone(), size: 1 << 40, modified_s: -5, ..Header::default() };
        let out = encoded(&header);
        let first = decode(out[..].first_chunk().unwrap()).unwrap();
        assert_eq!(first.kind, b'x');
        let size = usize::try_from(first.size).unwrap();
        let records = records(&out[BLOCK..BLOCK + size]).unwrap();
        let expected: [(&[u8], &[u8]); 3] =
            [(b"path", &name), (b"size", b"1099511627776"), (b"mtime", b"-5")];
        assert_eq!(records, expected);
    }

    #[test]
    fn records_count_their_own_length() {
        for length in 85..120 {
            let mut out = Vec::new();
            let value = vec![b'v'; length];
            record(&mut out, "path", &value);
            assert_eq!(records(&out), Some(vec![(b"path".as_slice(), value.as_slice())]), "{length}");
        }
        for bad in
            ["x", "5", "99 a=b\n", "6 ab=c\n", "4 ab\n", "0 a=b\n", " a=b\n", "18446744073709551616 a=b\n"]
        {
            assert_eq!(records(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Some(0o644));
        assert_eq!(number(b"   644 \0"), Some(0o644));
        assert_eq!(number(b"\0\0\0"), Some(0));
        assert_eq!(number(b"\x80\0\0\0\0\0\0\0\0\0\x01\0"), Some(256));
        assert_eq!(number(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), None);
        assert_eq!(number(b"9"), None);
    }
}
