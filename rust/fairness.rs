//! An operation on a heap, from its first try to the last.
//!
//! Others may change the heap while its items are compared, and then the search begins
//! anew. Where comparing takes long and others never pause, it would never end. So one that
//! has been overtaken again and again makes a reservation: for a while the operations that
//! other threads begin wait for it. Only for a while, because comparing is the user's code,
//! and may itself wait for one of those.

use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::call::less;
use crate::heap::{Question, Search};
use crate::queue::{Item, Queue};

/// How often an operation is overtaken before it makes a reservation.
const OVERTAKEN: u32 = 100;

/// How long a reservation stands, at most: until it is renewed for the next comparison.
const COURTESY: Duration = Duration::from_secs(1);

/// How often those who wait for it look again.
const PAUSE: Duration = Duration::from_millis(1);

/// How often an operation begins anew before it gives up.
const PATIENCE: u32 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservation {
    holder: ThreadId,
    until: Instant,
}

impl Reservation {
    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

pub(crate) struct Effort<'q, 'py> {
    queue: &'q Bound<'py, Queue>,
    pub(crate) search: Search,
    /// It has waited for others enough.
    pub(crate) has_precedence: bool,
    holds: bool,
}

impl<'q, 'py> Effort<'q, 'py> {
    pub(crate) fn new(queue: &'q Bound<'py, Queue>) -> Self {
        Self {
            queue,
            search: Search::default(),
            has_precedence: false,
            holds: false,
        }
    }

    /// Answer the question of the search.
    pub(crate) fn answer(&mut self, question: &Question<Item>) -> PyResult<()> {
        let restarts = self.search.restarts;
        if restarts > PATIENCE {
            return Err(PyRuntimeError::new_err(
                "the queue has changed 1,000 times while its items were compared; a \
                 comparison must not change it each time, nor take seconds beside threads \
                 that use it without pause",
            ));
        }
        if restarts > OVERTAKEN {
            self.reserve()?;
        }
        let py = self.queue.py();
        let (left, right) = (question.left.bind(py), question.right.bind(py));
        self.search.answer(less(left, right)?);
        Ok(())
    }

    /// Make a reservation, or another one if the last is over.
    fn reserve(&mut self) -> PyResult<()> {
        self.holds |= self.queue.get().reservation(self.queue.py(), |kept| {
            let free = kept.is_none_or(|other| other.is_over());
            if free {
                *kept = Some(Reservation {
                    holder: thread::current().id(),
                    until: Instant::now() + COURTESY,
                });
            }
            free
        })?;
        Ok(())
    }

    /// Wait while there is a reservation of another thread.
    #[cold]
    pub(crate) fn give_way(&mut self) -> PyResult<()> {
        let (py, queue) = (self.queue.py(), self.queue.get());
        let me = thread::current().id();
        while queue.reservation(py, |kept| {
            // Its holder may be gone: a thread of the parent of a fork (X12).
            *kept = kept.filter(|other| !other.is_over());
            kept.is_some_and(|other| other.holder != me)
        })? {
            py.detach(|| thread::sleep(PAUSE));
            py.check_signals()?;
        }
        self.has_precedence = true;
        Ok(())
    }
}

impl Drop for Effort<'_, '_> {
    fn drop(&mut self) {
        if self.holds {
            let me = thread::current().id();
            // A queue that is being collected as garbage has forgotten it already.
            let _ = self.queue.get().reservation(self.queue.py(), |kept| {
                // If it was over, another may have made one since.
                *kept = kept.filter(|other| other.holder != me);
            });
        }
    }
}
