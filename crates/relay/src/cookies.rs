//! The cookies that hold port tokens. Programs inside can neither read nor set them.

/// The prefix keeps other hosts from setting the cookie. Browsers require TLS for it.
pub const SAFE_COOKIE: &str = "__Host-sandbox-token";
pub const PLAIN_COOKIE: &str = "sandbox-token";

/// Whether a cookie of this name holds a token.
pub fn is_ours(name: &[u8]) -> bool {
    let name = name.trim_ascii();
    name.eq_ignore_ascii_case(SAFE_COOKIE.as_bytes()) || name.eq_ignore_ascii_case(PLAIN_COOKIE.as_bytes())
}
