//! A consumer's place in the log.

use std::time::{Duration, Instant};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::history::{Bound as Limit, History, Next};
use crate::hub::{Hub, Wakes};
use crate::lock::Lock;
use crate::parker::{Outcome, Parker};
use crate::python::{imports, is_unshared, transition};
use crate::registry::{Registry, Token};
use crate::waiter::{Source, Wait, check_timeout, timed_out};
use crate::watcher::{Reader, Watcher, current};

#[pyclass(frozen, subclass, generic, module = "interlock._core")]
pub(crate) struct Subscription {
    watcher: Py<Watcher>,
    /// Its reader in the watcher; None once closed.
    reader: Lock<Option<Token>>,
    /// The parker of the last read. Not the watcher's, which must not keep what is waiting
    /// on a loop that is gone.
    parker: Lock<Option<Py<Parker>>>,
    /// The awaitable of the last iteration, done; it serves again if nobody has kept it.
    finished: Lock<Option<Py<Wait>>>,
}

/// What `take` finds.
enum Taken {
    Transition(Py<PyAny>),
    /// With `overflow="latest"`: from the value given out last to the current one.
    Conflated {
        old: Py<PyAny>,
        new: Py<PyAny>,
    },
    Lagged(u64),
    Nothing,
    Ended,
    Closed,
}

/// How a read begins.
pub(crate) enum Begun {
    Busy,
    Parked(Py<Parker>),
    /// To be looked at step by step.
    Otherwise,
}

impl Begun {
    pub(crate) fn busy() -> PyErr {
        PyRuntimeError::new_err(
            "another reader is waiting on this subscription; open one per consumer with watch()",
        )
    }
}

/// A subscription's reader, and the parts of the watcher's state it reads from.
struct Reading<'a> {
    reader: &'a mut Reader,
    history: &'a mut History<Py<PyAny>>,
    parked: &'a mut Registry<Py<Parker>>,
    value: Option<&'a Py<PyAny>>,
    closed: bool,
}

impl Reading<'_> {
    /// The read is over; returns what is to be dropped without the lock.
    fn end(&mut self) -> Option<Py<Parker>> {
        self.reader.reading = false;
        let parked = self.reader.parked.take()?;
        self.parked.remove(parked)
    }
}

impl Subscription {
    /// Run `body` with this subscription's reader, unless closed.
    #[inline]
    fn with_reader<R>(&self, py: Python<'_>, body: impl FnOnce(Reading<'_>) -> R) -> Option<R> {
        let token = self.reader.with(py, |reader| *reader)?;
        self.watcher.get().state.with(py, |state| {
            let reading = Reading {
                reader: state.readers.get_mut(token)?,
                history: &mut state.history,
                parked: &mut state.parked,
                value: state.value.as_ref(),
                closed: state.closed,
            };
            Some(body(reading))
        })
    }

    /// The next transition, or None; the error says that it lagged or has ended. One that
    /// is found ends the read it was found by, if `reading`.
    pub(crate) fn take(&self, py: Python<'_>, reading: bool) -> PyResult<Option<Py<PyAny>>> {
        // Dropped when this returns, with the lock released.
        let mut spent = Vec::new();
        let mut replaced = None;
        let mut unparked = None;
        let taken = self.with_reader(py, |mut view| {
            let taken = if let Some(initial) = view.reader.initial.take() {
                Taken::Transition(initial)
            } else {
                let cursor = &mut view.reader.cursor;
                let next = view
                    .history
                    .advance(cursor, &mut spent, |entry| entry.clone_ref(py));
                match next {
                    Next::Entry(entry) => {
                        if view.reader.last.is_some() {
                            replaced = std::mem::replace(&mut view.reader.last, second(py, &entry));
                        }
                        Taken::Transition(entry)
                    }
                    Next::Overflow { missed } => match view.reader.last.take() {
                        None => return Taken::Lagged(missed),
                        Some(old) => {
                            let new = current(py, view.value).unbind();
                            view.reader.last = Some(new.clone_ref(py));
                            Taken::Conflated { old, new }
                        }
                    },
                    Next::Nothing if view.closed => return Taken::Ended,
                    Next::Nothing => return Taken::Nothing,
                }
            };
            if reading {
                unparked = view.end();
            }
            taken
        });
        match taken.unwrap_or(Taken::Closed) {
            Taken::Transition(entry) => Ok(Some(entry)),
            Taken::Conflated { old, new } => transition(py, old.into_bound(py), new.into_bound(py))
                .map(|pair| Some(pair.unbind())),
            Taken::Lagged(missed) => {
                let error = imports(py).lagged.bind(py).call1((missed,))?;
                Err(PyErr::from_value(error))
            }
            Taken::Nothing => Ok(None),
            Taken::Ended => Err(self.watcher.get().closed_error(py)),
            Taken::Closed => {
                let text = "this subscription is closed; open another one with watch()";
                let error = imports(py).watcher_closed.bind(py).call1((text,))?;
                Err(PyErr::from_value(error))
            }
        }
    }

    /// A read begins (W16). The usual case, nothing there yet, is done in one go if the
    /// loop's hub is at hand: the subscription's parker is made ready to be yielded.
    pub(crate) fn begin(&self, py: Python<'_>, hub: Option<&Bound<'_, Hub>>) -> Begun {
        let parker = self.kept_parker(py);
        let begun = self.with_reader(py, |view| {
            let reader = view.reader;
            if std::mem::replace(&mut reader.reading, true) {
                return Begun::Busy;
            }
            let nothing = !view.closed
                && reader.initial.is_none()
                && view.history.pending(&reader.cursor) == 0;
            // Only borrowed: nothing may be dropped in here.
            match (&parker, hub) {
                (Some(parker), Some(hub)) if nothing && parker.get().rearm(py, hub) => {
                    reader.parked = Some(view.parked.insert(None, parker.clone_ref(py)));
                    Begun::Parked(parker.clone_ref(py))
                }
                _ => Begun::Otherwise,
            }
        });
        begun.unwrap_or(Begun::Otherwise)
    }

    /// The read that began is over without a transition.
    pub(crate) fn end(&self, py: Python<'_>) {
        drop(self.with_reader(py, |mut view| view.end()));
    }

    pub(crate) fn keep(&self, py: Python<'_>, finished: Py<Wait>) {
        drop(self.finished.with(py, |kept| kept.replace(finished)));
    }

    /// The parker of this subscription's reads, as new.
    pub(crate) fn parker(&self, py: Python<'_>) -> PyResult<Py<Parker>> {
        Parker::renewed(py, &self.parker)
    }

    fn kept_parker(&self, py: Python<'_>) -> Option<Py<Parker>> {
        self.parker
            .with(py, |kept| kept.as_ref().map(|parker| parker.clone_ref(py)))
    }

    /// Register for the next transition, unless there is something to look at already.
    pub(crate) fn park(&self, py: Python<'_>, parker: &Py<Parker>) -> bool {
        let parked = self.with_reader(py, |view| {
            let nothing = !view.closed && view.history.pending(&view.reader.cursor) == 0;
            if nothing {
                view.reader.parked = Some(view.parked.insert(None, parker.clone_ref(py)));
            }
            nothing
        });
        parked == Some(true)
    }
}

/// `transition.new`. Runs no Python code: a transition is a tuple.
fn second(py: Python<'_>, entry: &Py<PyAny>) -> Option<Py<PyAny>> {
    let pair = entry.bind(py).cast::<PyTuple>().ok()?;
    pair.get_item(1).ok().map(Bound::unbind)
}

#[pymethods]
impl Subscription {
    #[new]
    fn new(
        watcher: &Bound<'_, Watcher>,
        initial: bool,
        maxlen: Option<u64>,
        latest: bool,
    ) -> PyResult<Self> {
        let py = watcher.py();
        let limit = maxlen.map_or(Limit::NONE, |limit| Limit {
            limit,
            retain: !latest,
        });
        let lock = &watcher.get().state;
        loop {
            let (value, version) = lock.with(py, |state| {
                (current(py, state.value.as_ref()), state.history.version())
            });
            let first = if initial {
                Some(transition(py, value.clone(), value.clone())?.unbind())
            } else {
                None
            };
            let last = latest.then(|| value.unbind());
            let opened = lock.with(py, |state| {
                if state.history.version() != version {
                    return Err((first, last));
                }
                let cursor = state.history.open(limit);
                Ok(state.readers.insert(
                    None,
                    Reader {
                        cursor,
                        last,
                        initial: first,
                        reading: false,
                        parked: None,
                    },
                ))
            });
            if let Ok(token) = opened {
                return Ok(Self {
                    watcher: watcher.clone().unbind(),
                    reader: Lock::new(Some(token)),
                    parker: Lock::new(None),
                    finished: Lock::new(None),
                });
            }
        }
    }

    /// Wait for the next transition and return it.
    ///
    /// Args:
    ///     timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
    ///         for ever, 0 does not wait.
    ///
    /// Returns:
    ///     A coroutine, to be awaited once. If it is cancelled or times out, the
    ///     transition stays for the next read (W13).
    ///
    /// Raises:
    ///     WatcherClosed: The watcher was closed and everything was delivered, or this
    ///         subscription is closed.
    ///     Lagged: Once per gap of a subscription with `maxlen` and `overflow="error"`.
    ///     RuntimeError: Another reader is waiting on this subscription (W16).
    #[pyo3(signature = (timeout = None))]
    fn get(slf: Py<Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Wait> {
        let timeout = check_timeout(timeout)?;
        let source = Source::Reader {
            subscription: slf,
            iterating: false,
        };
        Ok(Wait::new("Subscription.get", source, timeout))
    }

    fn __anext__(slf: &Bound<'_, Self>) -> PyResult<Py<Wait>> {
        let py = slf.py();
        let source = Source::Reader {
            subscription: slf.clone().unbind(),
            iterating: true,
        };
        let kept = slf.get().finished.with(py, Option::take);
        match kept {
            Some(wait) if is_unshared(&wait) => {
                wait.get().renew(py, source);
                Ok(wait)
            }
            _ => Py::new(py, Wait::new("Subscription.__anext__", source, None)),
        }
    }

    /// Return the next transition without waiting.
    ///
    /// Raises:
    ///     asyncio.QueueEmpty: There is none now.
    ///     WatcherClosed: As for `get`.
    ///     Lagged: As for `get`.
    fn get_nowait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some(transition) = self.take(py, false)? {
            return Ok(transition);
        }
        let class = imports(py).queue_empty.bind(py);
        Err(PyErr::from_value(
            class.call1(("no transition is pending",))?,
        ))
    }

    fn _block(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (py, subscription) = (slf.py(), slf.get());
        let timeout = check_timeout(timeout)?;
        let taken = match subscription.begin(py, None) {
            Begun::Busy => return Err(Begun::busy()),
            Begun::Parked(_) | Begun::Otherwise => subscription.take_blocking(py, timeout),
        };
        if taken.is_err() {
            subscription.end(py);
        }
        taken
    }

    /// How many transitions can be read without waiting.
    #[getter]
    fn pending(&self, py: Python<'_>) -> u64 {
        let pending = self.with_reader(py, |view| {
            view.history.pending(&view.reader.cursor) + u64::from(view.reader.initial.is_some())
        });
        pending.unwrap_or(0)
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.reader.with(py, |reader| reader.is_none())
    }

    /// Drop what is held and end; a reader that waits is woken and ends too. Idempotent.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(token) = self.reader.with(py, Option::take) else {
            return Ok(());
        };
        let mut spent = Vec::new();
        let reader = self.watcher.get().state.with(py, |state| {
            let mut reader = state.readers.remove(token)?;
            state.history.close(&reader.cursor, &mut spent);
            let parked = reader.parked.take();
            let parked = parked.and_then(|parked| state.parked.remove(parked));
            Some((reader, parked))
        });
        drop(spent);
        let Some((_reader, Some(parker))) = reader else {
            return Ok(());
        };
        let mut wakes = Wakes::default();
        Parker::settle(&parker, py, Outcome::Notified, &mut wakes)?;
        wakes.flush(py)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.watcher)?;
        self.parker
            .peek(|parker| visit.call(&*parker))
            .unwrap_or(Ok(()))?;
        self.finished
            .peek(|finished| visit.call(&*finished))
            .unwrap_or(Ok(()))
    }
}

impl Subscription {
    fn take_blocking(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline =
            timeout.map(|timeout| Instant::now() + Duration::from_secs_f64(timeout.min(9e9)));
        let mut expired = timeout == Some(0.0);
        loop {
            if let Some(transition) = self.take(py, true)? {
                return Ok(transition);
            }
            if expired {
                return Err(timed_out(py));
            }
            let parker = self.parker(py)?;
            if self.park(py, &parker) {
                let left = deadline.map(|deadline| (deadline - Instant::now()).as_secs_f64());
                expired = matches!(Parker::block(parker.bind(py), left)?, Outcome::Expired);
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        // Attached already: Python objects are deallocated by attached threads.
        Python::attach(|py| {
            if let Err(error) = self.close(py) {
                error.write_unraisable(py, None);
            }
        });
    }
}
