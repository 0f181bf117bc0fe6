//! The content type of a file by its name.

/// The type by the extension, or the type of any bytes.
pub fn of(path: &str) -> &'static str {
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "txt" | "log" => "text/plain; charset=utf-8",
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "xml" => "text/xml; charset=utf-8",
        "json" => "application/json",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "tar" => "application/x-tar",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "svg" => "image/svg+xml",
        "webp" => "image/webp",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_extension_decides() {
        for (path, expected) in [
            ("/a/b.JSON", "application/json"),
            ("/a.json/b", "application/octet-stream"),
            ("b.txt", "text/plain; charset=utf-8"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(super::of(path), expected);
        }
    }
}
