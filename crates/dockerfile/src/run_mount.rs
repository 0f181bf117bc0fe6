//! `RUN --mount`: which mounts make no difference to the result, and what replaces the others.

/// Whether a mount is a cache that begins empty. It only saves time, so the command has the same result without it.
pub fn is_empty_cache(mount: &str) -> bool {
    mount_type(mount) == "cache" && !has_option(mount, "from")
}

/// Why a mount is refused, and what replaces it.
pub fn unsupported(mount: &str) -> String {
    let kind = mount_type(mount);
    let instead = match kind.as_str() {
        "bind" => "use COPY, or COPY --from for files of another stage or image",
        "secret" => {
            "a build has no secrets, because its steps are stored; fetch with RUN only what needs none, COPY the rest \
             from the context, or pass the secret as 'env' of the create"
        }
        "ssh" => {
            "a build has no SSH agent; fetch the sources before the build, and COPY them from the context"
        }
        "tmpfs" => "write to a directory such as /tmp, and remove the files in the same RUN",
        "cache" => "a cache is empty at first here; use COPY --from for files of another stage or image",
        _ => "leave it out",
    };
    format!("RUN --mount=type={kind} is not supported: {instead}")
}

/// In lower case.
fn mount_type(mount: &str) -> String {
    let pairs = mount.split(',').filter_map(|pair| pair.split_once('='));
    let kind = pairs
        .map(|(name, value)| (name.trim(), value.trim()))
        .find_map(|(name, value)| name.eq_ignore_ascii_case("type").then(|| value.to_ascii_lowercase()));
    kind.unwrap_or_else(|| "bind".to_owned())
}

/// Whether a mount has an option of this name.
fn has_option(mount: &str, name: &str) -> bool {
    let names = mount.split(',').filter_map(|pair| pair.split('=').next());
    names.map(str::trim).any(|found| found.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_is_empty_unless_it_names_a_source() {
        for (mount, expected) in [
            ("type=cache,target=/c", true),
            ("target=/c, Type = CACHE", true),
            ("type=cache,from=b,target=/c", false),
            ("type=cache,target=/c,From=b", false),
            ("target=/c", false),
            ("", false),
        ] {
            assert_eq!(is_empty_cache(mount), expected, "{mount}");
        }
    }

    #[test]
    fn each_refusal_says_what_to_do_instead() {
        for (mount, part) in [
            ("type=cache,from=b,target=/c", "a cache is empty at first here"),
            ("target=/c,source=x", "type=bind is not supported: use COPY"),
            ("type=Secret,id=x", "type=secret is not supported: a build has no secrets"),
            ("type=ssh", "a build has no SSH agent"),
            ("type=tmpfs,target=/t", "write to a directory such as /tmp"),
            ("type=other", "type=other is not supported: leave it out"),
        ] {
            let message = unsupported(mount);
            assert!(message.contains(part), "{mount}: {message}");
        }
    }
}
