//! Claims the block of addresses for sandboxes and the scope of this daemon's names: chosen once, stored in
//! `network.json`, and claimed in the kernel so that no other daemon of this host uses the same.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use netlink::links;
use netlink::routes::{self, RouteEntry};
use netlink::{RouteSocket, is_present};
use serde::{Deserialize, Serialize};

use crate::contract::NetError;
use crate::names::Scope;
use crate::settings::{Block, HostSettings, Pool};

/// The range in which blocks are chosen, a part of 10.0.0.0/8 that few networks use.
const AUTO: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 64, 0, 0), 10);
const AUTO_PREFIX: u8 = 18;
/// Maximum number of scopes to try.
const MAX_SCOPES: u16 = 256;
const ALIAS_BYTES_MAX: usize = 255;

/// The daemon's claim.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    pub scope: Scope,
    pub block: Block,
    pub gateway_link: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct StoredClaim {
    scope: String,
    pool: Ipv4Net,
}

/// Restores or creates the claim of a daemon. The gateway's link and the block's route stay until [`give_back`].
pub fn claim(socket: &RouteSocket, settings: &HostSettings) -> Result<Claim, NetError> {
    let fault = |error: io::Error| NetError::new("claim a block of addresses", error);
    let stored_claim = stored_claim(&settings.data_dir);
    let (scope, gateway) = claim_scope(socket, &settings.data_dir, stored_claim.as_ref())?;
    let links = links::all(socket).map_err(fault)?;
    let ours: Vec<u32> =
        links.iter().filter(|link| link.name.starts_with(&scope.links())).map(|link| link.index).collect();
    let has = links::addresses(socket, gateway).map_err(fault)?;
    let routes: Vec<RouteEntry> = routes::all(socket).map_err(fault)?;
    let foreign: Vec<RouteEntry> =
        routes.into_iter().filter(|route| route.link.is_none_or(|link| !ours.contains(&link))).collect();
    let current = stored_claim.map(|known| Block(known.pool)).filter(|block| has.contains(&block.gateway()));
    let requested = match settings.pool {
        Pool::Auto => None,
        Pool::Block(range) => Some(Block(range.trunc())),
    };
    if let (Some(current), true) = (current, ours.len() > 1)
        && requested.is_some_and(|requested| requested != current)
    {
        return Err(NetError::new(
            "[egress] pool",
            format!(
                "sandboxes use addresses of {}; the pool can be changed only when there are no sandboxes",
                current.0
            ),
        ));
    }
    let others: Vec<RouteEntry> = match current {
        Some(current) => {
            foreign.into_iter().filter(|route| !route.is_ours || route.range != current.0).collect()
        }
        None => foreign,
    };
    let names = |index: u32| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
    let block = match requested {
        Some(block) => configured(socket, block, current, settings.slots, &others, names)?,
        None => automatic(socket, current, settings, &others)?,
    };
    if let Some(old) = current.filter(|current| *current != block) {
        routes::give_back(socket, old.0).map_err(fault)?;
    }
    store_claim(&settings.data_dir, &StoredClaim { scope: scope.to_string(), pool: block.0 })
        .map_err(fault)?;
    for old in has.into_iter().filter(|address| *address != block.gateway()) {
        links::unset_address(socket, gateway, old).map_err(fault)?;
    }
    links::set_address(socket, gateway, block.gateway()).map_err(fault)?;
    // The host serves sandboxes only at its IPv4 gateway address.
    links::without_ipv6(&scope.gateway()).map_err(fault)?;
    links::up(socket, gateway).map_err(fault)?;
    Ok(Claim { scope, block, gateway_link: gateway })
}

fn configured(
    socket: &RouteSocket,
    block: Block,
    current: Option<Block>,
    slots: u32,
    others: &[RouteEntry],
    names: impl Fn(u32) -> Option<String>,
) -> Result<Block, NetError> {
    if !block.holds(slots) {
        return Err(NetError::new(
            "[egress] pool",
            format!("{} is too small for {slots} sandboxes", block.0),
        ));
    }
    if let Some(route) = overlapping(block.0, others) {
        let by = match route.link.and_then(names) {
            Some(name) => format!("through {name}"),
            None if route.is_ours => "of another sandboxd".to_owned(),
            None => "of this host".to_owned(),
        };
        return Err(NetError::new(
            "[egress] pool",
            format!(
                "{} overlaps the route {} {by}; choose a block that no route leads to",
                block.0, route.range
            ),
        ));
    }
    match routes::claim(socket, block.0) {
        Err(error) if !(is_present(&error) && current == Some(block)) => {
            Err(NetError::new("claim the pool", error))
        }
        _ => Ok(block),
    }
}

fn automatic(
    socket: &RouteSocket,
    current: Option<Block>,
    settings: &HostSettings,
    others: &[RouteEntry],
) -> Result<Block, NetError> {
    let stored_claim = stored_claim(&settings.data_dir).map(|known| Block(known.pool));
    let fresh = candidates(hash(&settings.data_dir), settings.slots).map(Block);
    for block in stored_claim.into_iter().chain(fresh) {
        if !block.holds(settings.slots) || overlapping(block.0, others).is_some() {
            continue;
        }
        match routes::claim(socket, block.0) {
            Ok(()) => return Ok(block),
            Err(error) if is_present(&error) && current == Some(block) => return Ok(block),
            // Another daemon has just claimed it.
            Err(error) if is_present(&error) => {}
            Err(error) => return Err(NetError::new("claim a block of addresses", error)),
        }
    }
    Err(NetError::new(
        "[egress] pool",
        format!(
            "every block of {}/{} overlaps a route; set egress.pool to a network that no route leads to",
            AUTO.0, AUTO.1
        ),
    ))
}

/// The route that a block overlaps. The default route overlaps every block and does not count.
pub fn overlapping(block: Ipv4Net, routes: &[RouteEntry]) -> Option<&RouteEntry> {
    routes.iter().find(|route| {
        route.range.prefix_len() > 0 && (route.range.contains(&block) || block.contains(&route.range))
    })
}

/// All possible blocks, in an order that depends on the daemon.
fn candidates(seed: u32, slots: u32) -> impl Iterator<Item = Ipv4Net> {
    let prefix = (AUTO.1..=AUTO_PREFIX)
        .rev()
        .find(|prefix| Ipv4Net::new(AUTO.0, *prefix).is_ok_and(|net| Block(net).holds(slots)))
        .unwrap_or(AUTO.1);
    let count = 1_u32 << (prefix - AUTO.1);
    let size = 1_u32 << (32 - u32::from(prefix));
    (0..count).filter_map(move |number| {
        let number = seed.wrapping_add(number) % count;
        Ipv4Net::new(Ipv4Addr::from(u32::from(AUTO.0) + number * size), prefix).ok()
    })
}

fn claim_scope(
    socket: &RouteSocket,
    data_dir: &Path,
    stored_claim: Option<&StoredClaim>,
) -> Result<(Scope, u32), NetError> {
    let fault = |error: io::Error| NetError::new("create the gateway's link", error);
    let alias = alias(data_dir);
    let before = stored_claim.and_then(|known| Scope::parse(&known.scope));
    // Both halves of the hash, so that similar paths differ in more than one digit.
    let seed = hash(data_dir);
    let seed = (seed ^ (seed >> 16)) as u16;
    let fresh = (0..MAX_SCOPES).map(|number| Scope(seed.wrapping_add(number)));
    for scope in before.into_iter().chain(fresh) {
        let name = scope.gateway();
        match links::add_gateway(socket, &name, &alias) {
            Ok(()) => {}
            Err(error) if is_present(&error) => {}
            Err(error) => return Err(fault(error)),
        }
        if let Some(link) = links::find(socket, &name).map_err(fault)?
            && link.alias.as_deref() == Some(alias.as_str())
        {
            return Ok((scope, link.index));
        }
    }
    Err(NetError::new("create the gateway's link", "all candidate link names are in use"))
}

/// The alias of the gateway's link, which names the daemon that it belongs to.
fn alias(data_dir: &Path) -> String {
    let full = format!("sandboxd {}", canonical(data_dir).display());
    if full.len() <= ALIAS_BYTES_MAX { full } else { format!("sandboxd #{:08x}", hash(data_dir)) }
}

fn canonical(data_dir: &Path) -> PathBuf {
    fs::canonicalize(data_dir).unwrap_or_else(|_| data_dir.to_owned())
}

/// FNV-1a: small, and stable across builds.
fn hash(data_dir: &Path) -> u32 {
    let path = canonical(data_dir);
    let bytes = path.as_os_str().as_encoded_bytes();
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn file(data_dir: &Path) -> PathBuf {
    data_dir.join("network.json")
}

fn stored_claim(data_dir: &Path) -> Option<StoredClaim> {
    let text = fs::read(file(data_dir)).ok()?;
    serde_json::from_slice(&text)
        .inspect_err(
            |error| tracing::warn!(%error, "network.json is invalid; choosing a new block of addresses"),
        )
        .ok()
}

/// The block that a daemon chose last.
pub fn stored_block(data_dir: &Path) -> Option<Ipv4Net> {
    stored_claim(data_dir).map(|known| known.pool)
}

fn store_claim(data_dir: &Path, what: &StoredClaim) -> io::Result<()> {
    fs::create_dir_all(data_dir)?;
    base::replace_file(&file(data_dir), &serde_json::to_vec_pretty(what)?, 0o644)
}

/// Whether a daemon of this service created the link.
pub fn is_link_of_sandboxes(name: &str) -> bool {
    name.strip_prefix("sb")
        .and_then(|rest| rest.split_once('-'))
        .is_some_and(|(scope, _)| Scope::parse(scope).is_some())
}

/// Undoes [`claim`].
pub fn give_back(socket: &RouteSocket, claim: &Claim, data_dir: &Path) -> io::Result<()> {
    routes::give_back(socket, claim.block.0)?;
    links::remove(socket, &claim.scope.gateway())?;
    base::allow_missing(fs::remove_file(file(data_dir)))
}

#[cfg(test)]
mod tests;
