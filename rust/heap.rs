//! A binary heap whose comparisons may be made elsewhere.
//!
//! Items are the user's, and comparing them may run any code, so it cannot be done while
//! the heap is locked. A search for a place therefore goes step by step: it changes
//! nothing, asks for the comparisons that it cannot decide, and is committed only if the
//! heap is then still as it was.
//!
//! Stable: of two entries of which neither is less, the older one is first.

use std::cmp::Ordering;

/// What of an item can be compared without running code of the user's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rank {
    Opaque,
    /// The item is this number.
    Number(i64),
    /// The item is a tuple that begins with this number: another one decides, an equal one
    /// does not.
    Leading(i64),
}

impl Rank {
    fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => Some(one.cmp(&other)),
            (Self::Leading(one), Self::Leading(other)) if one != other => Some(one.cmp(&other)),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<T> {
    pub(crate) item: T,
    /// What is compared in the place of the item.
    pub(crate) key: Option<T>,
    pub(crate) rank: Rank,
    /// When it was put; given by the heap.
    serial: u64,
}

impl<T> Entry<T> {
    pub(crate) const fn new(item: T, key: Option<T>, rank: Rank) -> Self {
        Self {
            item,
            key,
            rank,
            serial: 0,
        }
    }

    pub(crate) fn compared(&self) -> &T {
        self.key.as_ref().unwrap_or(&self.item)
    }
}

/// Ask whether `left < right`, and give the search the answer.
#[derive(Debug)]
pub(crate) struct Question<T> {
    pub(crate) left: T,
    pub(crate) right: T,
}

/// How far a search has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Search {
    /// The heap's version that it began on; 0 before it began.
    version: u64,
    /// The place that is free as the search goes.
    hole: usize,
    /// The last entry has been taken to the leaves, and now climbs.
    climbing: bool,
    answer: Option<bool>,
    /// How often it had to begin anew, for the heap had changed.
    pub(crate) restarts: u32,
}

impl Search {
    /// Whether `left < right` of the question asked last.
    pub(crate) const fn answer(&mut self, less: bool) {
        self.answer = Some(less);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Heap<T> {
    entries: Vec<Entry<T>>,
    /// Changes whenever the entries do.
    version: u64,
    serial: u64,
}

impl<T> Heap<T> {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            version: 1,
            serial: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The same heap with copies of all items.
    pub(crate) fn copied(&self, copy: impl Fn(&T) -> T) -> Self {
        let copied = |entry: &Entry<T>| Entry {
            item: copy(&entry.item),
            key: entry.key.as_ref().map(&copy),
            rank: entry.rank,
            serial: entry.serial,
        };
        Self {
            entries: self.entries.iter().map(copied).collect(),
            version: self.version,
            serial: self.serial,
        }
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    /// The entries, in no particular order.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter()
    }

    /// Insert the entry, or give it back with a question to be answered first.
    pub(crate) fn push(
        &mut self,
        mut entry: Entry<T>,
        search: &mut Search,
        copy: impl Fn(&T) -> T,
    ) -> Result<(), (Entry<T>, Question<T>)> {
        self.begin(search, self.entries.len());
        entry.serial = self.serial;
        let sought = self.seek_place(search, |parent, answer| less(&entry, parent, answer, &copy));
        match sought {
            Ok(()) => {
                self.insert(entry, search.hole);
                Ok(())
            }
            Err(question) => Err((entry, question)),
        }
    }

    /// Insert an item of this rank if the ranks are all there is to compare.
    pub(crate) fn push_ranked(&mut self, rank: Rank, item: impl FnOnce() -> T) -> bool {
        let mut search = Search::default();
        self.begin(&mut search, self.entries.len());
        let sought = self.seek_place(&mut search, |parent, _| ranked_less(rank, parent.rank));
        if sought.is_err() {
            return false;
        }
        let mut entry = Entry::new(item(), None, rank);
        entry.serial = self.serial;
        self.insert(entry, search.hole);
        true
    }

    /// Remove the first entry, if there is one, or ask a question to be answered first.
    pub(crate) fn pop(
        &mut self,
        search: &mut Search,
        copy: impl Fn(&T) -> T,
    ) -> Result<Option<Entry<T>>, Question<T>> {
        self.begin(search, 0);
        self.seek_hole(search, |left, right, answer| {
            less(left, right, answer, &copy)
        })?;
        Ok(self.remove(search.hole))
    }

    /// Remove the first entry, if there is one and the ranks are all there is to compare.
    pub(crate) fn pop_ranked(&mut self) -> Option<Entry<T>> {
        let mut search = Search::default();
        self.begin(&mut search, 0);
        let sought = self.seek_hole(&mut search, |left, right, _| {
            ranked_less(left.rank, right.rank)
        });
        sought.ok()?;
        self.remove(search.hole)
    }

    /// Search the place of a new entry, upwards from a leaf. It goes before another only if it
    /// is less.
    fn seek_place<E>(
        &self,
        search: &mut Search,
        mut is_less: impl FnMut(&Entry<T>, &mut Option<bool>) -> Result<bool, E>,
    ) -> Result<(), E> {
        while search.hole > 0 {
            let parent = (search.hole - 1) / 2;
            if !is_less(&self.entries[parent], &mut search.answer)? {
                break;
            }
            search.hole = parent;
        }
        Ok(())
    }

    fn insert(&mut self, entry: Entry<T>, hole: usize) {
        self.version += 1;
        self.serial += 1;
        let mut place = self.entries.len();
        self.entries.push(entry);
        while place > hole {
            let parent = (place - 1) / 2;
            self.entries.swap(place, parent);
            place = parent;
        }
    }

    /// Search the place of the last entry, once the first one has been removed: down to a
    /// leaf along the smaller children, and up again. It comes from the leaves and mostly
    /// goes back there, so comparing it on the way down would be waste.
    fn seek_hole<E>(
        &self,
        search: &mut Search,
        mut is_less: impl FnMut(&Entry<T>, &Entry<T>, &mut Option<bool>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let Some((last, rest)) = self.entries.split_last() else {
            return Ok(());
        };
        let mut is_before = |one: &Entry<T>, other: &Entry<T>, answer: &mut Option<bool>| {
            before(one, other, |left, right| is_less(left, right, answer))
        };
        while !search.climbing {
            let (left, right) = (2 * search.hole + 1, 2 * search.hole + 2);
            search.hole = match (rest.get(left), rest.get(right)) {
                (Some(one), Some(other)) if is_before(other, one, &mut search.answer)? => right,
                (Some(_), _) => left,
                (None, _) => {
                    search.climbing = true;
                    break;
                }
            };
        }
        // With the last entry in this place, the one that is there moves up to its parent's.
        while search.hole > 0 && is_before(last, &rest[search.hole], &mut search.answer)? {
            search.hole = (search.hole - 1) / 2;
        }
        Ok(())
    }

    /// Remove the first entry; the last one comes to this place.
    fn remove(&mut self, hole: usize) -> Option<Entry<T>> {
        self.version += 1;
        let mut carried = self.entries.pop()?;
        let mut place = hole;
        // If it was the only one, nothing is left to move.
        while let Some(here) = self.entries.get_mut(place) {
            std::mem::swap(&mut carried, here);
            if place == 0 {
                break;
            }
            place = (place - 1) / 2;
        }
        Some(carried)
    }

    /// Take everything out, the oldest first.
    pub(crate) fn drain(&mut self) -> Vec<Entry<T>> {
        self.version += 1;
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by_key(|entry| entry.serial);
        entries
    }

    /// Go on with a search, from its beginning if the heap has changed.
    fn begin(&self, search: &mut Search, hole: usize) {
        if search.version != self.version {
            let begun = search.version != 0;
            *search = Search {
                version: self.version,
                hole,
                restarts: search.restarts + u32::from(begun),
                ..Search::default()
            };
        }
    }
}

/// Whether `one` goes before `other`, given how a newer and an older entry compare.
fn before<T, E>(
    one: &Entry<T>,
    other: &Entry<T>,
    is_less: impl FnOnce(&Entry<T>, &Entry<T>) -> Result<bool, E>,
) -> Result<bool, E> {
    // One comparison is enough: the older one is first unless the newer one is less.
    if one.serial < other.serial {
        is_less(other, one).map(|less| !less)
    } else {
        is_less(one, other)
    }
}

/// Whether `left < right`, or the question that decides it.
fn less<T>(
    left: &Entry<T>,
    right: &Entry<T>,
    answer: &mut Option<bool>,
    copy: &impl Fn(&T) -> T,
) -> Result<bool, Question<T>> {
    match left.rank.compare(right.rank) {
        Some(ordering) => Ok(ordering.is_lt()),
        None => answer.take().ok_or_else(|| Question {
            left: copy(left.compared()),
            right: copy(right.compared()),
        }),
    }
}

/// Whether `left < right`, if the ranks decide it.
fn ranked_less(left: Rank, right: Rank) -> Result<bool, ()> {
    left.compare(right).map(Ordering::is_lt).ok_or(())
}

#[cfg(test)]
mod tests {
    use super::{Entry, Heap, Rank, Search};

    type Item = (i64, u32);

    fn entry(item: Item, rank: Rank) -> Entry<Item> {
        Entry::new(item, None, rank)
    }

    /// Push, comparing by the first number only.
    fn push(heap: &mut Heap<Item>, item: Item, rank: Rank) {
        let mut search = Search::default();
        let mut waiting = entry(item, rank);
        while let Err((back, question)) = heap.push(waiting, &mut search, |item| *item) {
            search.answer(question.left.0 < question.right.0);
            waiting = back;
        }
    }

    fn pop(heap: &mut Heap<Item>) -> Option<Item> {
        let mut search = Search::default();
        loop {
            match heap.pop(&mut search, |item| *item) {
                Ok(entry) => return entry.map(|entry| entry.item),
                Err(question) => search.answer(question.left.0 < question.right.0),
            }
        }
    }

    fn rank_of(number: i64, how: u64) -> Rank {
        match how % 3 {
            0 => Rank::Opaque,
            1 => Rank::Number(number),
            _ => Rank::Leading(number),
        }
    }

    /// Numbers that look random, the same ones every time.
    fn numbers() -> impl Iterator<Item = u64> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        })
    }

    #[test]
    fn it_sorts_stably_whoever_compares() {
        let mut random = numbers();
        for (size, how) in (0..200).zip([0, 1, 2, 3].into_iter().cycle()) {
            let mut heap = Heap::new();
            let mut expected = Vec::new();
            for serial in 0..size {
                let number = i64::try_from(random.next().unwrap() % 16).unwrap();
                let how = if how == 3 {
                    random.next().unwrap()
                } else {
                    how
                };
                push(&mut heap, (number, serial), rank_of(number, how));
                expected.push((number, serial));
            }
            expected.sort_by_key(|item| item.0);
            let popped: Vec<_> = std::iter::from_fn(|| pop(&mut heap)).collect();
            assert_eq!(popped, expected);
        }
    }

    #[test]
    fn pushing_and_popping_in_turn_keeps_the_order() {
        let mut random = numbers();
        let mut heap = Heap::new();
        let mut model: Vec<Item> = Vec::new();
        for serial in 0..5_000 {
            if random.next().unwrap() % 5 < 3 {
                let number = i64::try_from(random.next().unwrap() % 8).unwrap();
                push(
                    &mut heap,
                    (number, serial),
                    rank_of(number, random.next().unwrap()),
                );
                model.push((number, serial));
            } else {
                let first = model.iter().copied().min();
                model.retain(|item| Some(*item) != first);
                assert_eq!(pop(&mut heap), first);
            }
            assert_eq!(heap.len(), model.len());
        }
    }

    #[test]
    fn a_search_on_a_heap_that_has_changed_begins_anew() {
        let mut heap = Heap::new();
        for number in [5, 3, 4] {
            push(&mut heap, (number, 0), Rank::Opaque);
        }
        let mut search = Search::default();
        let (waiting, question) = heap
            .push(entry((2, 0), Rank::Opaque), &mut search, |item| *item)
            .unwrap_err();
        assert_eq!((question.left, question.right), ((2, 0), (5, 0)));
        assert_eq!(pop(&mut heap), Some((3, 0)));
        search.answer(true);
        // The answer was to a question about the heap as it was.
        let (_, question) = heap.push(waiting, &mut search, |item| *item).unwrap_err();
        assert_eq!((question.left, question.right), ((2, 0), (4, 0)));
        assert_eq!(heap.len(), 2);
    }

    #[test]
    fn draining_gives_the_oldest_first() {
        let mut heap = Heap::new();
        for number in [5, 3, 4] {
            push(&mut heap, (number, 0), Rank::Number(number));
        }
        let drained: Vec<_> = heap.drain().into_iter().map(|entry| entry.item.0).collect();
        assert_eq!(drained, [5, 3, 4]);
        assert_eq!(pop(&mut heap), None);
    }
}
