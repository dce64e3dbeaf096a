//! What a wait accepts, its place among the waits of a watcher, and what a transition
//! does to it.

use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use crate::call::{call, truth};
use crate::hub::Wakes;
use crate::parker::{Outcome, Parker};
use crate::python::{copy_of, equal, hash, imports, in_context, is_interrupt};
use crate::registry::{Key, Token};
use crate::watcher::{Interrupt, Watcher, current, wake_all};

/// What a wait accepts.
pub(crate) enum Test {
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
    pub(crate) fn new(kind: &str, operand: Bound<'_, PyAny>) -> PyResult<(&'static str, Self)> {
        let py = operand.py();
        Ok(match kind {
            "wait_for" => ("ValueWatcher.wait_for", Self::Equal(operand.unbind())),
            "wait_for_not" => (
                "ValueWatcher.wait_for_not",
                Self::NotEqual(operand.unbind()),
            ),
            "wait_for_not_none" => ("ValueWatcher.wait_for_not_none", Self::NotNone),
            "wait_until" => (
                "ValueWatcher.wait_until",
                Self::Predicate {
                    function: operand.unbind(),
                    context: imports(py).copy_context.bind(py).call0()?.unbind(),
                },
            ),
            "wait_for_change" => ("ValueWatcher.wait_for_change", Self::Anything),
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
            // A copy each time: the thread that registers and one that sets may both be trying it.
            Self::Predicate { function, context } => {
                in_context(&copy_of(context.bind(py))?, || {
                    truth(&call(function.bind(py), [value])?)
                })
            }
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

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
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

pub(crate) struct Waiter {
    pub(crate) parker: Py<Parker>,
    pub(crate) test: Test,
    /// Transitions up to this version are none of its business.
    since: u64,
}

/// A pending wait, or its result. When it is dropped nothing of it stays behind (X6).
pub(crate) struct Registration(Kind);

enum Kind {
    /// The value, or the exception.
    Settled(Result<Py<PyAny>, Py<PyAny>>),
    Pending {
        watcher: Py<Watcher>,
        parker: Py<Parker>,
        token: Token,
    },
}

impl Registration {
    fn settled(result: Result<Py<PyAny>, Py<PyAny>>) -> Self {
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
            Kind::Settled(result) => {
                result.map_err(|error| PyErr::from_value(error.into_bound(py)))
            }
            Kind::Pending { .. } => Ok(py.None()),
        }
    }

    pub(crate) fn cancel(&self, py: Python<'_>) {
        if let Kind::Pending { watcher, token, .. } = &self.0 {
            drop(
                watcher
                    .get()
                    .state
                    .with(py, |state| state.waiters.remove(*token)),
            );
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.0 {
            Kind::Pending {
                watcher, parker, ..
            } => {
                visit.call(watcher)?;
                visit.call(parker)
            }
            Kind::Settled(Ok(held) | Err(held)) => visit.call(held),
        }
    }
}

impl Watcher {
    pub(crate) fn match_waiters(&self, py: Python<'_>, interrupt: &mut Interrupt) {
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
                    interrupt.keep(wake_all(py, parkers, || {
                        Outcome::Failed(error.clone_ref(py))
                    }));
                }
                None => return,
            }
        }
    }

    /// Resolve the waiters that one transition satisfies.
    fn match_one(&self, py: Python<'_>, version: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut interrupt = Interrupt(None);
        let hashed = self.state.with(py, |state| state.waiters.has_hashed());
        let key = if hashed {
            interrupt.hash(value)
        } else {
            Some(0)
        };
        let candidates: Vec<(Token, Py<Parker>, Test)> = self.state.with(py, |state| {
            let concerned = state.waiters.candidates(key);
            concerned
                .filter(|(_, waiter)| waiter.since < version)
                .map(|(token, waiter)| {
                    (
                        token,
                        waiter.parker.clone_ref(py),
                        waiter.test.clone_ref(py),
                    )
                })
                .collect()
        });
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
            done.into_iter()
                .map(|token| state.waiters.remove(token))
                .collect()
        });
        drop(removed);
        interrupt.0.map_or(Ok(()), Err)
    }

    pub(crate) fn register(
        slf: &Bound<'_, Self>,
        test: &Test,
        immediate: bool,
    ) -> PyResult<Registration> {
        let (py, watcher) = (slf.py(), slf.get());
        let key = test.key(py)?;
        let mut seen = None;
        if immediate {
            let (value, version) = watcher.state.with(py, |state| {
                (current(py, state.value.as_ref()), state.history.version())
            });
            match test.accepts(&value) {
                Ok(true) => return Ok(Registration::settled(Ok(value.unbind()))),
                Ok(false) => seen = Some(version),
                Err(error) if is_interrupt(py, &error) => return Err(error),
                Err(error) => {
                    let error = error.into_value(py).into_any();
                    return Ok(Registration::settled(Err(error)));
                }
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
            let missed = seen
                .is_some_and(|seen| seen != since)
                .then(|| current(py, state.value.as_ref()));
            Ok((token, missed))
        });
        let Ok((token, missed)) = registered else {
            return Ok(Registration::settled(Err(watcher.wait_error(py))));
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
}
