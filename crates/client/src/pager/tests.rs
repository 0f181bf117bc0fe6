use proptest::prelude::*;

use super::*;

/// What happens to a list before one of the requests for its pages.
#[derive(Debug, Clone, Copy)]
enum Change {
    /// So many items are created. They come before all others, as in a list with the newest first.
    Create(u32),
    /// One item is deleted: the one at this place, counted around the end.
    Delete(usize),
}

/// A list whose items are numbered in the order of their creation, with the newest first.
struct ChangingList {
    items: Vec<u32>,
    created: u32,
}

impl ChangingList {
    fn of(items: u32) -> Self {
        Self { items: (0..items).rev().collect(), created: items }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Create(count) => {
                let new = (self.created..self.created + count).rev();
                self.items = new.chain(std::mem::take(&mut self.items)).collect();
                self.created += count;
            }
            Change::Delete(_) if self.items.is_empty() => {}
            Change::Delete(place) => {
                self.items.remove(place % self.items.len());
            }
        }
    }

    fn page(&self, range: PageRange) -> Page<u32> {
        let data = self.items.iter().skip(range.offset as usize).take(range.limit as usize);
        let pagination = Pagination::new(self.items.len() as u64, range.limit, range.offset);
        Page { data: data.copied().collect(), pagination }
    }
}

/// Reads the list to its end and returns its items and the requests. The changes happen before the request with their index.
fn read(list: &mut ChangingList, page_size: u32, changes: &[(usize, Change)]) -> (Vec<u32>, Vec<PageRange>) {
    let (mut position, mut found, mut requests) = (ListPosition::new(page_size), Vec::new(), Vec::new());
    while let Some(range) = position.next {
        assert!(requests.len() < 1000, "it does not end: {requests:?}");
        let due = changes.iter().filter(|(request, _)| *request == requests.len());
        due.for_each(|(_, change)| list.apply(*change));
        requests.push(range);
        found.extend(position.accept(range, list.page(range), |item| *item));
    }
    (found, requests)
}

fn ranges(requests: &[PageRange]) -> Vec<(u64, u32)> {
    requests.iter().map(|range| (range.offset, range.limit)).collect()
}

#[test]
fn pages_overlap_by_one_item() {
    for page_size in [1, 2, 3, 99, 100] {
        let (found, _) = read(&mut ChangingList::of(250), page_size, &[]);
        assert_eq!(found, (0..250).rev().collect::<Vec<_>>(), "{page_size}");
    }
    let (_, requests) = read(&mut ChangingList::of(5), 2, &[]);
    assert_eq!(ranges(&requests), [(0, 2), (1, 3), (3, 3)]);
    // The service refuses larger pages than these.
    let (_, requests) = read(&mut ChangingList::of(199), 100, &[]);
    assert_eq!(ranges(&requests), [(0, 100), (99, 100)]);
    // Nothing is requested after the last page.
    let (_, requests) = read(&mut ChangingList::of(2), 2, &[]);
    assert_eq!(ranges(&requests), [(0, 2)]);
    let (found, requests) = read(&mut ChangingList::of(0), 2, &[]);
    assert_eq!((found.len(), requests.len()), (0, 1));
}

#[test]
fn created_items_repeat_none() {
    for created in [1, 2, 3, 10] {
        let (found, _) = read(&mut ChangingList::of(6), 2, &[(1, Change::Create(created))]);
        let old: Vec<_> = found.into_iter().filter(|item| *item < 6).collect();
        assert_eq!(old, [5, 4, 3, 2, 1, 0], "{created}");
    }
}

#[test]
fn deleted_items_skip_none() {
    // Of 6 items, 5 and 4 are on the first page. Without them the second one begins with 2, not with 3.
    let both = [(1, Change::Delete(0)), (1, Change::Delete(0))];
    let (found, requests) = read(&mut ChangingList::of(6), 2, &both);
    assert_eq!(found, [5, 4, 3, 2, 1, 0]);
    assert_eq!(ranges(&requests), [(0, 2), (1, 3), (0, 3), (2, 3)]);
    // The item that connects the pages.
    let (found, _) = read(&mut ChangingList::of(6), 2, &[(1, Change::Delete(1))]);
    assert_eq!(found, [5, 4, 3, 2, 1, 0]);
    // One that was not read yet.
    let (found, _) = read(&mut ChangingList::of(6), 2, &[(1, Change::Delete(3))]);
    assert_eq!(found, [5, 4, 3, 1, 0]);
    // The list becomes shorter than what was read.
    let (found, _) = read(&mut ChangingList::of(6), 2, &[(1, Change::Delete(0)); 6]);
    assert_eq!(found, [5, 4]);
}

#[test]
fn going_far_back_takes_few_requests() {
    let many: Vec<_> = (0..9_000).map(|_| (100, Change::Delete(0))).collect();
    let (found, requests) = read(&mut ChangingList::of(20_000), 100, &many);
    assert_eq!(found.len(), 20_000);
    let back = requests.windows(2).filter(|pair| pair[1].offset < pair[0].offset).count();
    assert!(back < 10, "{back} requests back");
}

#[test]
fn pages_of_one_item_do_not_keep_from_the_end() {
    let (mut position, mut found) = (ListPosition::new(2), Vec::new());
    for request in 0..10_000 {
        assert!(request < 9_999, "{found:?}");
        let Some(range) = position.next else { break };
        let offset = range.offset.min(9);
        // One item, whatever was asked for.
        let page = Page { data: vec![offset], pagination: Pagination::new(10, 1, offset) };
        found.extend(position.accept(range, page, |item| *item));
    }
    assert_eq!(found, (0..10).collect::<Vec<_>>());
}

#[test]
fn an_unstable_order_does_not_keep_from_the_end() {
    let (mut position, mut unknown) = (ListPosition::new(2), 0..40);
    for request in 0..10_000 {
        assert!(request < 9_999);
        let Some(range) = position.next else { break };
        // Until there are no more, each page has other items.
        let data: Vec<u32> = unknown.by_ref().take(2).collect();
        let page = Page { data, pagination: Pagination::new(u64::MAX, 2, range.offset) };
        position.accept(range, page, |item| *item);
    }
    assert_eq!(position.next, None);
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![(1..5u32).prop_map(Change::Create), (0..40usize).prop_map(Change::Delete)]
}

proptest! {
    /// Items that exist all the time are returned once, in their order, whatever else is created and deleted meanwhile.
    #[test]
    fn items_that_stay_are_returned_once(
        items in 0..40u32,
        page_size in 1..6u32,
        changes in proptest::collection::vec((1..20usize, change()), 0..25),
    ) {
        let mut list = ChangingList::of(items);
        let (found, requests) = read(&mut list, page_size, &changes);
        // Changes after the last request did not happen.
        let staying: Vec<_> = list.items.iter().copied().filter(|item| *item < items).collect();
        let returned: Vec<_> = found.iter().copied().filter(|item| staying.contains(item)).collect();
        prop_assert_eq!(returned, staying, "{:?}", requests);
        let distinct: HashSet<_> = found.iter().collect();
        prop_assert_eq!(distinct.len(), found.len());
    }
}
