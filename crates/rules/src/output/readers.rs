//! Which output of a detached execution its readers still need. The log keeps that output, and the command waits while the log
//! is full of it.
//!
//! A reader is in a segment of the log, by number. Times are milliseconds of a clock that is never set back.
//!
//! ```text
//! starting client ──(away)──> attached ──(left)──> away ──(10 s)──> forgotten
//! no reader ──(reader timeout after the last one left)──> nothing is needed
//! ```

/// How long the output after a reader that left is needed: a client that lost its connection comes back within this time.
const RETURN_MS: u64 = 10_000;

/// The readers of one output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputReaders {
    readers: Vec<OutputReader>,
    next_id: u64,
    /// The furthest segment of any reader so far.
    furthest: u64,
    /// When the last reader left; `None` if nobody waits for the next one.
    left_at_ms: Option<u64>,
    timeout_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OutputReader {
    id: ReaderId,
    segment: u64,
    /// `None` while it is attached.
    left_at_ms: Option<u64>,
}

/// Identifies a reader of one output. The default is that of no attached reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReaderId(u64);

/// The output that is needed at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeededOutput {
    /// The segment from which on output is needed; `None` if none is.
    pub from: Option<u64>,
    /// When this changes even if no reader does anything.
    pub until_ms: Option<u64>,
}

impl OutputReaders {
    /// No reader is attached yet, and the one that is expected starts at `oldest`. `timeout_ms`: how long output is needed while
    /// there is no reader.
    pub fn new(oldest: u64, timeout_ms: u64, now_ms: u64) -> Self {
        let expected = OutputReader { id: ReaderId::default(), segment: oldest, left_at_ms: Some(now_ms) };
        Self { readers: vec![expected], left_at_ms: Some(now_ms), ..Self::of_nobody(oldest, timeout_ms) }
    }

    /// No reader is attached, and none is expected: nobody has read for longer than the timeout.
    pub fn of_nobody(oldest: u64, timeout_ms: u64) -> Self {
        Self { readers: Vec::new(), next_id: 1, furthest: oldest, left_at_ms: None, timeout_ms }
    }

    /// Adds a reader. Those that left in this segment or a later one do not count any more: what they need, this one needs.
    pub fn attach(&mut self, segment: u64, now_ms: u64) -> ReaderId {
        let return_ms = self.return_ms();
        self.readers.retain(|reader| reader.is_present(now_ms, return_ms) && !reader.is_replaced_at(segment));
        let id = ReaderId(self.next_id);
        self.next_id += 1;
        self.readers.push(OutputReader { id, segment, left_at_ms: None });
        self.furthest = self.furthest.max(segment);
        id
    }

    /// Moves a reader forward. False if it is there already.
    pub fn advance(&mut self, id: ReaderId, segment: u64) -> bool {
        let reader = self.readers.iter_mut().find(|reader| reader.id == id);
        let Some(reader) = reader.filter(|reader| reader.segment < segment) else { return false };
        reader.segment = segment;
        self.furthest = self.furthest.max(segment);
        true
    }

    /// The reader is gone, and its client may come back.
    pub fn leave(&mut self, id: ReaderId, now_ms: u64) {
        let return_ms = self.return_ms();
        self.readers.retain(|reader| reader.is_present(now_ms, return_ms));
        if let Some(reader) = self.readers.iter_mut().find(|reader| reader.id == id) {
            reader.left_at_ms = Some(now_ms);
            self.left_at_ms = Some(now_ms);
        }
    }

    /// The reader has read everything up to the end of the execution.
    pub fn finish(&mut self, id: ReaderId) {
        self.readers.retain(|reader| reader.id != id);
    }

    /// What the slowest reader needs, or what the next one may need.
    pub fn needed(&self, now_ms: u64) -> NeededOutput {
        let return_ms = self.return_ms();
        let present = || self.readers.iter().filter(move |reader| reader.is_present(now_ms, return_ms));
        if let Some(segment) = present().map(|reader| reader.segment).min() {
            let ends = present().filter_map(|reader| Some(reader.left_at_ms?.saturating_add(return_ms)));
            return NeededOutput { from: Some(segment), until_ms: ends.min() };
        }
        let until_ms = self.left_at_ms.map(|left_at_ms| left_at_ms.saturating_add(self.timeout_ms));
        let until_ms = until_ms.filter(|until_ms| now_ms < *until_ms);
        NeededOutput { from: until_ms.map(|_| self.furthest), until_ms }
    }

    /// Whether a reader is attached, or left a moment ago without having read everything.
    pub fn is_awaited(&self, now_ms: u64) -> bool {
        let return_ms = self.return_ms();
        self.readers.iter().any(|reader| reader.is_present(now_ms, return_ms))
    }

    fn return_ms(&self) -> u64 {
        RETURN_MS.min(self.timeout_ms)
    }
}

impl OutputReader {
    fn is_present(&self, now_ms: u64, return_ms: u64) -> bool {
        self.left_at_ms.is_none_or(|left_at_ms| now_ms < left_at_ms.saturating_add(return_ms))
    }

    fn is_replaced_at(&self, segment: u64) -> bool {
        self.left_at_ms.is_some() && self.segment >= segment
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, proptest};

    use super::*;

    const TIMEOUT_MS: u64 = 120_000;

    fn needed(from: Option<u64>, until_ms: Option<u64>) -> NeededOutput {
        NeededOutput { from, until_ms }
    }

    #[test]
    fn the_first_reader_is_awaited_until_the_timeout() {
        let readers = OutputReaders::new(3, TIMEOUT_MS, 1000);
        assert_eq!(readers.needed(1000), needed(Some(3), Some(11_000)));
        assert_eq!(readers.needed(11_000), needed(Some(3), Some(121_000)));
        assert_eq!(readers.needed(121_000), needed(None, None));
        assert_eq!(OutputReaders::new(3, 0, 1000).needed(1000), needed(None, None));
        assert_eq!(OutputReaders::new(3, 5000, 1000).needed(1000), needed(Some(3), Some(6000)));
        assert_eq!(
            OutputReaders::new(3, u64::MAX, 1000).needed(u64::MAX - 1),
            needed(Some(3), Some(u64::MAX))
        );
    }

    #[test]
    fn a_reader_that_is_not_expected_is_awaited_once_it_has_come() {
        let mut readers = OutputReaders::of_nobody(3, TIMEOUT_MS);
        assert!(readers.needed(0) == needed(None, None) && !readers.is_awaited(0));
        let reader = readers.attach(3, 1000);
        assert_eq!(readers.needed(1000), needed(Some(3), None));
        readers.leave(reader, 2000);
        assert_eq!(readers.needed(12_000), needed(Some(3), Some(122_000)));
    }

    #[test]
    fn the_slowest_attached_reader_counts_without_limit() {
        let mut readers = OutputReaders::new(0, TIMEOUT_MS, 0);
        let (slow, fast) = (readers.attach(0, 5), readers.attach(0, 5));
        assert!(readers.advance(fast, 9) && !readers.advance(fast, 9) && !readers.advance(fast, 4));
        assert_eq!(readers.needed(u64::MAX), needed(Some(0), None));
        assert!(readers.advance(slow, 7));
        assert_eq!(readers.needed(u64::MAX), needed(Some(7), None));
    }

    #[test]
    fn a_lost_reader_is_awaited_for_a_while_beside_others() {
        let mut readers = OutputReaders::new(0, TIMEOUT_MS, 0);
        let (lost, other) = (readers.attach(0, 0), readers.attach(0, 0));
        readers.advance(lost, 2);
        readers.advance(other, 9);
        readers.leave(lost, 1000);
        assert_eq!(readers.needed(1000), needed(Some(2), Some(11_000)));
        assert_eq!(readers.needed(11_000), needed(Some(9), None));
        // It comes back where its client has all output, before where it left.
        let back = readers.attach(1, 2000);
        assert_eq!(readers.needed(2000), needed(Some(1), None));
        readers.advance(back, 8);
        assert_eq!(readers.needed(2000), needed(Some(8), None));
    }

    #[test]
    fn without_readers_the_furthest_segment_is_needed_until_the_timeout() {
        let mut readers = OutputReaders::new(0, TIMEOUT_MS, 0);
        let only = readers.attach(0, 0);
        readers.advance(only, 6);
        readers.leave(only, 50_000);
        assert_eq!(readers.needed(59_999), needed(Some(6), Some(60_000)));
        assert_eq!(readers.needed(60_000), needed(Some(6), Some(170_000)));
        assert_eq!(readers.needed(170_000), needed(None, None));
    }

    #[test]
    fn a_reader_that_polls_does_not_hold_its_old_segments() {
        let mut readers = OutputReaders::new(0, TIMEOUT_MS, 0);
        for segment in 0..20 {
            let page = readers.attach(segment, segment);
            readers.advance(page, segment + 1);
            readers.leave(page, segment);
            assert_eq!(readers.needed(segment).from, Some(segment + 1));
        }
    }

    #[test]
    fn a_finished_reader_is_not_awaited() {
        let mut readers = OutputReaders::new(0, TIMEOUT_MS, 0);
        assert!(readers.is_awaited(9_999) && !readers.is_awaited(10_000));
        let reader = readers.attach(0, 0);
        assert!(readers.is_awaited(u64::MAX));
        readers.finish(reader);
        assert!(!readers.is_awaited(0));
    }

    proptest! {
        /// Whatever readers do, no output of an attached reader is given up, and what was read never blocks.
        #[test]
        fn needed_output_is_never_behind_the_slowest_attached_reader(
            steps in prop::collection::vec((0..4u8, any::<prop::sample::Index>(), 0..20_000u64), 1..60),
        ) {
            let mut readers = OutputReaders::new(0, TIMEOUT_MS, 0);
            let (mut attached, mut now_ms) = (Vec::<(ReaderId, u64)>::new(), 0);
            for (step, which, ms) in steps {
                now_ms += ms;
                if step == 0 || attached.is_empty() {
                    let segment = ms % 50;
                    attached.push((readers.attach(segment, now_ms), segment));
                    continue;
                }
                let at = which.index(attached.len());
                match step {
                    1 => readers.leave(attached.swap_remove(at).0, now_ms),
                    2 => readers.finish(attached.swap_remove(at).0),
                    _ => {
                        attached[at].1 += 1;
                        readers.advance(attached[at].0, attached[at].1);
                    }
                }
                let slowest = attached.iter().map(|(_, segment)| *segment).min();
                let needed = readers.needed(now_ms);
                prop_assert!(needed.until_ms.is_none_or(|until_ms| until_ms > now_ms));
                if let Some(slowest) = slowest {
                    prop_assert!(needed.from.is_some_and(|from| from <= slowest));
                    let later = readers.needed(now_ms + RETURN_MS);
                    prop_assert!(later.from == Some(slowest) && later.until_ms.is_none());
                }
            }
        }
    }
}
