//! Attacks by builds of templates: archives that are small when they arrive, and patterns that take long to match.

use std::io::Write;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Method;
use serde_json::json;

use crate::attack::{Attacker, Work};
use crate::clients::repeat;
use crate::victim::text;

const CONTEXTS: &str = "/v1/templates/contexts";
const TEMPLATES: &str = "/v1/templates";
/// The extension header of the bomb, without compression.
const HEADER_BYTES: u64 = 128 << 20;
const LONG_NAMES: usize = 20_000;
const NAME_BYTES: usize = 3_900;

/// Archives with an extension header that is much larger than a path.
pub fn headers(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let mut archive = GzEncoder::new(Vec::new(), Compression::fast());
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::XHeader);
        header.set_path("x")?;
        header.set_size(HEADER_BYTES);
        header.set_cksum();
        archive.write_all(header.as_bytes())?;
        let zeros = vec![0; 1 << 20];
        for _ in 0..HEADER_BYTES >> 20 {
            archive.write_all(&zeros)?;
        }
        let archive = archive.finish()?;
        let bytes = archive.len();
        repeat(attacker, 6, move |client, _| {
            let archive = archive.clone();
            async move {
                let call = client.call(Method::POST, CONTEXTS).body("application/x-tar", archive);
                call.send().await?;
                Ok(())
            }
        });
        Ok(format!("6 clients upload {} KB with a header of {} MB", bytes >> 10, HEADER_BYTES >> 20))
    })
}

/// Archives of many empty files with long names: their index is larger than they are.
pub fn names(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let mut bytes = 0;
        let mut archives = Vec::new();
        for number in 0..4 {
            let archive =
                archive(|count| format!("{number}-{count}-{}", directories(NAME_BYTES)), LONG_NAMES)?;
            bytes += archive.len();
            archives.push(archive);
        }
        repeat(attacker, 4, move |client, number| {
            let archive = archives[number].clone();
            async move {
                let call = client.call(Method::POST, CONTEXTS).body("application/x-tar", archive);
                call.send().await?;
                Ok(())
            }
        });
        Ok(format!("4 contexts of {LONG_NAMES} names of {NAME_BYTES} bytes, {} KB together", bytes >> 10))
    })
}

/// Patterns of `COPY` that a backtracking matcher tries for minutes.
pub fn stars(attacker: &mut Attacker) -> Work<'_> {
    Box::pin(async {
        let archive = archive(|count| format!("{}{count}", "a".repeat(120)), 4)?;
        let call = attacker.client.call(Method::POST, CONTEXTS).body("application/x-tar", archive);
        let context = text(&call.send().await?.is(201)?["id"])?;
        let mut accepted = 0;
        for number in 0..4 {
            let pattern = format!("{}b{number}", "a*".repeat(7));
            let body = json!({
                "name": format!("stars-{number}"), "timeoutMs": 5000, "context": context,
                "dockerfile": format!("FROM {}\nCOPY {pattern} /copied/", e2e::service::Service::image()),
                "resources": { "memoryMb": 2048, "diskMb": 5120 }, "isolation": attacker.isolation,
            });
            let answer = attacker.client.post(TEMPLATES, &body).await?;
            accepted += usize::from(answer.status == 201);
        }
        ensure!(accepted > 0, "no build was accepted");
        Ok(format!("{accepted} builds with 7 stars in a pattern"))
    })
}

/// A compressed archive of empty files.
fn archive(name: impl Fn(usize) -> String, count: usize) -> Result<Vec<u8>> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for number in 0..count {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(0);
        archive.append_data(&mut header, name(number), std::io::empty())?;
    }
    Ok(archive.into_inner()?.finish()?)
}

/// A path of about this many bytes, with components that are short enough.
fn directories(bytes: usize) -> String {
    vec!["d".repeat(200); bytes / 201].join("/")
}
