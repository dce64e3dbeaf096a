//! What a task is suspended on: one wait, the place of its outcome, and whom to wake.
//!
//! Towards the task it speaks the protocol of `asyncio.Future`, without the callback
//! handle that a future schedules for each of its waiters. It is not what the user
//! gets: `asyncio.isfuture` takes whatever class has `_asyncio_future_blocking` for a
//! future, and `gather`, `shield`, `wait` and `wait_for` would then not treat it as the
//! coroutine it has to be. That one is in `waiter`.

use pyo3::PyTraverseError;
use pyo3::exceptions::PyAttributeError;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;

use crate::call::{call_method, truth};
use crate::hub::{Hub, Pushed, Wakes, give_up};
use crate::ledger::Side;
use crate::lock::Lock;
use crate::python::{cannot_pickle, generation, imports, raise_later};
use crate::queue::Queue;

/// What became of a wait.
pub(crate) enum Outcome {
    /// The value that matched.
    Matched(Py<PyAny>),
    /// The exception to raise.
    Failed(Py<PyAny>),
    /// There is something to look at.
    Notified,
    Expired,
    /// With the message given to `Task.cancel`.
    Cancelled(Option<Py<PyAny>>),
}

/// Whom to wake when there is an outcome.
enum Waker {
    /// Nobody yet: the coroutine has not been awaited.
    Nobody,
    Hub(Py<Hub>),
    /// A `threading.Lock` that a blocked thread is acquiring, and the generation of the thread.
    Gate(Py<PyAny>, u64),
}

struct Parked {
    outcome: Option<Outcome>,
    waker: Waker,
    wakeup: Option<Py<PyAny>>,
    context: Option<Py<PyAny>>,
    /// On a hub's ready list, from which only the hub can take it.
    queued: bool,
    /// While it is in line with others: what that leads to.
    line: Option<(Py<Queue>, Side)>,
}

/// One wait, as its task sees it.
#[pyclass(frozen, module = "interlock._core")]
pub(crate) struct Parker {
    state: Lock<Parked>,
}

/// How to resume a task.
pub(crate) struct Wakeup {
    pub(crate) function: Py<PyAny>,
    pub(crate) context: Option<Py<PyAny>>,
    /// The parker must be asked for its result, which is `CancelledError`.
    pub(crate) cancelled: bool,
}

/// Whom a settled wait leaves to be woken.
enum Wake {
    Nobody,
    Hub(Py<Hub>),
    Gate(Py<PyAny>, u64),
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            state: Lock::new(Parked {
                outcome: None,
                waker: Waker::Nobody,
                wakeup: None,
                context: None,
                queued: false,
                line: None,
            }),
        }
    }

    /// The parker in this slot, made as new; another one, if a hub still has that.
    pub(crate) fn renewed(py: Python<'_>, slot: &Lock<Option<Py<Self>>>) -> PyResult<Py<Self>> {
        let kept = slot.with(py, |kept| kept.as_ref().map(|parker| parker.clone_ref(py)));
        if let Some(parker) = kept
            && parker.get().renew(py)
        {
            return Ok(parker);
        }
        let parker = Py::new(py, Self::new())?;
        let kept = parker.clone_ref(py);
        drop(slot.with(py, |slot| slot.replace(kept)));
        Ok(parker)
    }

    /// Settle it without waking anybody; None if it was settled before.
    fn set_outcome(&self, py: Python<'_>, outcome: Outcome) -> Option<Wake> {
        let settled = self.state.with(py, |state| {
            if state.outcome.is_some() {
                return Err(outcome);
            }
            state.outcome = Some(outcome);
            Ok(match &state.waker {
                Waker::Nobody => Wake::Nobody,
                Waker::Hub(hub) => {
                    state.queued = true;
                    Wake::Hub(hub.clone_ref(py))
                }
                Waker::Gate(gate, generation) => Wake::Gate(gate.clone_ref(py), *generation),
            })
        });
        // A rejected outcome is dropped here, with the lock released.
        settled.ok()
    }

    /// Settle the wait, from any thread; false if it was settled before. Whom to wake
    /// is left in `wakes`, for a hub.
    pub(crate) fn settle(
        slf: &Py<Self>,
        py: Python<'_>,
        outcome: Outcome,
        wakes: &mut Wakes,
    ) -> PyResult<bool> {
        match slf.get().set_outcome(py, outcome) {
            None => return Ok(false),
            Some(Wake::Nobody) => {}
            Some(Wake::Hub(hub)) => wakes.add(py, hub, slf.clone_ref(py))?,
            Some(Wake::Gate(gate, _)) => open_gate(gate.bind(py))?,
        }
        Ok(true)
    }

    fn settle_now(slf: &Bound<'_, Self>, outcome: Outcome) -> PyResult<bool> {
        let py = slf.py();
        let mut wakes = Wakes::default();
        let first = Self::settle(&slf.clone().unbind(), py, outcome, &mut wakes)?;
        wakes.flush(py)?;
        Ok(first)
    }

    /// Let it look again, from any thread; false if it was settled before or its loop is
    /// closed, so that another has to.
    pub(crate) fn notify(slf: &Py<Self>, py: Python<'_>) -> PyResult<bool> {
        match slf.get().set_outcome(py, Outcome::Notified) {
            None => Ok(false),
            Some(Wake::Nobody) => Ok(true),
            Some(Wake::Hub(hub)) => {
                let hub = hub.bind(py);
                let abandoned = match Hub::push(hub, [slf.clone_ref(py)])? {
                    Pushed::Scheduled => None,
                    Pushed::OnTop => Hub::abandon_if_closed(hub),
                    Pushed::ToNobody(abandoned) => Some(abandoned),
                };
                let closed = abandoned.is_some();
                give_up(py, abandoned.into_iter().flatten(), Some(slf));
                Ok(!closed)
            }
            // A forked child has no copy of its parent's threads (X12).
            Some(Wake::Gate(_, blocked_in)) if blocked_in != generation() => Ok(false),
            Some(Wake::Gate(gate, _)) => open_gate(gate.bind(py)).map(|()| true),
        }
    }

    /// Its line, which it is in from now on.
    pub(crate) fn stand_in_line(&self, py: Python<'_>, queue: &Py<Queue>, side: Side) {
        let line = (queue.clone_ref(py), side);
        drop(self.state.with(py, |state| state.line.replace(line)));
    }

    pub(crate) fn leave_line(&self, py: Python<'_>) {
        drop(self.state.with(py, |state| state.line.take()));
    }

    /// The wait is given up; true if it had been notified, which is to be passed on.
    pub(crate) fn withdraw(&self, py: Python<'_>) -> bool {
        let old = self
            .state
            .with(py, |state| state.outcome.replace(Outcome::Cancelled(None)));
        matches!(old, Some(Outcome::Notified))
    }

    /// Its loop is closed: if it was notified, another may have what that was about.
    pub(crate) fn give_up(&self, py: Python<'_>) {
        let line = self.state.with(py, |state| {
            if !matches!(state.outcome, Some(Outcome::Notified)) {
                return None;
            }
            let line = state.line.take()?;
            state.outcome = Some(Outcome::Cancelled(None));
            Some(line)
        });
        if let Some((queue, side)) = line
            && let Err(interrupt) = Queue::pass_on(queue.bind(py), side)
        {
            raise_later(py, interrupt);
        }
    }

    pub(crate) fn take_outcome(&self, py: Python<'_>) -> Option<Outcome> {
        self.state.with(py, |state| state.outcome.take())
    }

    /// Name the hub to wake; false if there is an outcome already.
    pub(crate) fn park(&self, py: Python<'_>, hub: &Bound<'_, Hub>) -> bool {
        let before = self.state.with(py, |state| {
            if state.outcome.is_some() {
                return None;
            }
            match &state.waker {
                // The usual case for a subscription: read again in the same loop.
                Waker::Hub(current) if current.is(hub) => Some(Waker::Nobody),
                _ => Some(std::mem::replace(
                    &mut state.waker,
                    Waker::Hub(hub.clone().unbind()),
                )),
            }
        });
        before.is_some()
    }

    /// Make it ready for another wait on the same hub, if nothing of the last one is left.
    pub(crate) fn rearm(&self, py: Python<'_>, hub: &Bound<'_, Hub>) -> bool {
        self.state.with(py, |state| {
            !state.queued
                && state.outcome.is_none()
                && state.wakeup.is_none()
                && matches!(&state.waker, Waker::Hub(current) if current.is(hub))
        })
    }

    /// Make it as new for another wait; false if a hub still has it on its list.
    fn renew(&self, py: Python<'_>) -> bool {
        let old = self.state.with(py, |state| {
            if state.queued {
                return None;
            }
            // The waker, too: what is registered before it is named whom to wake must not
            // wake who waited before.
            let waker = std::mem::replace(&mut state.waker, Waker::Nobody);
            let outcome = state.outcome.take();
            Some((outcome, waker, state.wakeup.take(), state.context.take()))
        });
        old.is_some()
    }

    /// Block this thread until there is an outcome, with the GIL released.
    pub(crate) fn block(slf: &Bound<'_, Self>, timeout: Option<f64>) -> PyResult<Outcome> {
        let (py, parker) = (slf.py(), slf.get());
        let gate = imports(py).allocate_lock.bind(py).call0()?;
        let acquire = intern!(py, "acquire");
        gate.call_method0(acquire)?;
        let held = gate.clone().unbind();
        let replaced = parker.state.with(py, |state| match state.outcome {
            None => Some(std::mem::replace(
                &mut state.waker,
                Waker::Gate(held, generation()),
            )),
            Some(_) => None,
        });
        if replaced.is_some() {
            // A signal that came before now would not end the wait.
            py.check_signals()?;
            let seconds = timeout.map_or(-1.0, |seconds| seconds.min(imports(py).longest));
            let blocking = true.into_pyobject(py)?.to_owned().into_any();
            let seconds = seconds.into_pyobject(py)?.into_any();
            let acquired = call_method(&gate, acquire, [&blocking, &seconds], None)?;
            if !truth(&acquired)? {
                Self::settle_now(slf, Outcome::Expired)?;
            }
        }
        // The gate goes with the outcome: whoever settles it again, too late, must not open it.
        let (outcome, waker) = parker.state.with(py, |state| {
            let waker = std::mem::replace(&mut state.waker, Waker::Nobody);
            (state.outcome.take(), waker)
        });
        drop(waker);
        Ok(outcome.expect("settled, and read by nobody else"))
    }

    /// The hub on whose ready list it is.
    fn queued_on(&self, py: Python<'_>) -> Option<Py<Hub>> {
        self.state.with(py, |state| match &state.waker {
            Waker::Hub(hub) if state.queued => Some(hub.clone_ref(py)),
            _ => None,
        })
    }

    /// What the task wants called when it is time to resume it.
    pub(crate) fn take_wakeup(&self, py: Python<'_>) -> Option<Wakeup> {
        self.state.with(py, |state| {
            state.queued = false;
            Some(Wakeup {
                function: state.wakeup.take()?,
                context: state.context.take(),
                cancelled: matches!(state.outcome, Some(Outcome::Cancelled(_))),
            })
        })
    }
}

/// `CancelledError`, with the message given to `Task.cancel`.
pub(crate) fn cancelled(py: Python<'_>, message: Option<Py<PyAny>>) -> PyErr {
    let class = imports(py).cancelled_error.bind(py);
    let error = match message {
        Some(message) => class.call1((message,)),
        None => class.call0(),
    };
    error.map_or_else(|error| error, PyErr::from_value)
}

fn open_gate(gate: &Bound<'_, PyAny>) -> PyResult<()> {
    gate.call_method0(intern!(gate.py(), "release")).map(drop)
}

#[pymethods]
impl Parker {
    /// Always true: a parker is yielded only to be waited for.
    #[classattr]
    fn _asyncio_future_blocking() -> bool {
        true
    }

    /// The task sets `_asyncio_future_blocking` to false, to see whether it was yielded by
    /// `yield from`. It costs less to let it than to remember.
    #[allow(clippy::unused_self)]
    fn __setattr__(&self, name: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        let allowed = intern!(name.py(), "_asyncio_future_blocking");
        if name.is(allowed) || name.eq(allowed)? {
            return Ok(());
        }
        Err(PyAttributeError::new_err(format!(
            "a Parker has no attribute {name} to set"
        )))
    }

    /// Not `get_loop`, which the task would prefer: an attribute is cheaper to get than a
    /// method to call.
    #[getter]
    fn _loop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let hub = self.state.with(py, |state| match &state.waker {
            Waker::Hub(hub) => Some(hub.clone_ref(py)),
            _ => None,
        });
        hub.map_or(Ok(None), |hub| hub.get().event_loop(py))
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(&self, py: Python<'_>, callback: Py<PyAny>, context: Option<Py<PyAny>>) {
        let old = self.state.with(py, |state| {
            (
                state.wakeup.replace(callback),
                std::mem::replace(&mut state.context, context),
            )
        });
        drop(old);
    }

    fn remove_done_callback(&self, py: Python<'_>, callback: &Bound<'_, PyAny>) -> PyResult<usize> {
        let current = self.state.with(py, |state| {
            state.wakeup.as_ref().map(|wakeup| wakeup.clone_ref(py))
        });
        if !current.map_or(Ok(false), |current| current.bind(py).eq(callback))? {
            return Ok(0);
        }
        let removed = self.state.with(py, |state| state.wakeup.take());
        Ok(usize::from(removed.is_some()))
    }

    /// Called by `Task.cancel`. False if there is an outcome already: the task then
    /// throws `CancelledError` when it resumes, and nothing has been taken (X7).
    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let first = Self::settle_now(slf, Outcome::Cancelled(msg))?;
        if !first && let Some(hub) = slf.get().queued_on(slf.py()) {
            // Should the hub's handle have been postponed, this is the time for it.
            Hub::push_all(hub.bind(slf.py()), [])?;
        }
        Ok(first)
    }

    fn done(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.outcome.is_some())
    }

    fn cancelled(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| {
            matches!(state.outcome, Some(Outcome::Cancelled(_)))
        })
    }

    /// Called by the task when it resumes; raises only if the wait was cancelled.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        let outcome = self.state.with(py, |state| match &state.outcome {
            None => Err(()),
            Some(Outcome::Cancelled(message)) => {
                Ok(Some(message.as_ref().map(|message| message.clone_ref(py))))
            }
            Some(_) => Ok(None),
        });
        match outcome {
            Ok(None) => Ok(()),
            Ok(Some(message)) => Err(cancelled(py, message)),
            Err(()) => {
                let class = imports(py).invalid_state_error.bind(py);
                Err(PyErr::from_value(
                    class.call1(("the wait has no outcome yet",))?,
                ))
            }
        }
    }

    fn exception(&self, py: Python<'_>) -> PyResult<()> {
        self.result(py)
    }

    #[allow(clippy::unused_self)]
    fn __reduce__(&self) -> PyResult<()> {
        Err(cannot_pickle("Parker"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.state
            .peek(|state| {
                match &state.outcome {
                    Some(Outcome::Matched(held) | Outcome::Failed(held)) => visit.call(held)?,
                    Some(Outcome::Cancelled(held)) => visit.call(held)?,
                    _ => {}
                }
                match &state.waker {
                    Waker::Hub(hub) => visit.call(hub)?,
                    Waker::Gate(gate, _) => visit.call(gate)?,
                    Waker::Nobody => {}
                }
                if let Some((queue, _)) = &state.line {
                    visit.call(queue)?;
                }
                visit.call(&state.wakeup)?;
                visit.call(&state.context)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let held = self.state.with(py, |state| {
            // That it was notified holds nothing, and is to be passed on when its coroutine goes.
            let outcome = match &state.outcome {
                None | Some(Outcome::Notified | Outcome::Expired) => None,
                Some(_) => state.outcome.take(),
            };
            (
                outcome,
                std::mem::replace(&mut state.waker, Waker::Nobody),
                state.line.take(),
                state.wakeup.take(),
                state.context.take(),
            )
        });
        drop(held);
    }
}
