//! Registered callbacks, and the handle to cancel them.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;

use crate::call::{call, call_method};
use crate::lock::Lock;
use crate::python::{cannot_pickle, copy_of, equal, generation, in_context, is_interrupt};
use crate::registry::{Registry, Token};
use crate::watcher::{Interrupt, Watcher};

/// What is called, where, and what becomes of its result: an `interlock.callback.Callback`.
struct Parts {
    function: Py<PyAny>,
    context: Py<PyAny>,
    callback: Py<PyAny>,
}

impl Parts {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self {
            function: self.function.clone_ref(py),
            context: self.context.clone_ref(py),
            callback: self.callback.clone_ref(py),
        }
    }
}

/// What `on_change` and `on_value` return.
///
/// `cancel()` is idempotent, works from any thread and takes effect at once, even
/// during a dispatch.
#[pyclass(frozen, module = "interlock._core")]
pub(crate) struct CallbackHandle {
    watcher: Py<Watcher>,
    /// The value that a one-shot callback waits for.
    pub(crate) awaited: Option<Py<PyAny>>,
    /// Transitions up to this version are none of its business.
    pub(crate) since: u64,
    token: Lock<Option<Token>>,
    parts: Lock<Option<Parts>>,
    cancelled: AtomicBool,
    fired: AtomicBool,
    /// Of forks, in which it was registered.
    generation: u64,
}

impl CallbackHandle {
    pub(crate) fn new(
        watcher: Py<Watcher>,
        callback: &Bound<'_, PyAny>,
        awaited: Option<Py<PyAny>>,
        since: u64,
    ) -> PyResult<Self> {
        let py = callback.py();
        let parts = Parts {
            function: callback.getattr(intern!(py, "function"))?.unbind(),
            context: callback.getattr(intern!(py, "context"))?.unbind(),
            callback: callback.clone().unbind(),
        };
        Ok(Self {
            watcher,
            awaited,
            since,
            token: Lock::new(None),
            parts: Lock::new(Some(parts)),
            cancelled: AtomicBool::new(false),
            fired: AtomicBool::new(false),
            generation: generation(),
        })
    }

    pub(crate) fn set_token(&self, py: Python<'_>, token: Token) {
        self.token.with(py, |slot| *slot = Some(token));
    }

    /// Call it; the only errors are interrupts, which are not the callback's own.
    pub(crate) fn call<'py, const N: usize>(
        &self,
        py: Python<'py>,
        arguments: [&Bound<'py, PyAny>; N],
    ) -> PyResult<()> {
        let parts = self
            .parts
            .with(py, |parts| parts.as_ref().map(|parts| parts.clone_ref(py)));
        let Some(parts) = parts else {
            return Ok(());
        };
        let callback = parts.callback.bind(py);
        let mut context = parts.context.bind(py).clone();
        if self.generation != generation() {
            // The parent of a fork may have left it entered, by a thread that is no more.
            context = copy_of(&context)?;
        }
        let outcome = in_context(&context, || {
            let result = call(parts.function.bind(py), arguments)?;
            if !result.is_none() {
                call_method(callback, intern!(py, "returned"), [&result], None)?;
            }
            Ok(())
        });
        match outcome {
            Err(error) if !is_interrupt(py, &error) => {
                let error = error.into_value(py).into_bound(py).into_any();
                call_method(callback, intern!(py, "failed"), [&error], None).map(drop)
            }
            outcome => outcome,
        }
    }

    /// Call a one-shot callback, unless it was called before.
    pub(crate) fn fire(&self, py: Python<'_>) -> PyResult<()> {
        if self.fired.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let outcome = self.call(py, []);
        self.release(py);
        outcome
    }

    /// Forget the callback, and let the watcher forget it.
    fn release(&self, py: Python<'_>) {
        let token = self.token.with(py, Option::take);
        if let Some(token) = token {
            self.watcher.get().forget(py, self.awaited.is_some(), token);
        }
        drop(self.parts.with(py, Option::take));
    }
}

#[pymethods]
impl CallbackHandle {
    /// Stop calling the callback. Idempotent, from any thread, even during a dispatch.
    fn cancel(&self, py: Python<'_>) {
        self.cancelled.store(true, Ordering::Release);
        self.release(py);
    }

    /// Whether `cancel` was called.
    #[getter]
    fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    #[allow(clippy::unused_self)]
    fn __reduce__(&self) -> PyResult<()> {
        Err(cannot_pickle("CallbackHandle"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.watcher)?;
        visit.call(&self.awaited)?;
        self.parts
            .peek(|parts| match parts {
                Some(parts) => {
                    visit.call(&parts.function)?;
                    visit.call(&parts.context)?;
                    visit.call(&parts.callback)
                }
                None => Ok(()),
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.parts.with(py, Option::take));
    }
}

/// A transition that callbacks are to be told of.
pub(crate) struct Dispatch {
    pub(crate) version: u64,
    pub(crate) old: Py<PyAny>,
    pub(crate) new: Py<PyAny>,
}

impl Registry<Py<CallbackHandle>> {
    fn items_in_order(&self, py: Python<'_>) -> Vec<Py<CallbackHandle>> {
        // No callback is listed under the hash 0 in the registry of `on_change`.
        self.candidates(Some(0))
            .map(|(_, handle)| handle.clone_ref(py))
            .collect()
    }
}

impl Watcher {
    pub(crate) fn dispatch(&self, py: Python<'_>, interrupt: &mut Interrupt) {
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
                    let pair = [transition.old.bind(py), transition.new.bind(py)];
                    interrupt.keep(handle.get().call(py, pair));
                }
            }
            interrupt.keep(self.fire_one(py, transition.version, transition.new.bind(py)));
        }
    }

    /// Fire the one-shot callbacks that one transition concerns.
    fn fire_one(&self, py: Python<'_>, version: u64, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut interrupt = Interrupt(None);
        let hashed = self.state.with(py, |state| state.once.has_hashed());
        let key = if hashed {
            interrupt.hash(value)
        } else {
            Some(0)
        };
        let candidates: Vec<Py<CallbackHandle>> = self.state.with(py, |state| {
            let concerned = state.once.candidates(key);
            concerned.map(|(_, handle)| handle.clone_ref(py)).collect()
        });
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
}
