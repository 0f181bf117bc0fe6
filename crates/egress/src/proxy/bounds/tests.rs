use super::*;

const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// More memory than one sandbox can hold.
const MEMORY: u64 = 16 << 30;

/// As many permits as one sandbox gets.
fn take_all(bounds: &Arc<Bounds>, guest: Ipv4Addr, kind: Http) -> Vec<ConnectionPermit> {
    let next = || {
        let mut permit = bounds.take(guest)?;
        permit.decided();
        permit.start_http(kind).then_some(permit)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn undecided_connections_are_limited() {
    let bounds = Bounds::new(100_000, MEMORY);
    let mut permits: Vec<ConnectionPermit> = (0..UNDECIDED_MAX).map(|_| bounds.take(ONE).unwrap()).collect();
    assert!(bounds.take(ONE).is_none());
    assert!(bounds.take(TWO).is_some(), "another sandbox is not touched");
    permits[0].decided();
    permits[0].decided();
    let more = bounds.take(ONE).unwrap();
    assert!(bounds.take(ONE).is_none());
    assert!(!permits[0].undecided(), "there is no permit to be undecided again");
    drop(more);
    assert!(permits[0].undecided());
    drop(permits);
    assert!(bounds.lock().by_guest.is_empty() && bounds.lock().all == 0);
}

#[test]
fn one_sandbox_cannot_take_all_permits() {
    let bounds = Bounds::new(1000, MEMORY);
    let mut permits = Vec::new();
    while let Some(mut permit) = bounds.take(ONE) {
        permit.decided();
        permits.push(permit);
    }
    assert_eq!(permits.len(), 800);
    assert!(bounds.take(TWO).is_some());
    let bounds = Bounds::new(100_000, MEMORY);
    let open = std::iter::from_fn(|| {
        bounds.take(ONE).inspect(|_| ()).map(|mut permit| {
            permit.decided();
            permit
        })
    });
    assert_eq!(open.take(10_000).collect::<Vec<_>>().len(), OPEN_MAX);
}

#[test]
fn http_connections_are_counted_separately() {
    let bounds = Bounds::new(100_000, MEMORY);
    let mut one = take_all(&bounds, ONE, Http::One);
    let mut two = take_all(&bounds, ONE, Http::Two);
    assert_eq!((one.len(), two.len()), (HTTP_MAX, HTTP2_MAX));
    let mut more = bounds.take(ONE).unwrap();
    assert!(!more.start_http(Http::One));
    one.pop();
    assert!(more.start_http(Http::One));
    two[0].set_idle();
    two[0].set_idle();
    assert!(more.start_http(Http::Two));
    assert!(!two[0].start_http(Http::Two));
    drop((one, two, more));
    let held = bounds.lock();
    assert!(held.by_guest.is_empty() && held.http_bytes + held.http2_bytes == 0);
}

#[test]
fn http_memory_is_limited_in_total() {
    let bounds = Bounds::new(100_000, 20 * HTTP2_BYTES);
    let greedy = take_all(&bounds, ONE, Http::Two);
    assert_eq!(greedy.len(), 16, "one sandbox leaves permits to others");
    let others: Vec<ConnectionPermit> =
        (3..100).flat_map(|last| take_all(&bounds, Ipv4Addr::new(192, 0, 2, last), Http::Two)).collect();
    assert_eq!(others.len(), 4);
    assert!(take_all(&bounds, TWO, Http::Two).is_empty(), "the memory is used up");
    assert_eq!(take_all(&bounds, TWO, Http::One).len(), 410, "HTTP/1 has its own limit");
    drop(greedy);
    assert!(!take_all(&bounds, TWO, Http::Two).is_empty());
}
