//! The list of who is ready in one loop, and whether its one handle is scheduled (X3).

use std::collections::VecDeque;

#[derive(Debug)]
pub(crate) struct ReadyList<T> {
    items: VecDeque<T>,
    scheduled: bool,
}

impl<T> ReadyList<T> {
    pub(crate) const fn new() -> Self {
        Self {
            items: VecDeque::new(),
            scheduled: false,
        }
    }

    /// Add to the list; true if the caller must schedule the handle.
    #[must_use]
    pub(crate) fn push(&mut self, items: impl IntoIterator<Item = T>) -> bool {
        self.items.extend(items);
        !std::mem::replace(&mut self.scheduled, true)
    }

    /// The handle runs: how many items belong to this round. What is pushed from now
    /// on belongs to the next one.
    pub(crate) fn begin_round(&mut self) -> usize {
        self.scheduled = false;
        self.items.len()
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// The handle could not be scheduled, for nobody will ever run it: give the items
    /// up, to be dropped by the caller.
    #[must_use]
    pub(crate) fn abandon(&mut self) -> VecDeque<T> {
        self.scheduled = false;
        std::mem::take(&mut self.items)
    }

    /// The handle could not be scheduled this time: the next push is to try again.
    pub(crate) fn postpone(&mut self) {
        self.scheduled = false;
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::ReadyList;

    #[test]
    fn a_burst_schedules_one_handle() {
        let mut ready = ReadyList::new();
        assert!(ready.push([1]));
        assert!(!ready.push([2, 3]));
        assert_eq!(ready.begin_round(), 3);
    }

    #[test]
    fn what_becomes_ready_in_a_round_belongs_to_the_next() {
        let mut ready = ReadyList::new();
        assert!(ready.push([1, 2]));
        let count = ready.begin_round();
        assert_eq!(ready.pop(), Some(1));
        assert!(ready.push([3]));
        assert_eq!(ready.pop(), Some(2));
        assert_eq!(count, 2);
        assert_eq!(ready.begin_round(), 1);
        assert_eq!(ready.pop(), Some(3));
    }

    #[test]
    fn a_round_that_breaks_off_keeps_the_rest() {
        let mut ready = ReadyList::new();
        assert!(ready.push([1, 2]));
        ready.begin_round();
        ready.pop();
        assert!(ready.push([]));
        assert_eq!(ready.begin_round(), 1);
    }

    #[test]
    fn a_postponed_handle_is_scheduled_by_the_next_push() {
        let mut ready = ReadyList::new();
        assert!(ready.push([1]));
        ready.postpone();
        assert!(ready.push([2]));
        assert_eq!(ready.begin_round(), 2);
    }

    #[test]
    fn an_abandoned_list_starts_afresh() {
        let mut ready = ReadyList::new();
        assert!(ready.push([1]));
        assert_eq!(ready.abandon(), [1]);
        assert!(ready.push([2]));
    }
}
