//! Objects that try to take more memory than they have bytes. What is allocated is counted.

use allocation_counter::measure;
use proptest::prelude::*;

use super::*;

/// An authentic manifest may take this many times its size: a window of a file is 70 bytes of JSON and 40 of memory, and a list doubles
/// when it grows.
const TIMES: usize = 8;
/// For the text of an error, and small inputs.
const SPARE: usize = 1 << 20;

/// An object with any body and the right hash, with or without the right code.
fn object(body: &[u8], secrets: Option<&Secrets>) -> Vec<u8> {
    let hash = ChunkHash::of(body).to_string();
    let line = match secrets {
        Some(secrets) => {
            format!("sandboxd-snapshot 2 {hash} {}\n", secrets.code(&["sandboxd-snapshot", "snap_1", &hash]))
        }
        None => format!("sandboxd-snapshot 1 {hash}\n"),
    };
    [line.as_bytes(), body].concat()
}

/// Peak memory and the number of all bytes that are allocated.
fn cost(object: &[u8], secrets: &Secrets) -> (bool, usize) {
    let mut is_accepted = false;
    let allocated = measure(|| is_accepted = Manifest::from_object("snap_1", object, secrets).is_ok());
    (is_accepted, usize::try_from(allocated.bytes_max).unwrap())
}

fn body(record: &str, parts: &str) -> Vec<u8> {
    format!(r#"{{"id":"snap_1","account":"a","host":"h","record":{record},"parts":{parts}}}"#).into_bytes()
}

/// A list of the same element many times.
fn list(element: &str, count: usize) -> String {
    format!("[{}]", vec![element; count].join(","))
}

fn bombs() -> Vec<(&'static str, Vec<u8>)> {
    let chunk = format!(r#"[0,"{}"]"#, "0".repeat(64));
    let in_file =
        |chunks: String| format!(r#"[{{"name":"p","files":[{{"name":"f","bytes":1,"chunks":{chunks}}}]}}]"#);
    let map: String = (0..200_000).map(|number| format!(r#""{number}":0,"#)).collect();
    vec![
        ("values", body(&list("0", 2_000_000), "[]")),
        ("lists", body(&list("[]", 1_000_000), "[]")),
        ("maps", body(&list("{}", 1_000_000), "[]")),
        ("names", body(&format!("{{{map}\"x\":0}}"), "[]")),
        ("depth", body(&"[".repeat(2_000_000), "[]")),
        ("text", body(&format!("\"{}\"", r"\u0041".repeat(500_000)), "[]")),
        ("numbers", body(&format!("[{}]", "9".repeat(2_000_000)), "[]")),
        ("parts", body("{}", &list(r#"{"name":"","files":[]}"#, 200_000))),
        (
            "files",
            body(
                "{}",
                &format!(
                    r#"[{{"name":"","files":{}}}]"#,
                    list(r#"{"name":"","bytes":0,"chunks":[]}"#, 100_000)
                ),
            ),
        ),
        ("chunks", body("{}", &in_file(list(&chunk, 50_000)))),
        ("unknown", body(&format!(r#"{{}},"more":{}"#, list("[[]]", 500_000)), "[]")),
        ("nothing", Vec::new()),
        ("zeros", vec![0; 4 << 20]),
        ("lines", vec![b'\n'; 4 << 20]),
    ]
}

#[test]
fn a_bomb_without_the_secret_is_not_even_parsed() {
    let own = secrets('a', WithoutCode::Refuse);
    for (name, body) in bombs() {
        for object in [object(&body, None), object(&body, Some(&secrets('e', WithoutCode::Refuse))), body] {
            let (is_accepted, bytes) = cost(&object, &own);
            assert!(!is_accepted && bytes < 16 << 10, "{name}: {bytes} bytes");
        }
    }
}

#[test]
fn an_authentic_bomb_takes_a_bounded_multiple_of_its_size() {
    // If the operator accepts objects of earlier releases, anybody can make one.
    let lenient = secrets('a', WithoutCode::Accept);
    for (name, body) in bombs() {
        for object in [object(&body, None), object(&body, Some(&lenient))] {
            let (is_accepted, bytes) = cost(&object, &lenient);
            assert!(bytes <= TIMES * object.len() + SPARE, "{name}: {bytes} bytes for {}", object.len());
            assert!(!is_accepted || name == "text" || name == "unknown", "{name}");
        }
    }
}

#[test]
fn a_chunk_takes_no_more_than_a_chunk_has() {
    for size in [CHUNK_BYTES, CHUNK_BYTES + 1, 256 << 20] {
        let content = vec![0; size];
        let packed = zstd::bulk::compress(&content, 3).unwrap();
        let hash = ChunkHash::of(&content);
        let mut is_accepted = false;
        let allocated = measure(|| is_accepted = crate::chunk::decompress(&packed, hash).is_ok());
        assert_eq!(is_accepted, size == CHUNK_BYTES);
        let bytes = usize::try_from(allocated.bytes_max).unwrap();
        assert!(bytes <= CHUNK_BYTES + (64 << 10), "{bytes} bytes for {size}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(
        start in prop::sample::select(vec!["", "sandboxd-snapshot 1 ", "sandboxd-snapshot 2 ", "\n"]),
        bytes in prop::collection::vec(any::<u8>(), 0..4096),
    ) {
        let any = [start.as_bytes(), &bytes].concat();
        for secrets in [secrets('a', WithoutCode::Refuse), secrets('a', WithoutCode::Accept)] {
            for object in [any.clone(), object(&bytes, None), object(&bytes, Some(&secrets))] {
                let (is_accepted, allocated) = cost(&object, &secrets);
                prop_assert!(!is_accepted && allocated <= TIMES * object.len() + SPARE);
            }
        }
    }
}
