use super::*;

const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// More than one sandbox can come to hold.
const MEMORY: u64 = 16 << 30;

/// As many as there can be of a kind.
fn taken(bounds: &Arc<Bounds>, guest: Ipv4Addr, kind: Http) -> Vec<Permit> {
    let next = || {
        let mut permit = bounds.take(guest)?;
        permit.decided();
        permit.read_as_http(kind).then_some(permit)
    };
    std::iter::from_fn(next).collect()
}

#[test]
fn undecided_ones_are_few_and_make_place_when_decided() {
    let bounds = Bounds::new(100_000, MEMORY);
    let mut places: Vec<Permit> = (0..UNDECIDED_MAX).map(|_| bounds.take(ONE).unwrap()).collect();
    assert!(bounds.take(ONE).is_none());
    assert!(bounds.take(TWO).is_some(), "another sandbox is not touched");
    places[0].decided();
    places[0].decided();
    let more = bounds.take(ONE).unwrap();
    assert!(bounds.take(ONE).is_none());
    assert!(!places[0].undecided(), "there is no permit to be undecided again");
    drop(more);
    assert!(places[0].undecided());
    drop(places);
    assert!(bounds.lock().by_guest.is_empty() && bounds.lock().all == 0);
}

#[test]
fn one_sandbox_cannot_take_all_places() {
    let bounds = Bounds::new(1000, MEMORY);
    let mut places = Vec::new();
    while let Some(mut permit) = bounds.take(ONE) {
        permit.decided();
        places.push(permit);
    }
    assert_eq!(places.len(), 800);
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
fn those_that_are_read_as_http_are_counted_apart() {
    let bounds = Bounds::new(100_000, MEMORY);
    let mut one = taken(&bounds, ONE, Http::One);
    let mut two = taken(&bounds, ONE, Http::Two);
    assert_eq!((one.len(), two.len()), (HTTP_MAX, HTTP2_MAX));
    let mut more = bounds.take(ONE).unwrap();
    assert!(!more.read_as_http(Http::One));
    one.pop();
    assert!(more.read_as_http(Http::One));
    two[0].rests();
    two[0].rests();
    assert!(more.read_as_http(Http::Two));
    assert!(!two[0].read_as_http(Http::Two));
    drop((one, two, more));
    let held = bounds.lock();
    assert!(held.by_guest.is_empty() && held.http_bytes + held.http2_bytes == 0);
}

#[test]
fn all_together_hold_no_more_than_their_part_of_the_memory() {
    let bounds = Bounds::new(100_000, 20 * HTTP2_BYTES);
    let greedy = taken(&bounds, ONE, Http::Two);
    assert_eq!(greedy.len(), 16, "one leaves a share to others");
    let others: Vec<Permit> =
        (3..100).flat_map(|last| taken(&bounds, Ipv4Addr::new(192, 0, 2, last), Http::Two)).collect();
    assert_eq!(others.len(), 4);
    assert!(taken(&bounds, TWO, Http::Two).is_empty(), "there is no more");
    assert_eq!(taken(&bounds, TWO, Http::One).len(), 410, "and nothing less for the others");
    drop(greedy);
    assert!(!taken(&bounds, TWO, Http::Two).is_empty());
}
