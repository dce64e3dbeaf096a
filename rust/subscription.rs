//! A consumer's place in the log.

use std::time::{Duration, Instant};

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::history::{Bound as Limit, Next};
use crate::hub::Wakes;
use crate::lock::Lock;
use crate::python::{imports, transition};
use crate::registry::Token;
use crate::waiter::{Outcome, Parker, Source, Wait, check_timeout, timed_out};
use crate::watcher::{Reader, State, Watcher, current};

#[pyclass(frozen, subclass, generic, module = "interlock._core")]
pub(crate) struct Subscription {
    watcher: Py<Watcher>,
    /// Its reader in the watcher; None once closed.
    reader: Lock<Option<Token>>,
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

impl Subscription {
    /// Run `body` with the watcher's state and this subscription's reader, unless closed.
    fn with_reader<R>(
        &self,
        py: Python<'_>,
        body: impl FnOnce(&mut State, Token) -> R,
    ) -> Option<R> {
        let token = self.reader.with(py, |reader| *reader)?;
        self.watcher.get().state.with(py, |state| {
            state.readers.get_mut(token)?;
            Some(body(state, token))
        })
    }

    /// The next transition, or None; the error says that it lagged or has ended.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // Dropped when this returns, with the lock released.
        let mut spent = Vec::new();
        let mut replaced = None;
        let taken = self.with_reader(py, |state, token| {
            let Some(reader) = state.readers.get_mut(token) else {
                return Taken::Closed;
            };
            if let Some(initial) = reader.initial.take() {
                return Taken::Transition(initial);
            }
            let next = state
                .history
                .advance(&mut reader.cursor, &mut spent, |entry| entry.clone_ref(py));
            match next {
                Next::Entry(entry) => {
                    if reader.last.is_some() {
                        replaced = std::mem::replace(&mut reader.last, second(py, &entry));
                    }
                    Taken::Transition(entry)
                }
                Next::Overflow { missed } => match reader.last.take() {
                    None => Taken::Lagged(missed),
                    Some(old) => {
                        let new = current(py, state.value.as_ref()).unbind();
                        reader.last = Some(new.clone_ref(py));
                        Taken::Conflated { old, new }
                    }
                },
                Next::Nothing if state.closed => Taken::Ended,
                Next::Nothing => Taken::Nothing,
            }
        });
        match taken.unwrap_or(Taken::Closed) {
            Taken::Transition(entry) => Ok(Some(entry)),
            Taken::Conflated { old, new } => {
                transition(py, old.into_bound(py), new.into_bound(py)).map(|pair| Some(pair.unbind()))
            }
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

    /// A read begins (W16).
    pub(crate) fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let busy = self.with_reader(py, |state, token| {
            let reader = state.readers.get_mut(token);
            reader.is_some_and(|reader| std::mem::replace(&mut reader.reading, true))
        });
        if busy == Some(true) {
            return Err(PyRuntimeError::new_err(
                "another reader is waiting on this subscription; open one per consumer with watch()",
            ));
        }
        Ok(())
    }

    /// The read that began is over.
    pub(crate) fn end(&self, py: Python<'_>) {
        let parked = self.with_reader(py, |state, token| {
            let reader = state.readers.get_mut(token)?;
            reader.reading = false;
            let parked = reader.parked.take()?;
            state.parked.remove(parked)
        });
        drop(parked);
    }

    /// The parker of this subscription's reads, as new.
    pub(crate) fn parker(&self, py: Python<'_>) -> PyResult<Py<Parker>> {
        let kept = self.with_reader(py, |state, token| {
            let reader = state.readers.get_mut(token)?;
            reader.parker.as_ref().map(|parker| parker.clone_ref(py))
        });
        if let Some(parker) = kept.flatten()
            && parker.get().renew(py)
        {
            return Ok(parker);
        }
        let parker = Py::new(py, Parker::new())?;
        let kept = parker.clone_ref(py);
        let replaced = self.with_reader(py, |state, token| {
            let reader = state.readers.get_mut(token)?;
            reader.parker.replace(kept)
        });
        drop(replaced);
        Ok(parker)
    }

    /// Register for the next transition, unless there is something to look at already.
    pub(crate) fn park(&self, py: Python<'_>, parker: &Py<Parker>) -> bool {
        let listed = parker.clone_ref(py);
        let parked = self.with_reader(py, |state, token| {
            let Some(reader) = state.readers.get_mut(token) else {
                return Err(listed);
            };
            if state.closed || state.history.pending(&reader.cursor) > 0 {
                return Err(listed);
            }
            reader.parked = Some(state.parked.insert(None, listed));
            Ok(())
        });
        matches!(parked, Some(Ok(())))
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
                        parker: None,
                        parked: None,
                    },
                ))
            });
            if let Ok(token) = opened {
                return Ok(Self {
                    watcher: watcher.clone().unbind(),
                    reader: Lock::new(Some(token)),
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
        Ok(Wait::new("get", source, timeout))
    }

    fn __anext__(slf: Py<Self>) -> Wait {
        let source = Source::Reader {
            subscription: slf,
            iterating: true,
        };
        Wait::new("__anext__", source, None)
    }

    /// Return the next transition without waiting.
    ///
    /// Raises:
    ///     asyncio.QueueEmpty: There is none now.
    ///     WatcherClosed: As for `get`.
    ///     Lagged: As for `get`.
    fn get_nowait(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.take(py)? {
            Some(transition) => Ok(transition),
            None => {
                let error = imports(py).queue_empty.bind(py).call1(("no transition is pending",))?;
                Err(PyErr::from_value(error))
            }
        }
    }

    fn _block(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<PyAny>> {
        let (py, subscription) = (slf.py(), slf.get());
        let timeout = check_timeout(timeout)?;
        subscription.begin(py)?;
        let taken = subscription.take_blocking(py, timeout);
        subscription.end(py);
        taken
    }

    /// How many transitions can be read without waiting.
    #[getter]
    fn pending(&self, py: Python<'_>) -> u64 {
        let pending = self.with_reader(py, |state, token| {
            state.readers.get_mut(token).map_or(0, |reader| {
                state.history.pending(&reader.cursor) + u64::from(reader.initial.is_some())
            })
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
        visit.call(&self.watcher)
    }
}

impl Subscription {
    fn take_blocking(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let deadline = timeout.map(|timeout| Instant::now() + Duration::from_secs_f64(timeout.min(9e9)));
        let mut expired = timeout == Some(0.0);
        loop {
            if let Some(transition) = self.take(py)? {
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
