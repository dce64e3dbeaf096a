//! One log of transitions, shared by all subscriptions; each is a cursor into it.
//!
//! Appending costs the same whatever the number of cursors. An entry is let go when
//! the slowest cursor has passed it, which is known without looking at the cursors:
//! they are counted by position, per [`Bound`]. A bounded cursor that falls further
//! behind than its limit stops counting by position ("adrift"), so it never holds
//! more than its limit; it finds out when it reads.

use std::collections::VecDeque;

/// How much a cursor may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// At most so many entries; `u64::MAX` is no bound.
    pub(crate) limit: u64,
    /// Whether a cursor that fell behind continues at the oldest entry within its
    /// limit (which must then be kept), or needs nothing but the newest value.
    pub(crate) retain: bool,
}

impl Bound {
    pub(crate) const NONE: Self = Self {
        limit: u64::MAX,
        retain: true,
    };
}

/// A place in the log: everything up to version `position` has been passed.
#[derive(Debug)]
pub(crate) struct Cursor {
    position: u64,
    bound: Bound,
}

/// What a cursor finds next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<R> {
    /// The next entry; the cursor has passed it.
    Entry(R),
    /// The cursor fell behind. With `retain`, it now stands before the oldest entry
    /// within its limit; without, after the newest one.
    Overflow { missed: u64 },
    /// Nothing yet.
    Nothing,
}

/// The cursors of one bound, counted by position from `low` to the newest version.
#[derive(Debug)]
struct Window {
    bound: Bound,
    low: u64,
    counts: VecDeque<u32>,
    adrift: u32,
    members: u32,
}

impl Window {
    fn appended(&mut self) {
        self.counts.push_back(0);
        while self.counts.len() as u64 - 1 > self.bound.limit {
            self.adrift += self.counts.pop_front().unwrap_or(0);
            self.low += 1;
        }
        self.settle();
    }

    /// Forget positions that nobody holds.
    fn settle(&mut self) {
        if self.adrift > 0 && self.bound.retain {
            return;
        }
        while self.counts.len() > 1 && self.counts[0] == 0 {
            self.counts.pop_front();
            self.low += 1;
        }
    }

    fn enter(&mut self, position: u64) {
        let index = usize::try_from(position - self.low).expect("a position within the window");
        self.counts[index] += 1;
    }

    fn leave(&mut self, position: u64) {
        if position < self.low {
            self.adrift -= 1;
        } else {
            let index = usize::try_from(position - self.low).expect("a position within the window");
            self.counts[index] -= 1;
        }
        self.settle();
    }
}

/// The log. Holds the transitions that lead to the last `entries.len()` versions.
#[derive(Debug)]
pub(crate) struct History<T> {
    version: u64,
    entries: VecDeque<T>,
    windows: Vec<Window>,
}

impl<T> History<T> {
    pub(crate) const fn new() -> Self {
        Self {
            version: 0,
            entries: VecDeque::new(),
            windows: Vec::new(),
        }
    }

    /// The number of transitions so far.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether there is any cursor, so that entries are kept at all.
    pub(crate) fn is_watched(&self) -> bool {
        !self.windows.is_empty()
    }

    /// How many entries are held.
    pub(crate) fn retained(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &T> {
        self.entries.iter()
    }

    /// Count a transition; keep `entry` if there is a cursor to read it.
    ///
    /// Entries that are no longer needed go to `spent`, to be dropped by the caller
    /// once it holds no lock.
    pub(crate) fn append(&mut self, entry: Option<T>, spent: &mut Vec<T>) {
        self.version += 1;
        let Some(entry) = entry else {
            debug_assert!(!self.is_watched());
            return;
        };
        self.entries.push_back(entry);
        for window in &mut self.windows {
            window.appended();
        }
        self.trim(spent);
    }

    /// A cursor that will see every entry after this moment.
    pub(crate) fn open(&mut self, bound: Bound) -> Cursor {
        let version = self.version;
        let window = self.windows.iter_mut().find(|window| window.bound == bound);
        let window = if let Some(window) = window {
            window
        } else {
            self.windows.push(Window {
                bound,
                low: version,
                counts: VecDeque::from([0]),
                adrift: 0,
                members: 0,
            });
            self.windows.last_mut().expect("just pushed")
        };
        window.members += 1;
        window.enter(version);
        Cursor {
            position: version,
            bound,
        }
    }

    /// Give up a cursor.
    pub(crate) fn close(&mut self, cursor: &Cursor, spent: &mut Vec<T>) {
        let index = self.window_of(cursor);
        let window = &mut self.windows[index];
        window.members -= 1;
        if window.members == 0 {
            self.windows.swap_remove(index);
        } else {
            window.leave(cursor.position);
        }
        self.trim(spent);
    }

    /// Show the next entry to `look` and move the cursor past it.
    pub(crate) fn advance<R>(
        &mut self,
        cursor: &mut Cursor,
        spent: &mut Vec<T>,
        look: impl FnOnce(&T) -> R,
    ) -> Next<R> {
        if cursor.position == self.version {
            return Next::Nothing;
        }
        let index = self.window_of(cursor);
        let window = &mut self.windows[index];
        let from = cursor.position;
        let next = if from < window.low {
            let to = if cursor.bound.retain {
                window.low
            } else {
                self.version
            };
            cursor.position = to;
            Next::Overflow { missed: to - from }
        } else {
            cursor.position = from + 1;
            let behind = usize::try_from(self.version - from).expect("entries fit in memory");
            Next::Entry(look(&self.entries[self.entries.len() - behind]))
        };
        window.enter(cursor.position);
        window.leave(from);
        self.trim(spent);
        next
    }

    /// How many entries the cursor could read now.
    pub(crate) fn pending(&self, cursor: &Cursor) -> u64 {
        let lag = self.version - cursor.position;
        if lag <= cursor.bound.limit {
            lag
        } else if cursor.bound.retain {
            cursor.bound.limit
        } else {
            1
        }
    }

    /// Let go of every entry; for the garbage collector.
    pub(crate) fn clear(&mut self) -> (VecDeque<T>, u64) {
        self.windows.clear();
        (std::mem::take(&mut self.entries), self.version)
    }

    fn window_of(&self, cursor: &Cursor) -> usize {
        self.windows
            .iter()
            .position(|window| window.bound == cursor.bound)
            .expect("an open cursor has its window")
    }

    fn trim(&mut self, spent: &mut Vec<T>) {
        let needed = self.windows.iter().map(|window| window.low).min();
        let kept = self.version - needed.unwrap_or(self.version);
        while self.entries.len() as u64 > kept {
            spent.extend(self.entries.pop_front());
        }
        // A backlog that has been read must not keep its memory for ever.
        if self.entries.capacity() > 64 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Cursor, History, Next};

    const LAST_TWO: Bound = Bound {
        limit: 2,
        retain: true,
    };
    const NEWEST: Bound = Bound {
        limit: 1,
        retain: false,
    };

    fn push(history: &mut History<u64>) {
        let entry = history.is_watched().then_some(history.version() + 1);
        history.append(entry, &mut Vec::new());
    }

    fn read(history: &mut History<u64>, cursor: &mut Cursor) -> Next<u64> {
        history.advance(cursor, &mut Vec::new(), |entry| *entry)
    }

    #[test]
    fn every_cursor_sees_every_entry_since_it_was_opened() {
        let mut history = History::new();
        push(&mut history);
        let mut early = history.open(Bound::NONE);
        push(&mut history);
        let mut late = history.open(Bound::NONE);
        push(&mut history);
        assert_eq!(read(&mut history, &mut early), Next::Entry(2));
        assert_eq!(read(&mut history, &mut early), Next::Entry(3));
        assert_eq!(read(&mut history, &mut early), Next::Nothing);
        assert_eq!(read(&mut history, &mut late), Next::Entry(3));
        assert_eq!(read(&mut history, &mut late), Next::Nothing);
    }

    #[test]
    fn an_entry_is_let_go_when_the_last_cursor_has_passed_it() {
        let mut history = History::new();
        let mut first = history.open(Bound::NONE);
        let mut second = history.open(Bound::NONE);
        for _ in 0..3 {
            push(&mut history);
        }
        read(&mut history, &mut first);
        read(&mut history, &mut first);
        assert_eq!(history.retained(), 3);
        let mut spent = Vec::new();
        history.advance(&mut second, &mut spent, |_| ());
        assert_eq!((spent, history.retained()), (vec![1], 2));
        let mut spent = Vec::new();
        history.close(&second, &mut spent);
        assert_eq!((spent, history.retained()), (vec![2], 1));
        history.close(&first, &mut Vec::new());
        assert_eq!(history.retained(), 0);
        push(&mut history);
        assert_eq!((history.retained(), history.version()), (0, 4));
    }

    #[test]
    fn a_bounded_cursor_holds_no_more_than_its_limit_and_is_told_what_it_missed() {
        let mut history = History::new();
        let mut cursor = history.open(LAST_TWO);
        for _ in 0..5 {
            push(&mut history);
        }
        assert_eq!((history.retained(), history.pending(&cursor)), (2, 2));
        assert_eq!(
            read(&mut history, &mut cursor),
            Next::Overflow { missed: 3 }
        );
        assert_eq!(read(&mut history, &mut cursor), Next::Entry(4));
        assert_eq!(history.retained(), 1);
        assert_eq!(read(&mut history, &mut cursor), Next::Entry(5));
        assert_eq!(history.retained(), 0);
    }

    #[test]
    fn a_cursor_that_wants_the_newest_only_retains_nothing_once_adrift() {
        let mut history = History::new();
        let mut cursor = history.open(NEWEST);
        push(&mut history);
        assert_eq!(history.retained(), 1);
        push(&mut history);
        assert_eq!((history.retained(), history.pending(&cursor)), (0, 1));
        assert_eq!(
            read(&mut history, &mut cursor),
            Next::Overflow { missed: 2 }
        );
        assert_eq!(read(&mut history, &mut cursor), Next::Nothing);
        push(&mut history);
        assert_eq!(read(&mut history, &mut cursor), Next::Entry(3));
    }

    /// Every history of up to ten steps over three cursors of each kind, against a
    /// model that keeps everything.
    #[test]
    fn agrees_with_a_model_that_keeps_everything() {
        let bounds = [Bound::NONE, LAST_TWO, NEWEST];
        for seed in 0..20_000_u64 {
            let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut roll = |sides: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % sides
            };
            let mut history = History::new();
            let mut cursors: Vec<(Cursor, u64)> = Vec::new();
            for _ in 0..30 {
                match roll(8) {
                    0 => {
                        let bound = bounds[usize::try_from(roll(3)).unwrap()];
                        cursors.push((history.open(bound), history.version()));
                    }
                    1 if !cursors.is_empty() => {
                        let index = usize::try_from(roll(cursors.len() as u64)).unwrap();
                        let (cursor, _) = cursors.swap_remove(index);
                        history.close(&cursor, &mut Vec::new());
                    }
                    2..=4 if !cursors.is_empty() => {
                        let index = usize::try_from(roll(cursors.len() as u64)).unwrap();
                        let (cursor, passed) = &mut cursors[index];
                        let version = history.version();
                        let lag = version - *passed;
                        let bound = cursor.bound;
                        let expected = if lag == 0 {
                            Next::Nothing
                        } else if lag <= bound.limit {
                            Next::Entry(*passed + 1)
                        } else {
                            let to = if bound.retain {
                                version - bound.limit
                            } else {
                                version
                            };
                            Next::Overflow {
                                missed: to - *passed,
                            }
                        };
                        *passed += match expected {
                            Next::Nothing => 0,
                            Next::Entry(_) => 1,
                            Next::Overflow { missed } => missed,
                        };
                        assert_eq!(read(&mut history, cursor), expected, "seed {seed}");
                    }
                    _ => push(&mut history),
                }
                let version = history.version();
                let needed = cursors
                    .iter()
                    .map(|(cursor, passed)| match version - passed {
                        lag if lag <= cursor.bound.limit => lag,
                        _ if cursor.bound.retain => cursor.bound.limit,
                        _ => 0,
                    })
                    .max()
                    .unwrap_or(0);
                assert_eq!(history.retained() as u64, needed, "seed {seed}");
            }
        }
    }
}
