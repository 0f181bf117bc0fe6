//! Forms of values in instructions: paths, owners and ports.

/// Most ports of a range that are recorded one by one.
const MAX_RANGE: u16 = 64;

/// An absolute path without `.`, `..` and repeated slashes.
pub fn normalized(workdir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let below = if path.starts_with('/') { "" } else { workdir };
    for part in below.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// An owner with a group: a number alone is that of the group too, and a group alone is for root. The group of a name is that of the
/// user in the image.
pub fn whole_owner(owner: String) -> String {
    if owner.starts_with(':') {
        return format!("0{owner}");
    }
    let is_number = !owner.is_empty() && owner.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("{owner}:{owner}") } else { owner }
}

/// `PORT/PROTOCOL`, or all ports of a range.
pub fn ports_of(text: &str) -> Result<Vec<String>, String> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = protocol.to_ascii_lowercase();
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let range = match ports.split_once('-') {
        Some((first, last)) => port(first).zip(port(last)),
        None => port(ports).map(|port| (port, port)),
    };
    match range {
        Some((first, last)) if ["tcp", "udp", "sctp"].contains(&protocol.as_str()) => {
            if last.saturating_sub(first) >= MAX_RANGE || last < first {
                return Ok(vec![format!("{ports}/{protocol}")]);
            }
            Ok((first..=last).map(|port| format!("{port}/{protocol}")).collect())
        }
        _ => Err(format!("EXPOSE has '{text}'; allowed: a port such as 8080, 8080/udp or 8000-8010")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_absolute_and_cannot_leave_the_root() {
        for (workdir, path, whole) in [
            ("/w", "a", "/w/a"),
            ("/w/", "./a//b/.", "/w/a/b"),
            ("/w", "/a/../b", "/b"),
            ("/w", "../../..", "/"),
            ("/w", "", "/w"),
            ("", "x", "/x"),
            ("/w", "..a", "/w/..a"),
        ] {
            assert_eq!(normalized(workdir, path), whole, "{path} in {workdir}");
        }
    }

    #[test]
    fn an_owner_has_a_group_unless_it_is_a_name() {
        for (owner, whole) in [
            ("1000", "1000:1000"),
            ("1:2", "1:2"),
            (":5", "0:5"),
            ("user", "user"),
            ("user:web", "user:web"),
            ("", ""),
        ] {
            assert_eq!(whole_owner(owner.to_owned()), whole, "{owner}");
        }
    }

    #[test]
    fn ports_have_a_protocol_and_short_ranges_are_listed() {
        let ports = |text: &str| ports_of(text).unwrap();
        assert_eq!(ports("8080"), ["8080/tcp"]);
        assert_eq!(ports("53/UDP"), ["53/udp"]);
        assert_eq!(ports("65535/sctp"), ["65535/sctp"]);
        assert_eq!(ports("8000-8002/udp"), ["8000/udp", "8001/udp", "8002/udp"]);
        assert_eq!(ports("8000-8063").len(), 64);
        assert_eq!(ports("8000-8064"), ["8000-8064/tcp"]);
        assert_eq!(ports("9-8"), ["9-8/tcp"]);
        for wrong in ["", "0", "65536", "web", "80/icmp", "80-", "-80", "0-5", "80/"] {
            assert!(ports_of(wrong).unwrap_err().starts_with(&format!("EXPOSE has '{wrong}'")), "{wrong}");
        }
    }
}
