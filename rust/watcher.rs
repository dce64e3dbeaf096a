//! The watched value: one total order of transitions, and whom each of them concerns.

use std::collections::VecDeque;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::callback::CallbackHandle;
use crate::history::{Cursor, History};
use crate::hub::Wakes;
use crate::lock::Lock;
use crate::python::{
    equal, generation, hash, imports, in_context, is_interrupt, transition, truth_or_false,
};
use crate::registry::{Key, Registry, Token};
use crate::parker::{Outcome, Parker};
use crate::waiter::{Source, Wait, check_timeout, unwrap};

/// What a wait accepts.
enum Test {
    Equal(Py<PyAny>),
    NotEqual(Py<PyAny>),
    NotNone,
    Predicate {
        function: Py<PyAny>,
        context: Py<PyAny>,
    },
    Anything,
}

impl Test {
    fn new(kind: &str, operand: Bound<'_, PyAny>) -> PyResult<(&'static str, Self)> {
        let py = operand.py();
        Ok(match kind {
            "wait_for" => ("wait_for", Self::Equal(operand.unbind())),
            "wait_for_not" => ("wait_for_not", Self::NotEqual(operand.unbind())),
            "wait_for_not_none" => ("wait_for_not_none", Self::NotNone),
            "wait_until" => (
                "wait_until",
                Self::Predicate {
                    function: operand.unbind(),
                    context: imports(py).copy_context.bind(py).call0()?.unbind(),
                },
            ),
            "wait_for_change" => ("wait_for_change", Self::Anything),
            _ => return Err(PyValueError::new_err(format!("no such wait: {kind}"))),
        })
    }

    /// The hash it can be found by, if any.
    fn key(&self, py: Python<'_>) -> PyResult<Key> {
        match self {
            Self::Equal(value) => hash(value.bind(py)),
            _ => Ok(None),
        }
    }

    fn accepts(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = value.py();
        match self {
            Self::Equal(wanted) => equal(value, wanted.bind(py)),
            Self::NotEqual(unwanted) => Ok(!equal(value, unwanted.bind(py))?),
            Self::NotNone => Ok(!value.is_none()),
            Self::Predicate { function, context } => in_context(context.bind(py), || {
                function.bind(py).call1((value,))?.is_truthy()
            }),
            Self::Anything => Ok(true),
        }
    }

    fn clone_ref(&self, py: Python<'_>) -> Self {
        match self {
            Self::Equal(value) => Self::Equal(value.clone_ref(py)),
            Self::NotEqual(value) => Self::NotEqual(value.clone_ref(py)),
            Self::NotNone => Self::NotNone,
            Self::Predicate { function, context } => Self::Predicate {
                function: function.clone_ref(py),
                context: context.clone_ref(py),
            },
            Self::Anything => Self::Anything,
        }
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self {
            Self::Equal(value) | Self::NotEqual(value) => visit.call(value),
            Self::Predicate { function, context } => {
                visit.call(function)?;
                visit.call(context)
            }
            Self::NotNone | Self::Anything => Ok(()),
        }
    }
}

struct Waiter {
    parker: Py<Parker>,
    test: Test,
    /// Transitions up to this version are none of its business.
    since: u64,
}

/// What the watcher knows of a subscription.
pub(crate) struct Reader {
    pub(crate) cursor: Cursor,
    /// `overflow="latest"`, with the last value that was given out.
    pub(crate) last: Option<Py<PyAny>>,
    /// Given out before anything else.
    pub(crate) initial: Option<Py<PyAny>>,
    /// Whether a read is under way (W16).
    pub(crate) reading: bool,
    pub(crate) parker: Option<Py<Parker>>,
    /// While the parker is registered for the next transition.
    pub(crate) parked: Option<Token>,
}

/// Lets one thread at a time do a job that others only announce. One that was held by
/// a thread of the parent of a fork is void (X12).
struct Turn(Option<u64>);

impl Turn {
    fn take(&mut self) -> bool {
        self.0.replace(generation()) != Some(generation())
    }

    fn give_back(&mut self) {
        self.0 = None;
    }
}

struct Dispatch {
    version: u64,
    old: Py<PyAny>,
    new: Py<PyAny>,
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
    waiters: Registry<Waiter>,
    to_match: VecDeque<(u64, Py<PyAny>)>,
    matching: Turn,
    callbacks: Registry<Py<CallbackHandle>>,
    once: Registry<Py<CallbackHandle>>,
    to_dispatch: VecDeque<Dispatch>,
    dispatching: Turn,
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
                let answer = rule.bind(py).call1((&self.value, new));
                truth_or_false(py, answer.and_then(|answer| answer.is_truthy()))
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
    fn replace(slf: &Bound<'_, Self>, seen: Snapshot<'_>, new: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (py, watcher) = (slf.py(), slf.get());
        if seen.equals(new)? {
            return Ok(true);
        }
        let entry = if seen.watched {
            Some(transition(py, seen.value.clone(), new.clone())?.unbind())
        } else {
            None
        };
        let Some(committed) = watcher.commit(py, &seen, new, entry) else {
            return Ok(false);
        };
        drop(seen);
        watcher.tell(py, committed)?;
        Ok(true)
    }

    fn commit(
        &self,
        py: Python<'_>,
        seen: &Snapshot<'_>,
        new: &Bound<'_, PyAny>,
        entry: Option<Py<PyAny>>,
    ) -> Option<Committed> {
        let committed = self.state.with(py, |state| {
            let stale = state.closed
                || state.history.version() != seen.version
                || state.history.is_watched() != seen.watched;
            if stale {
                return Err(entry);
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
        });
        committed.ok()
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

    fn match_waiters(&self, py: Python<'_>, interrupt: &mut Interrupt) {
        let turn = self.state.with(py, |state| state.matching.take());
        if !turn {
            return;
        }
        loop {
            enum Job {
                Match(u64, Py<PyAny>),
                Fail(Vec<Waiter>),
            }
            let job = self.state.with(py, |state| {
                if let Some((version, value)) = state.to_match.pop_front() {
                    Some(Job::Match(version, value))
                } else if state.closed && !state.waiters.is_empty() {
                    Some(Job::Fail(state.waiters.drain()))
                } else {
                    state.matching.give_back();
                    None
                }
            });
            match job {
                Some(Job::Match(version, value)) => {
                    interrupt.keep(self.match_one(py, version, value.bind(py)));
                }
                Some(Job::Fail(waiters)) => {
                    let error = self.wait_error(py);
                    let parkers = waiters.into_iter().map(|waiter| waiter.parker).collect();
                    interrupt.keep(wake_all(py, parkers, || Outcome::Failed(error.clone_ref(py))));
                }
                None => return,
            }
        }
    }

    /// Resolve the waiters that one transition satisfies.
    fn match_one(&self, py: Python<'_>, version: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let hashed = self.state.with(py, |state| state.waiters.has_hashed());
        let key = if hashed { hash(value)? } else { Some(0) };
        let candidates: Vec<(Token, Py<Parker>, Test)> = self.state.with(py, |state| {
            let concerned = state.waiters.candidates(key);
            concerned
                .filter(|(_, waiter)| waiter.since < version)
                .map(|(token, waiter)| {
                    (token, waiter.parker.clone_ref(py), waiter.test.clone_ref(py))
                })
                .collect()
        });
        let mut interrupt = Interrupt(None);
        let mut wakes = Wakes::default();
        let mut done = Vec::new();
        for (token, parker, test) in candidates {
            let outcome = match test.accepts(value) {
                Ok(false) => continue,
                Ok(true) => Outcome::Matched(value.clone().unbind()),
                Err(error) if is_interrupt(py, &error) => {
                    interrupt.keep(Err(error));
                    continue;
                }
                Err(error) => Outcome::Failed(error.into_value(py).into_any()),
            };
            done.push(token);
            interrupt.keep(Parker::settle(&parker, py, outcome, &mut wakes).map(drop));
        }
        interrupt.keep(wakes.flush(py));
        let removed: Vec<Option<Waiter>> = self.state.with(py, |state| {
            done.into_iter().map(|token| state.waiters.remove(token)).collect()
        });
        drop(removed);
        interrupt.0.map_or(Ok(()), Err)
    }

    fn dispatch(&self, py: Python<'_>, interrupt: &mut Interrupt) {
        let turn = self.state.with(py, |state| state.dispatching.take());
        if !turn {
            return;
        }
        loop {
            let (next, released) = self.state.with(py, |state| {
                if let Some(next) = state.to_dispatch.pop_front() {
                    let callbacks: Vec<_> = state.callbacks.items_in_order(py);
                    return (Some((next, callbacks)), None);
                }
                state.dispatching.give_back();
                // After the last transition nothing is called any more: let go of it.
                let released = state
                    .closed
                    .then(|| (state.callbacks.drain(), state.once.drain()));
                (None, released)
            });
            drop(released);
            let Some((transition, callbacks)) = next else {
                return;
            };
            for handle in callbacks {
                if handle.get().since < transition.version {
                    let pair = PyTuple::new(py, [&transition.old, &transition.new]);
                    interrupt.keep(pair.and_then(|pair| handle.get().call(pair)));
                }
            }
            interrupt.keep(self.fire_one(py, transition.version, transition.new.bind(py)));
        }
    }

    /// Fire the one-shot callbacks that one transition concerns.
    fn fire_one(&self, py: Python<'_>, version: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let hashed = self.state.with(py, |state| state.once.has_hashed());
        let key = if hashed { hash(value)? } else { Some(0) };
        let candidates: Vec<Py<CallbackHandle>> = self.state.with(py, |state| {
            let concerned = state.once.candidates(key);
            concerned.map(|(_, handle)| handle.clone_ref(py)).collect()
        });
        let mut interrupt = Interrupt(None);
        for handle in candidates {
            let handle = handle.get();
            let Some(awaited) = &handle.awaited else {
                continue;
            };
            if handle.since < version {
                match equal(value, awaited.bind(py)) {
                    Ok(true) => interrupt.keep(handle.fire(py)),
                    Ok(false) => {}
                    Err(error) => interrupt.keep(Err(error)),
                }
            }
        }
        interrupt.0.map_or(Ok(()), Err)
    }

    fn register(
        slf: &Bound<'_, Self>,
        test: Test,
        immediate: bool,
    ) -> PyResult<Registration> {
        let (py, watcher) = (slf.py(), slf.get());
        let key = test.key(py)?;
        let mut seen = None;
        if immediate {
            let (value, version) = watcher
                .state
                .with(py, |state| (current(py, state.value.as_ref()), state.history.version()));
            match test.accepts(&value) {
                Ok(true) => return Ok(Registration::settled(Ok(value.unbind()))),
                Ok(false) => seen = Some(version),
                Err(error) if is_interrupt(py, &error) => return Err(error),
                Err(error) => return Ok(Registration::settled(Err(error))),
            }
        }
        let parker = Py::new(py, Parker::new())?;
        let waiter = Waiter {
            parker: parker.clone_ref(py),
            test: test.clone_ref(py),
            since: 0,
        };
        let registered = watcher.state.with(py, |state| {
            if state.closed {
                return Err(waiter);
            }
            let since = state.history.version();
            let token = state.waiters.insert(key, Waiter { since, ..waiter });
            // What was set between the look at the value and now is looked at, too.
            let missed = seen.is_some_and(|seen| seen != since).then(|| current(py, state.value.as_ref()));
            Ok((token, missed))
        });
        let Ok((token, missed)) = registered else {
            let error = watcher.wait_error(py);
            return Ok(Registration::settled(Err(PyErr::from_value(error.into_bound(py)))));
        };
        let registration = Registration(Kind::Pending {
            watcher: slf.clone().unbind(),
            parker,
            token,
        });
        if let (Some(value), Kind::Pending { parker, .. }) = (missed, &registration.0) {
            let outcome = match test.accepts(&value) {
                Ok(false) => return Ok(registration),
                Ok(true) => Outcome::Matched(value.unbind()),
                Err(error) if is_interrupt(py, &error) => {
                    registration.cancel(py);
                    return Err(error);
                }
                Err(error) => Outcome::Failed(error.into_value(py).into_any()),
            };
            Parker::settle(parker, py, outcome, &mut Wakes::default())?;
        }
        Ok(registration)
    }

    /// For sets and readers.
    pub(crate) fn closed_error(&self, py: Python<'_>) -> PyErr {
        let cause = self
            .state
            .with(py, |state| state.error.as_ref().map(|error| error.clone_ref(py)));
        let text = "the watcher is closed; its value stays readable, but it can no longer be set or waited for";
        match imports(py).watcher_closed.bind(py).call1((text,)) {
            Ok(error) => {
                let error = PyErr::from_value(error);
                error.set_cause(py, cause.map(|cause| PyErr::from_value(cause.into_bound(py))));
                error
            }
            Err(error) => error,
        }
    }

    /// For waiters.
    fn wait_error(&self, py: Python<'_>) -> Py<PyAny> {
        let given = self
            .state
            .with(py, |state| state.error.as_ref().map(|error| error.clone_ref(py)));
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
fn wake_all(py: Python<'_>, parkers: Vec<Py<Parker>>, outcome: impl Fn() -> Outcome) -> PyResult<()> {
    let mut interrupt = Interrupt(None);
    let mut wakes = Wakes::default();
    for parker in parkers {
        interrupt.keep(Parker::settle(&parker, py, outcome(), &mut wakes).map(drop));
    }
    interrupt.keep(wakes.flush(py));
    interrupt.0.map_or(Ok(()), Err)
}

/// The first KeyboardInterrupt or the like, raised once everybody has been told.
struct Interrupt(Option<PyErr>);

impl Interrupt {
    fn keep(&mut self, outcome: PyResult<()>) {
        if let Err(error) = outcome {
            self.0.get_or_insert(error);
        }
    }
}

impl Registry<Py<CallbackHandle>> {
    fn items_in_order(&self, py: Python<'_>) -> Vec<Py<CallbackHandle>> {
        // No callback is listed under the hash 0 in the registry of `on_change`.
        self.candidates(Some(0))
            .map(|(_, handle)| handle.clone_ref(py))
            .collect()
    }
}

/// A pending wait, or its result. When it is dropped nothing of it stays behind (X6).
pub(crate) struct Registration(Kind);

enum Kind {
    Settled(PyResult<Py<PyAny>>),
    Pending {
        watcher: Py<Watcher>,
        parker: Py<Parker>,
        token: Token,
    },
}

impl Registration {
    fn settled(result: PyResult<Py<PyAny>>) -> Self {
        Self(Kind::Settled(result))
    }

    /// The parker to wait on, unless there is a result already.
    pub(crate) fn parker(&self, py: Python<'_>) -> Option<Py<Parker>> {
        match &self.0 {
            Kind::Pending { parker, .. } => Some(parker.clone_ref(py)),
            Kind::Settled(_) => None,
        }
    }

    pub(crate) fn into_result(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.0 {
            Kind::Settled(result) => result,
            Kind::Pending { .. } => Ok(py.None()),
        }
    }

    pub(crate) fn cancel(&self, py: Python<'_>) {
        if let Kind::Pending { watcher, token, .. } = &self.0 {
            drop(watcher.get().state.with(py, |state| state.waiters.remove(*token)));
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.0 {
            Kind::Pending { watcher, parker, .. } => {
                visit.call(watcher)?;
                visit.call(parker)
            }
            Kind::Settled(Ok(value)) => visit.call(value),
            Kind::Settled(Err(_)) => Ok(()),
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
        self.state.with(py, |state| current(py, state.value.as_ref()))
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
            if !condition.call1((&seen.value,))?.is_truthy()? {
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
            let new_value = function.call1((&seen.value,))?;
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
        let registration = Self::register(slf, test, immediate)?;
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
        let registration = Self::register(slf, test, immediate)?;
        let Some(parker) = registration.parker(py) else {
            return registration.into_result(py);
        };
        let outcome = Parker::block(parker.bind(py), timeout);
        registration.cancel(py);
        unwrap(py, outcome?)
    }

    fn _on_change(slf: &Bound<'_, Self>, callback: &Bound<'_, PyAny>) -> PyResult<Py<CallbackHandle>> {
        let (py, watcher) = (slf.py(), slf.get());
        loop {
            let since = watcher.state.with(py, |state| state.history.version());
            let handle = CallbackHandle::new(slf.clone().unbind(), callback, None, since)?;
            let handle = Py::new(py, handle)?;
            let listed = handle.clone_ref(py);
            let token = watcher.state.with(py, |state| {
                if state.history.version() != since {
                    return Err(listed);
                }
                Ok((!state.closed).then(|| state.callbacks.insert(None, listed)))
            });
            if let Ok(token) = token {
                if let Some(token) = token {
                    handle.get().set_token(py, token);
                }
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
            let (seen, since) = watcher
                .state
                .with(py, |state| (current(py, state.value.as_ref()), state.history.version()));
            let awaited = Some(value.clone().unbind());
            let handle = CallbackHandle::new(slf.clone().unbind(), callback, awaited, since)?;
            let handle = Py::new(py, handle)?;
            if equal(&seen, value)? {
                handle.get().fire(py)?;
                return Ok(handle);
            }
            let listed = handle.clone_ref(py);
            let token = watcher.state.with(py, |state| {
                if state.history.version() != since {
                    return Err(listed);
                }
                Ok((!state.closed).then(|| state.once.insert(key, listed)))
            });
            if let Ok(token) = token {
                if let Some(token) = token {
                    handle.get().set_token(py, token);
                }
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
                state.history.entries().try_for_each(|entry| visit.call(entry))?;
                state.readers.items().try_for_each(|reader| {
                    visit.call(&reader.last)?;
                    visit.call(&reader.initial)?;
                    visit.call(&reader.parker)
                })?;
                state.parked.items().try_for_each(|parker| visit.call(parker))?;
                state.waiters.items().try_for_each(|waiter| {
                    visit.call(&waiter.parker)?;
                    waiter.test.traverse(&visit)
                })?;
                state.callbacks.items().try_for_each(|handle| visit.call(handle))?;
                state.once.items().try_for_each(|handle| visit.call(handle))?;
                state.to_match.iter().try_for_each(|(_, value)| visit.call(value))?;
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
