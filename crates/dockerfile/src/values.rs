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
