use super::*;

const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

#[test]
fn undecided_ones_are_few_and_make_place_when_decided() {
    let bounds = Bounds::new(100_000);
    let mut places: Vec<Place> = (0..UNDECIDED_MAX).map(|_| bounds.take(ONE).unwrap()).collect();
    assert!(bounds.take(ONE).is_none());
    assert!(bounds.take(TWO).is_some(), "another sandbox is not touched");
    places[0].decided();
    places[0].decided();
    let more = bounds.take(ONE).unwrap();
    assert!(bounds.take(ONE).is_none());
    assert!(!places[0].undecided(), "there is no place to be undecided again");
    drop(more);
    assert!(places[0].undecided());
    drop(places);
    assert!(bounds.lock().by_guest.is_empty() && bounds.lock().all == 0);
}

#[test]
fn one_sandbox_cannot_take_all_places() {
    let bounds = Bounds::new(1000);
    let mut places = Vec::new();
    while let Some(mut place) = bounds.take(ONE) {
        place.decided();
        places.push(place);
    }
    assert_eq!(places.len(), 800);
    assert!(bounds.take(TWO).is_some());
    let bounds = Bounds::new(100_000);
    let open = std::iter::from_fn(|| {
        bounds.take(ONE).inspect(|_| ()).map(|mut place| {
            place.decided();
            place
        })
    });
    assert_eq!(open.take(10_000).collect::<Vec<_>>().len(), OPEN_MAX);
}

#[test]
fn those_that_are_read_as_http_are_counted_apart() {
    let bounds = Bounds::new(100_000);
    let mut places = Vec::new();
    for _ in 0..HTTP_MAX {
        let mut place = bounds.take(ONE).unwrap();
        place.decided();
        assert!(place.read_as_http());
        places.push(place);
    }
    let mut more = bounds.take(ONE).unwrap();
    assert!(!more.read_as_http());
    places.pop();
    assert!(more.read_as_http());
}
