//! What somebody wants of a queue, task or thread, and where the attempt has got to.

use std::time::{Duration, Instant};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use crate::heap::Entry;
use crate::ledger::Side;
use crate::parker::{Outcome, Parker};
use crate::python::{error_of, imports, running_loop};
use crate::queue::{Item, Queue};
use crate::registry::Token;
use crate::waiter::unwrap;

/// An item to be put.
pub(crate) enum Offer {
    Item(Item),
    /// For a heap, with its key.
    Entry(Entry<Item>),
}

impl Offer {
    pub(crate) fn into_item(self) -> Item {
        match self {
            Self::Item(item) => item,
            Self::Entry(entry) => entry.item,
        }
    }
}

pub(crate) enum Want {
    Get,
    /// As `Get`, in an iteration, which a shutdown ends.
    Next,
    /// None while an attempt is under way.
    Put(Option<Offer>),
    Join,
}

/// How many kinds of coroutine a queue keeps for further use.
pub(crate) const SPARES: usize = 3;

impl Want {
    /// Where a queue keeps a coroutine for this that is done.
    pub(crate) const GET: usize = 0;
    pub(crate) const NEXT: usize = 1;
    pub(crate) const PUT: usize = 2;

    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Get => "Queue.get",
            Self::Next => "Queue.__anext__",
            Self::Put(_) => "Queue.put",
            Self::Join => "Queue.join",
        }
    }

    pub(crate) const fn spare(&self) -> Option<usize> {
        match self {
            Self::Get => Some(Self::GET),
            Self::Next => Some(Self::NEXT),
            Self::Put(_) => Some(Self::PUT),
            Self::Join => None,
        }
    }

    const fn side(&self) -> Side {
        match self {
            Self::Get | Self::Next => Side::Get,
            Self::Put(_) => Side::Put,
            Self::Join => Side::Join,
        }
    }
}

pub(crate) struct Request {
    queue: Py<Queue>,
    want: Want,
    /// While a parker is registered.
    token: Option<Token>,
    /// It was notified, and has not looked yet.
    notified: bool,
}

impl Request {
    pub(crate) const fn new(queue: Py<Queue>, want: Want) -> Self {
        Self {
            queue,
            want,
            token: None,
            notified: false,
        }
    }

    /// The result, or None if it is necessary to wait.
    pub(crate) fn attempt(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let result = self.look(py);
        if std::mem::take(&mut self.notified) && result.is_err() {
            // It has not taken what it was notified of.
            Queue::pass_on(self.queue.bind(py), self.want.side())?;
        }
        result
    }

    fn look(&mut self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let queue = self.queue.bind(py);
        match &mut self.want {
            Want::Get | Want::Next => Queue::take(queue, false),
            Want::Put(offer) => {
                let Some(item) = offer.take() else {
                    return Err(PyRuntimeError::new_err("this item has been put already"));
                };
                *offer = Queue::offer(queue, item, false)?;
                Ok(offer.is_none().then(|| py.None()))
            }
            Want::Join => Ok(queue.get().is_finished(py)?.then(|| py.None())),
        }
    }

    /// Let the parker be notified; false if there is something to look at already.
    pub(crate) fn register(&mut self, py: Python<'_>, parker: &Py<Parker>) -> PyResult<bool> {
        let (queue, side) = (self.queue.bind(py), self.want.side());
        // Before it is registered, for from then on it may be notified.
        parker.get().stand_in_line(py, &self.queue, side);
        let registered = Queue::register(queue, side, parker.clone_ref(py));
        if !matches!(registered, Ok(Some(_))) {
            parker.get().leave_line(py);
        }
        self.token = registered?;
        Ok(self.token.is_some())
    }

    /// The parker has an outcome; the result, if that is one.
    pub(crate) fn settled(
        &mut self,
        py: Python<'_>,
        outcome: Outcome,
    ) -> PyResult<Option<Py<PyAny>>> {
        match outcome {
            // It was taken off the list to be notified.
            Outcome::Notified => {
                self.token = None;
                self.notified = true;
            }
            Outcome::Expired => self.leave(py, false)?,
            outcome => {
                self.leave(py, false)?;
                return unwrap(py, outcome).map(Some);
            }
        }
        Ok(None)
    }

    /// No longer wait. `notified`: by then it had been, and it does not look.
    pub(crate) fn leave(&mut self, py: Python<'_>, notified: bool) -> PyResult<()> {
        let side = self.want.side();
        if let Some(token) = self.token.take() {
            self.queue.get().leave(py, side, token);
        }
        if notified {
            Queue::pass_on(self.queue.bind(py), side)?;
        }
        Ok(())
    }

    pub(crate) const fn is_iterating(&self) -> bool {
        matches!(self.want, Want::Next)
    }

    pub(crate) const fn queue(&self) -> &Py<Queue> {
        &self.queue
    }

    pub(crate) const fn spare(&self) -> Option<usize> {
        self.want.spare()
    }

    /// Block this thread until there is a result, with the GIL released. When time is up the
    /// error is one of a class of its own, which is nobody else's.
    pub(crate) fn block(mut self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline =
            timeout.map(|timeout| Instant::now() + Duration::from_secs_f64(timeout.min(9e9)));
        let mut expired = timeout == Some(0.0);
        loop {
            // A signal that has come while this thread waited is to interrupt the wait, not
            // what comes after it, with an item in hand.
            if let Err(error) = py.check_signals() {
                let notified = self.notified;
                self.leave(py, notified)?;
                return Err(error);
            }
            if let Some(result) = self.attempt(py)? {
                return Ok(result);
            }
            if expired {
                return Err(error_of(py, &imports(py).expired));
            }
            if running_loop(py)?.is_some() {
                return Err(self.would_block());
            }
            let parker = Bound::new(py, Parker::new())?;
            if !self.register(py, parker.as_unbound())? {
                continue;
            }
            let left = deadline.map(|deadline| (deadline - Instant::now()).as_secs_f64());
            match Parker::block(&parker, left) {
                Ok(outcome) => {
                    expired = matches!(outcome, Outcome::Expired);
                    if let Some(result) = self.settled(py, outcome)? {
                        return Ok(result);
                    }
                }
                // An interrupt.
                Err(error) => {
                    let notified = parker.get().withdraw(py);
                    self.leave(py, notified)?;
                    return Err(error);
                }
            }
        }
    }

    fn would_block(&self) -> PyErr {
        let instead = match self.want {
            Want::Get | Want::Next => "await queue.get()",
            Want::Put(_) => "await queue.put(item)",
            Want::Join => "await queue.join()",
        };
        PyRuntimeError::new_err(format!(
            "this would block the event loop that runs in this thread; use '{instead}'"
        ))
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.queue)?;
        match &self.want {
            Want::Put(Some(Offer::Item(item))) => visit.call(item),
            Want::Put(Some(Offer::Entry(entry))) => {
                visit.call(&entry.item)?;
                visit.call(&entry.key)
            }
            _ => Ok(()),
        }
    }
}
