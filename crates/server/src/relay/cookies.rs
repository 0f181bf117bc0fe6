//! The cookies that hold a token: no program inside reads or sets them.

/// With the prefix no other host can set it, for which browsers want TLS.
pub const SAFE_COOKIE: &str = "__Host-sandbox-token";
pub const PLAIN_COOKIE: &str = "sandbox-token";

/// Whether a cookie of this name is none of the program's.
pub fn is_ours(name: &[u8]) -> bool {
    let name = name.trim_ascii();
    name.eq_ignore_ascii_case(SAFE_COOKIE.as_bytes()) || name.eq_ignore_ascii_case(PLAIN_COOKIE.as_bytes())
}
