//! The watched value: one total order of transitions, and whom each of them concerns.

use std::collections::VecDeque;

use pyo3::PyTraverseError;
use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::call::{call, truth};
use crate::callback::{CallbackHandle, Dispatch};
use crate::history::{Cursor, History};
use crate::hub::Wakes;
use crate::lock::Lock;
use crate::matching::{Test, Waiter};
use crate::parker::{Outcome, Parker};
use crate::python::{equal, generation, hash, imports, transition, truth_or_false};
use crate::registry::{Registry, Token};
use crate::waiter::{Source, Wait, check_timeout, unwrap};

/// What the watcher knows of a subscription.
pub(crate) struct Reader {
    pub(crate) cursor: Cursor,
    /// `overflow="latest"`, with the last value that was given out.
    pub(crate) last: Option<Py<PyAny>>,
    /// Given out before anything else.
    pub(crate) initial: Option<Py<PyAny>>,
    /// Whether a read is under way (W16).
    pub(crate) reading: bool,
    /// While a parker is registered for the next transition.
    pub(crate) parked: Option<Token>,
}

/// Lets one thread at a time do a job that others only announce. One that was held by
/// a thread of the parent of a fork is void (X12).
pub(crate) struct Turn(Option<u64>);

impl Turn {
    pub(crate) fn take(&mut self) -> bool {
        self.0.replace(generation()) != Some(generation())
    }

    pub(crate) fn give_back(&mut self) {
        self.0 = None;
    }
}

pub(crate) struct State {
    pub(crate) value: Option<Py<PyAny>>,
    /// What decides whether a set is a transition; None until `_init`.
    equals: Option<Equals>,
    pub(crate) closed: bool,
    error: Option<Py<PyAny>>,
    pub(crate) history: History<Py<PyAny>>,
    pub(crate) readers: Registry<Reader>,
    /// Readers that have nothing to read.
    pub(crate) parked: Registry<Py<Parker>>,
    // Two jobs follow the transitions, each done by one thread at a time so that it is
    // done in order: matching waiters, and calling callbacks. A slow callback delays no
    // waiter.
    pub(crate) waiters: Registry<Waiter>,
    pub(crate) to_match: VecDeque<(u64, Py<PyAny>)>,
    pub(crate) matching: Turn,
    pub(crate) callbacks: Registry<Py<CallbackHandle>>,
    pub(crate) once: Registry<Py<CallbackHandle>>,
    pub(crate) to_dispatch: VecDeque<Dispatch>,
    pub(crate) dispatching: Turn,
}

/// The value at one moment.
struct Snapshot<'py> {
    value: Bound<'py, PyAny>,
    version: u64,
    watched: bool,
    rule: Equals,
}

impl Snapshot<'_> {
    fn equals(&self, new: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = new.py();
        match &self.rule {
            Equals::Default => equal(&self.value, new),
            Equals::Never => Ok(false),
            Equals::Custom(rule) => {
                let answer = call(rule.bind(py), [&self.value, new]);
                truth_or_false(py, answer.and_then(|answer| truth(&answer)))
            }
        }
    }
}

/// What a commit leaves to be done once the lock is released.
struct Committed {
    parked: Vec<Py<Parker>>,
    matching: bool,
    dispatching: bool,
    /// Dropped by the caller: the old value, if nobody else needs it, and entries that
    /// nobody has to pass.
    _replaced: Option<Py<PyAny>>,
    _spent: Vec<Py<PyAny>>,
}

/// Why a commit did not happen.
enum Refusal {
    /// The value is another by now, or the watcher is closed. With what the caller has to
    /// drop.
    Stale(#[allow(dead_code)] Option<Py<PyAny>>),
    /// There is a subscription now, so that an entry for the log is needed.
    Watched,
}

#[pyclass(frozen, subclass, generic, module = "interlock._core")]
pub(crate) struct Watcher {
    pub(crate) state: Lock<State>,
}

enum Equals {
    Default,
    Never,
    Custom(Py<PyAny>),
}

impl Watcher {
    fn snapshot<'py>(&self, py: Python<'py>) -> PyResult<Snapshot<'py>> {
        let snapshot = self.state.with(py, |state| {
            if state.closed {
                return None;
            }
            Some(Snapshot {
                value: current(py, state.value.as_ref()),
                version: state.history.version(),
                watched: state.history.is_watched(),
                rule: match &state.equals {
                    None | Some(Equals::Default) => Equals::Default,
                    Some(Equals::Never) => Equals::Never,
                    Some(Equals::Custom(rule)) => Equals::Custom(rule.clone_ref(py)),
                },
            })
        });
        snapshot.ok_or_else(|| self.closed_error(py))
    }

    /// Set the value, unless it has changed since the snapshot; false if it has.
    fn replace(
        slf: &Bound<'_, Self>,
        seen: Snapshot<'_>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (py, watcher) = (slf.py(), slf.get());
        if seen.equals(new)? {
            return Ok(true);
        }
        let mut entry = None;
        let mut watched = seen.watched;
        loop {
            if watched {
                entry = Some(transition(py, seen.value.clone(), new.clone())?.unbind());
            }
            match watcher.commit(py, &seen, new, entry.take()) {
                Ok(committed) => {
                    drop(seen);
                    watcher.tell(py, committed)?;
                    return Ok(true);
                }
                Err(Refusal::Stale(_)) => return Ok(false),
                // Somebody has begun to watch, but the value is still the one seen.
                Err(Refusal::Watched) => watched = true,
            }
        }
    }

    fn commit(
        &self,
        py: Python<'_>,
        seen: &Snapshot<'_>,
        new: &Bound<'_, PyAny>,
        entry: Option<Py<PyAny>>,
    ) -> Result<Committed, Refusal> {
        self.state.with(py, |state| {
            if state.closed || state.history.version() != seen.version {
                return Err(Refusal::Stale(entry));
            }
            if entry.is_none() && state.history.is_watched() {
                return Err(Refusal::Watched);
            }
            let mut spent = Vec::new();
            state.history.append(entry, &mut spent);
            let version = state.history.version();
            let replaced = state.value.replace(new.clone().unbind());
            let matching = !state.waiters.is_empty();
            if matching {
                state.to_match.push_back((version, new.clone().unbind()));
            }
            let dispatching = !(state.callbacks.is_empty() && state.once.is_empty());
            if dispatching {
                state.to_dispatch.push_back(Dispatch {
                    version,
                    old: seen.value.clone().unbind(),
                    new: new.clone().unbind(),
                });
            }
            let parked = if state.parked.is_empty() {
                Vec::new()
            } else {
                state.parked.drain()
            };
            Ok(Committed {
                parked,
                matching,
                dispatching,
                _replaced: replaced,
                _spent: spent,
            })
        })
    }

    /// Tell everybody whom a commit concerns.
    fn tell(&self, py: Python<'_>, committed: Committed) -> PyResult<()> {
        let mut interrupt = Interrupt(None);
        if !committed.parked.is_empty() {
            interrupt.keep(wake_all(py, committed.parked, || Outcome::Notified));
        }
        if committed.matching {
            self.match_waiters(py, &mut interrupt);
        }
        if committed.dispatching {
            self.dispatch(py, &mut interrupt);
        }
        interrupt.0.map_or(Ok(()), Err)
    }

    /// For sets and readers.
    pub(crate) fn closed_error(&self, py: Python<'_>) -> PyErr {
        let cause = self.state.with(py, |state| {
            state.error.as_ref().map(|error| error.clone_ref(py))
        });
        let text = "the watcher is closed; its value stays readable, but it can no longer be set or waited for";
        match imports(py).watcher_closed.bind(py).call1((text,)) {
            Ok(error) => {
                let error = PyErr::from_value(error);
                error.set_cause(
                    py,
                    cause.map(|cause| PyErr::from_value(cause.into_bound(py))),
                );
                error
            }
            Err(error) => error,
        }
    }

    /// For waiters.
    pub(crate) fn wait_error(&self, py: Python<'_>) -> Py<PyAny> {
        let given = self.state.with(py, |state| {
            state.error.as_ref().map(|error| error.clone_ref(py))
        });
        given.unwrap_or_else(|| self.closed_error(py).into_value(py).into_any())
    }

    pub(crate) fn forget(&self, py: Python<'_>, once: bool, token: Token) {
        let removed = self.state.with(py, |state| {
            if once {
                state.once.remove(token)
            } else {
                state.callbacks.remove(token)
            }
        });
        drop(removed);
    }
}

pub(crate) fn current<'py>(py: Python<'py>, value: Option<&Py<PyAny>>) -> Bound<'py, PyAny> {
    match value {
        Some(value) => value.bind(py).clone(),
        // The garbage collector has cleared the watcher, and a finaliser still looks at it.
        None => py.None().into_bound(py),
    }
}

/// Settle these and wake whom they leave to be woken.
pub(crate) fn wake_all(
    py: Python<'_>,
    parkers: Vec<Py<Parker>>,
    outcome: impl Fn() -> Outcome,
) -> PyResult<()> {
    let mut interrupt = Interrupt(None);
    let mut wakes = Wakes::default();
    for parker in parkers {
        interrupt.keep(Parker::settle(&parker, py, outcome(), &mut wakes).map(drop));
    }
    interrupt.keep(wakes.flush(py));
    interrupt.0.map_or(Ok(()), Err)
}

/// The first KeyboardInterrupt or the like, raised once everybody has been told.
pub(crate) struct Interrupt(pub(crate) Option<PyErr>);

impl Interrupt {
    pub(crate) fn keep(&mut self, outcome: PyResult<()>) {
        if let Err(error) = outcome {
            self.0.get_or_insert(error);
        }
    }

    /// The hash of a value. Without one, everybody is tried; so an interrupt loses nothing.
    pub(crate) fn hash(&mut self, value: &Bound<'_, PyAny>) -> Option<isize> {
        match hash(value) {
            Ok(hash) => hash,
            Err(error) => {
                self.keep(Err(error));
                None
            }
        }
    }
}

#[pymethods]
impl Watcher {
    /// Takes any arguments, so that a subclass may have an `__init__` of its own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self {
            state: Lock::new(State {
                value: None,
                equals: None,
                closed: false,
                error: None,
                history: History::new(),
                readers: Registry::new(),
                parked: Registry::new(),
                waiters: Registry::new(),
                to_match: VecDeque::new(),
                matching: Turn(None),
                callbacks: Registry::new(),
                once: Registry::new(),
                to_dispatch: VecDeque::new(),
                dispatching: Turn(None),
            }),
        }
    }

    fn _init(&self, initial_value: Py<PyAny>, equals: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = equals.py();
        let rule = if equals.is_none() {
            Equals::Never
        } else if equals.is(&imports(py).equal) {
            Equals::Default
        } else {
            Equals::Custom(equals.clone().unbind())
        };
        let refused = self.state.with(py, |state| {
            if state.equals.is_some() {
                return Some((rule, initial_value));
            }
            state.equals = Some(rule);
            state.value = Some(initial_value);
            None
        });
        if refused.is_some() {
            return Err(PyRuntimeError::new_err(
                "this watcher is initialised already; make another one, or set its value",
            ));
        }
        Ok(())
    }

    /// The current value. Setting it is `set`.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.state
            .with(py, |state| current(py, state.value.as_ref()))
    }

    #[setter]
    fn set_value(slf: &Bound<'_, Self>, new_value: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::set(slf, new_value)
    }

    /// How many transitions there have been.
    #[getter]
    fn version(&self, py: Python<'_>) -> u64 {
        self.state.with(py, |state| state.history.version())
    }

    /// Whether `close` was called.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.closed)
    }

    /// Set the value; a transition unless it is equal to the current one (W5).
    ///
    /// When this returns, every consumer has the transition: waits are resolved and
    /// callbacks have run, unless another thread was dispatching, which then does it.
    ///
    /// Args:
    ///     new_value: Any value, `None` and exceptions included.
    ///
    /// Raises:
    ///     WatcherClosed: The watcher is closed.
    fn set(slf: &Bound<'_, Self>, new_value: &Bound<'_, PyAny>) -> PyResult<()> {
        loop {
            let seen = slf.get().snapshot(slf.py())?;
            if Self::replace(slf, seen, new_value)? {
                return Ok(());
            }
        }
    }

    fn set_if(
        slf: &Bound<'_, Self>,
        new_value: &Bound<'_, PyAny>,
        condition: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        loop {
            let seen = slf.get().snapshot(slf.py())?;
            if !truth(&call(condition, [&seen.value])?)? {
                return Ok(false);
            }
            if Self::replace(slf, seen, new_value)? {
                return Ok(true);
            }
        }
    }

    fn update<'py>(
        slf: &Bound<'py, Self>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        loop {
            let seen = slf.get().snapshot(slf.py())?;
            let new_value = call(function, [&seen.value])?;
            if Self::replace(slf, seen, &new_value)? {
                return Ok(new_value);
            }
        }
    }

    fn close(&self, py: Python<'_>, error: Option<Py<PyAny>>) -> PyResult<()> {
        let parked = self.state.with(py, |state| {
            if state.closed {
                return Err(error);
            }
            state.closed = true;
            state.error = error;
            Ok(state.parked.drain())
        });
        let Ok(parked) = parked else {
            return Ok(());
        };
        self.tell(
            py,
            Committed {
                parked,
                matching: true,
                dispatching: true,
                _replaced: None,
                _spent: Vec::new(),
            },
        )
    }

    fn _wait(
        slf: &Bound<'_, Self>,
        kind: &str,
        operand: Bound<'_, PyAny>,
        immediate: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Wait> {
        let timeout = check_timeout(timeout)?;
        let (name, test) = Test::new(kind, operand)?;
        let registration = Self::register(slf, &test, immediate)?;
        Ok(Wait::new(name, Source::Value(registration), timeout))
    }

    fn _block(
        slf: &Bound<'_, Self>,
        kind: &str,
        operand: Bound<'_, PyAny>,
        immediate: bool,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let timeout = check_timeout(timeout)?;
        let (_, test) = Test::new(kind, operand)?;
        let registration = Self::register(slf, &test, immediate)?;
        let Some(parker) = registration.parker(py) else {
            return registration.into_result(py);
        };
        let outcome = Parker::block(parker.bind(py), timeout);
        registration.cancel(py);
        unwrap(py, outcome?)
    }

    fn _on_change(
        slf: &Bound<'_, Self>,
        callback: &Bound<'_, PyAny>,
    ) -> PyResult<Py<CallbackHandle>> {
        let (py, watcher) = (slf.py(), slf.get());
        loop {
            let since = watcher.state.with(py, |state| state.history.version());
            let handle = CallbackHandle::new(slf.clone().unbind(), callback, None, since)?;
            let handle = Py::new(py, handle)?;
            let listed = handle.clone_ref(py);
            let registered = watcher.state.with(py, |state| {
                if state.history.version() != since {
                    return Err(listed);
                }
                if !state.closed {
                    // Before anybody can find it there.
                    let token = state.callbacks.insert(None, listed);
                    handle.get().set_token(py, token);
                }
                Ok(())
            });
            if registered.is_ok() {
                return Ok(handle);
            }
        }
    }

    fn _on_value(
        slf: &Bound<'_, Self>,
        value: &Bound<'_, PyAny>,
        callback: &Bound<'_, PyAny>,
    ) -> PyResult<Py<CallbackHandle>> {
        let (py, watcher) = (slf.py(), slf.get());
        let key = hash(value)?;
        loop {
            let (seen, since) = watcher.state.with(py, |state| {
                (current(py, state.value.as_ref()), state.history.version())
            });
            let awaited = Some(value.clone().unbind());
            let handle = CallbackHandle::new(slf.clone().unbind(), callback, awaited, since)?;
            let handle = Py::new(py, handle)?;
            if equal(&seen, value)? {
                handle.get().fire(py)?;
                return Ok(handle);
            }
            let listed = handle.clone_ref(py);
            let registered = watcher.state.with(py, |state| {
                if state.history.version() != since {
                    return Err(listed);
                }
                if !state.closed {
                    // Before anybody can find it there.
                    let token = state.once.insert(key, listed);
                    handle.get().set_token(py, token);
                }
                Ok(())
            });
            if registered.is_ok() {
                return Ok(handle);
            }
        }
    }

    /// Version, subscriptions, waiters, callbacks, retained transitions.
    fn _counts(&self, py: Python<'_>) -> (u64, usize, usize, usize, usize) {
        self.state.with(py, |state| {
            (
                state.history.version(),
                state.readers.len(),
                state.waiters.len(),
                state.callbacks.len() + state.once.len(),
                state.history.retained(),
            )
        })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state
            .peek(|state| {
                visit.call(&state.value)?;
                visit.call(&state.error)?;
                if let Some(Equals::Custom(rule)) = &state.equals {
                    visit.call(rule)?;
                }
                state
                    .history
                    .entries()
                    .try_for_each(|entry| visit.call(entry))?;
                state.readers.items().try_for_each(|reader| {
                    visit.call(&reader.last)?;
                    visit.call(&reader.initial)
                })?;
                state
                    .parked
                    .items()
                    .try_for_each(|parker| visit.call(parker))?;
                state.waiters.items().try_for_each(|waiter| {
                    visit.call(&waiter.parker)?;
                    waiter.test.traverse(&visit)
                })?;
                state
                    .callbacks
                    .items()
                    .try_for_each(|handle| visit.call(handle))?;
                state
                    .once
                    .items()
                    .try_for_each(|handle| visit.call(handle))?;
                state
                    .to_match
                    .iter()
                    .try_for_each(|(_, value)| visit.call(value))?;
                state.to_dispatch.iter().try_for_each(|dispatch| {
                    visit.call(&dispatch.old)?;
                    visit.call(&dispatch.new)
                })
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let held = self.state.with(py, |state| {
            (
                state.value.take(),
                (state.error.take(), state.equals.take()),
                state.history.clear(),
                state.readers.drain(),
                state.parked.drain(),
                state.waiters.drain(),
                (state.callbacks.drain(), state.once.drain()),
                std::mem::take(&mut state.to_match),
                std::mem::take(&mut state.to_dispatch),
            )
        });
        drop(held);
    }
}
