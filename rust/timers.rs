//! The deadlines of one loop's waits, behind a single timer of the loop.
//!
//! A timer of the loop for every wait costs more than the wait, and most waits are
//! satisfied long before. So the loop has one, armed for the earliest deadline at most;
//! one that comes too early, because its wait is over, is armed again for the next.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Names one deadline. In order of time, and of insertion where the times are equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) when: f64,
    serial: u64,
}

impl Ord for Deadline {
    fn cmp(&self, other: &Self) -> Ordering {
        self.when
            .total_cmp(&other.when)
            .then(self.serial.cmp(&other.serial))
    }
}

impl PartialOrd for Deadline {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Deadline {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Deadline {}

#[derive(Debug)]
pub(crate) struct Timers<T> {
    waiting: BTreeMap<Deadline, T>,
    armed: Option<f64>,
    serial: u64,
}

impl<T> Timers<T> {
    pub(crate) const fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            armed: None,
            serial: 0,
        }
    }

    /// Add a deadline. True if the loop's timer must be armed for it, instead of a later one.
    pub(crate) fn insert(&mut self, when: f64, item: T) -> (Deadline, bool) {
        self.serial += 1;
        let deadline = Deadline {
            when,
            serial: self.serial,
        };
        self.waiting.insert(deadline, item);
        let arm = self.armed.is_none_or(|armed| when < armed);
        if arm {
            self.armed = Some(when);
        }
        (deadline, arm)
    }

    pub(crate) fn remove(&mut self, deadline: Deadline) -> Option<T> {
        self.waiting.remove(&deadline)
    }

    /// The loop's timer has fired at `now`: whose time is up, and when to fire next.
    pub(crate) fn fired(&mut self, now: f64) -> (Vec<T>, Option<f64>) {
        // The loop may fire a little before the time, by its clock's resolution.
        let now = self.armed.map_or(now, |armed| now.max(armed));
        let mut due = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if first.key().when > now {
                break;
            }
            due.push(first.remove());
        }
        self.armed = self.waiting.keys().next().map(|deadline| deadline.when);
        (due, self.armed)
    }

    /// The loop's timer could not be armed.
    pub(crate) fn disarm(&mut self) {
        self.armed = None;
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &T> {
        self.waiting.values()
    }

    pub(crate) fn clear(&mut self) -> BTreeMap<Deadline, T> {
        std::mem::take(&mut self.waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::Timers;

    #[test]
    fn only_an_earlier_deadline_arms_the_timer() {
        let mut timers = Timers::new();
        assert!(timers.insert(5.0, "a").1);
        assert!(!timers.insert(6.0, "b").1);
        assert!(timers.insert(4.0, "c").1);
        assert_eq!(timers.fired(4.0), (vec!["c"], Some(5.0)));
        assert_eq!(timers.fired(5.5), (vec!["a"], Some(6.0)));
        assert_eq!(timers.fired(6.0), (vec!["b"], None));
        assert!(timers.insert(7.0, "d").1);
    }

    #[test]
    fn a_removed_deadline_leaves_nothing_but_the_armed_timer() {
        let mut timers = Timers::new();
        let (deadline, _) = timers.insert(1.0, "a");
        assert_eq!(timers.remove(deadline), Some("a"));
        assert_eq!(timers.remove(deadline), None);
        assert_eq!(timers.items().count(), 0);
        assert!(!timers.insert(2.0, "b").1);
        assert_eq!(timers.fired(1.0), (vec![], Some(2.0)));
    }

    #[test]
    fn equal_deadlines_are_due_together_in_order_even_if_the_loop_is_early() {
        let mut timers = Timers::new();
        timers.insert(1.0, "a");
        timers.insert(1.0, "b");
        assert_eq!(timers.fired(0.999), (vec!["a", "b"], None));
    }

    #[test]
    fn a_timer_that_could_not_be_armed_is_armed_for_the_next_deadline() {
        let mut timers = Timers::new();
        assert!(timers.insert(1.0, "a").1);
        timers.disarm();
        assert!(timers.insert(2.0, "b").1);
        assert_eq!(timers.fired(2.0), (vec!["a", "b"], None));
    }
}
