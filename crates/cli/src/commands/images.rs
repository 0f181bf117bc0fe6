//! `sbx images`: lists images, with the progress of pulls.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::{Client, ImageStatus, ImageView};

use crate::output::{OutputFormat, note};
use crate::progress::size;
use crate::style::{Paint, Tone};
use crate::table::{age, plain, table};

/// Length of a shortened digest: its algorithm and 12 digits.
const SHORT_DIGEST_CHARS: usize = 19;

/// Prints the images as a table, or only their names.
pub async fn images(client: &Client, format: OutputFormat, quiet: bool) -> Result<ExitCode> {
    let images = client.images().await?;
    if quiet {
        return format.print_ids(&images, |image| image.name.clone());
    }
    if format == OutputFormat::Plain && std::io::stdout().is_terminal() {
        note("sbx: your own images are listed by 'sbx template ls' and 'sbx snapshot ls'");
    }
    format.print(&images, |paint| render(&images, base::unix_ms(), paint))
}

fn render(images: &[ImageView], now_ms: u64, paint: Paint) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = images.iter().map(|image| {
        let tone = match image.status {
            ImageStatus::Ready => Tone::Good,
            ImageStatus::Pulling => Tone::Waiting,
        };
        let age = image.created_at.map(|at| age(now_ms.saturating_sub(at.0)));
        let digest = image.digest.as_ref().map(|digest| digest.chars().take(SHORT_DIGEST_CHARS).collect());
        [
            (image.name.clone(), Tone::Bold),
            (status(image), tone),
            plain(or_dash(image.size_bytes.map(size))),
            plain(or_dash(age)),
            plain(or_dash(digest)),
        ]
    });
    let mut text = table(["IMAGE", "STATUS", "SIZE", "AGE", "DIGEST"], rows, paint);
    for stand_in in images.iter().filter_map(|image| image.stand_in.as_ref()) {
        text.push_str(&format!("{stand_in}\n"));
    }
    text
}

fn status(image: &ImageView) -> String {
    let percent =
        image.progress.and_then(|pull| pull.done_bytes.saturating_mul(100).checked_div(pull.total_bytes));
    match percent {
        Some(percent) => format!("{} {percent} %", image.status),
        None => image.status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_the_known_fields() {
        let json = r#"[
            {"name":"a:1","status":"ready","digest":"sha256:0123456789abcdef","sizeBytes":120000000,"createdAt":"1970-01-01T00:01:00Z",
             "standIn":"a:1 is a stand-in"},
            {"name":"b:1","status":"pulling","progress":{"stage":"fetching","doneBytes":1,"totalBytes":4}},
            {"name":"c:1","status":"pulling","progress":{"stage":"resolving","doneBytes":0,"totalBytes":0}}]"#;
        let images: Vec<ImageView> = serde_json::from_str(json).unwrap();
        assert_eq!(
            render(&images, 180_000, Paint::None),
            "IMAGE  STATUS        SIZE      AGE  DIGEST\n\
             a:1    ready         120.0 MB  2m   sha256:0123456789ab\n\
             b:1    pulling 25 %  -         -    -\n\
             c:1    pulling       -         -    -\n\
             a:1 is a stand-in\n"
        );
    }
}
