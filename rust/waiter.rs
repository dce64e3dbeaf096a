//! What waits: a coroutine for the caller, and a parker that its task is suspended on.
//!
//! They must be two. `asyncio.isfuture` takes whatever class has
//! `_asyncio_future_blocking` for a future, and `gather`, `shield`, `wait` and
//! `wait_for` would then not treat the coroutine as one.

use pyo3::exceptions::{
    PyOverflowError, PyRuntimeError, PyRuntimeWarning, PyStopAsyncIteration, PyTypeError, PyValueError,
};
use pyo3::ffi;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, PyTypeInfo};

use crate::hub::{Hub, Wakes, running_hub};
use crate::lock::Lock;
use crate::python::imports;
use crate::subscription::Subscription;
use crate::watcher::Registration;

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
    /// A `threading.Lock` that a blocked thread is acquiring.
    Gate(Py<PyAny>),
}

struct Parked {
    outcome: Option<Outcome>,
    waker: Waker,
    wakeup: Option<Py<PyAny>>,
    context: Option<Py<PyAny>>,
    blocking: bool,
    /// On a hub's ready list, from which only the hub can take it.
    queued: bool,
}

/// One wait: the place of its outcome, and whom to wake when it is there.
///
/// Towards the task it speaks the protocol of `asyncio.Future`, without the callback
/// handle that a future schedules for each of its waiters.
#[pyclass(frozen, module = "interlock._core")]
pub(crate) struct Parker {
    state: Lock<Parked>,
}

/// Whom a settled wait leaves to be woken.
enum Wake {
    Nobody,
    Hub(Py<Hub>),
    Gate(Py<PyAny>),
}

impl Parker {
    pub(crate) fn new() -> Self {
        Self {
            state: Lock::new(Parked {
                outcome: None,
                waker: Waker::Nobody,
                wakeup: None,
                context: None,
                blocking: false,
                queued: false,
            }),
        }
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
                Waker::Gate(gate) => Wake::Gate(gate.clone_ref(py)),
            })
        });
        // A rejected outcome is dropped here, with the lock released.
        settled.ok()
    }

    /// Settle the wait, from any thread; false if it was settled before. Whom to wake
    /// is left in `wakes`, for a hub.
    pub(crate) fn settle(slf: &Py<Self>, py: Python<'_>, outcome: Outcome, wakes: &mut Wakes) -> PyResult<bool> {
        match slf.get().set_outcome(py, outcome) {
            None => return Ok(false),
            Some(Wake::Nobody) => {}
            Some(Wake::Hub(hub)) => wakes.add(py, hub, slf.clone_ref(py))?,
            Some(Wake::Gate(gate)) => open_gate(gate.bind(py))?,
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

    fn take_outcome(&self, py: Python<'_>) -> Option<Outcome> {
        self.state.with(py, |state| state.outcome.take())
    }

    /// Name the hub to wake; false if there is an outcome already.
    fn park(&self, py: Python<'_>, hub: &Bound<'_, Hub>) -> bool {
        let before = self.state.with(py, |state| {
            if state.outcome.is_some() {
                return None;
            }
            state.blocking = true;
            match &state.waker {
                // The usual case for a subscription: read again in the same loop.
                Waker::Hub(current) if current.is(hub) => Some(Waker::Nobody),
                _ => Some(std::mem::replace(&mut state.waker, Waker::Hub(hub.clone().unbind()))),
            }
        });
        before.is_some()
    }

    /// Make it as new for another wait; false if a hub still has it on its list.
    pub(crate) fn renew(&self, py: Python<'_>) -> bool {
        let old = self.state.with(py, |state| {
            if state.queued {
                return None;
            }
            Some((state.outcome.take(), state.wakeup.take(), state.context.take()))
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
            None => Some(std::mem::replace(&mut state.waker, Waker::Gate(held))),
            Some(_) => None,
        });
        if replaced.is_some() {
            // `_thread.TIMEOUT_MAX` is some 292 years.
            let seconds = timeout.map_or(-1.0, |seconds| seconds.min(9e9));
            if !gate.call_method1(acquire, (true, seconds))?.is_truthy()? {
                Self::settle_now(slf, Outcome::Expired)?;
            }
        }
        Ok(parker.take_outcome(py).expect("settled, and read by nobody else"))
    }

    /// What the task wants called when it is time to resume it.
    pub(crate) fn take_wakeup(&self, py: Python<'_>) -> Option<(Py<PyAny>, Option<Py<PyAny>>)> {
        self.state.with(py, |state| {
            state.queued = false;
            Some((state.wakeup.take()?, state.context.take()))
        })
    }
}

fn open_gate(gate: &Bound<'_, PyAny>) -> PyResult<()> {
    gate.call_method0(intern!(gate.py(), "release")).map(drop)
}

#[pymethods]
impl Parker {
    #[getter(_asyncio_future_blocking)]
    fn blocking(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.blocking)
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, py: Python<'_>, blocking: bool) {
        self.state.with(py, |state| state.blocking = blocking);
    }

    fn get_loop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
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
        let current = self
            .state
            .with(py, |state| state.wakeup.as_ref().map(|wakeup| wakeup.clone_ref(py)));
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
        Self::settle_now(slf, Outcome::Cancelled(msg))
    }

    /// Called by the loop's timer.
    fn expire(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Self::settle_now(slf, Outcome::Expired)
    }

    fn done(&self, py: Python<'_>) -> bool {
        self.state.with(py, |state| state.outcome.is_some())
    }

    fn cancelled(&self, py: Python<'_>) -> bool {
        self.state
            .with(py, |state| matches!(state.outcome, Some(Outcome::Cancelled(_))))
    }

    /// Called by the task when it resumes; raises only if the wait was cancelled.
    fn result(&self, py: Python<'_>) -> PyResult<()> {
        let cancelled = self.state.with(py, |state| match &state.outcome {
            None => Err(()),
            Some(Outcome::Cancelled(message)) => {
                Ok(Some(message.as_ref().map(|message| message.clone_ref(py))))
            }
            Some(_) => Ok(None),
        });
        match cancelled {
            Ok(None) => Ok(()),
            Ok(Some(message)) => {
                let class = imports(py).cancelled_error.bind(py);
                let error = match message {
                    Some(message) => class.call1((message,))?,
                    None => class.call0()?,
                };
                Err(PyErr::from_value(error))
            }
            Err(()) => {
                let class = imports(py).invalid_state_error.bind(py);
                Err(PyErr::from_value(class.call1(("the wait has no outcome yet",))?))
            }
        }
    }

    fn exception(&self, py: Python<'_>) -> PyResult<()> {
        self.result(py)
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
                    Waker::Gate(gate) => visit.call(gate)?,
                    Waker::Nobody => {}
                }
                visit.call(&state.wakeup)?;
                visit.call(&state.context)
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        let held = self.state.with(py, |state| {
            (
                state.outcome.take(),
                std::mem::replace(&mut state.waker, Waker::Nobody),
                state.wakeup.take(),
                state.context.take(),
            )
        });
        drop(held);
    }
}

/// A timeout in seconds; infinity is no timeout.
pub(crate) fn check_timeout(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<f64>> {
    let Some(timeout) = timeout else {
        return Ok(None);
    };
    let py = timeout.py();
    let seconds = match timeout.extract::<f64>() {
        Ok(seconds) => seconds,
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => f64::INFINITY,
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            return Err(PyTypeError::new_err(format!(
                "timeout must be a number of seconds or None, not {}",
                timeout.get_type().name()?
            )));
        }
        Err(error) => return Err(error),
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(PyValueError::new_err(format!(
            "timeout must be 0 or more seconds, not {}; None waits for ever",
            timeout.repr()?
        )));
    }
    Ok(seconds.is_finite().then_some(seconds))
}

pub(crate) fn timed_out(py: Python<'_>) -> PyErr {
    match imports(py).timeout_error.bind(py).call0() {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The value of a settled wait, or its exception.
pub(crate) fn unwrap(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Outcome::Matched(value) => Ok(value),
        Outcome::Failed(error) => Err(PyErr::from_value(error.into_bound(py))),
        Outcome::Expired => Err(timed_out(py)),
        Outcome::Notified | Outcome::Cancelled(_) => {
            unreachable!("only a task is cancelled, only a reader notified")
        }
    }
}

/// What a coroutine waits for.
pub(crate) enum Source {
    Value(Registration),
    /// `iterating`: the end is `StopAsyncIteration`.
    Reader {
        subscription: Py<Subscription>,
        iterating: bool,
    },
}

enum Phase {
    Fresh,
    Parked(Py<Parker>),
    Running,
    Done,
}

struct Progress {
    phase: Phase,
    timer: Option<Py<PyAny>>,
    /// When to give up, by the loop's clock.
    deadline: Option<f64>,
}

/// The coroutine of a wait. Single use, like every coroutine.
#[pyclass(frozen, module = "interlock._core")]
pub(crate) struct Wait {
    name: &'static str,
    owner: &'static str,
    source: Source,
    timeout: Option<f64>,
    progress: Lock<Progress>,
}

enum Step {
    Return(Py<PyAny>),
    Yield(Py<Parker>),
}

impl Wait {
    pub(crate) fn new(name: &'static str, source: Source, timeout: Option<f64>) -> Self {
        Self {
            name,
            owner: match source {
                Source::Value(_) => "ValueWatcher",
                Source::Reader { .. } => "Subscription",
            },
            source,
            timeout,
            progress: Lock::new(Progress {
                phase: Phase::Fresh,
                timer: None,
                deadline: None,
            }),
        }
    }

    fn step(&self, py: Python<'_>) -> PyResult<Step> {
        let phase = self
            .progress
            .with(py, |progress| std::mem::replace(&mut progress.phase, Phase::Running));
        let next = match phase {
            Phase::Done => {
                self.set_phase(py, Phase::Done);
                return Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine"));
            }
            Phase::Running => {
                return Err(PyValueError::new_err("coroutine already executing"));
            }
            Phase::Fresh => self.begin(py),
            Phase::Parked(parker) => match parker.get().take_outcome(py) {
                Some(outcome) => self.resume(py, outcome),
                None => {
                    self.set_phase(py, Phase::Parked(parker));
                    return Err(PyRuntimeError::new_err("coroutine is being awaited already"));
                }
            },
        };
        match next {
            Ok(Step::Yield(parker)) => {
                self.set_phase(py, Phase::Parked(parker.clone_ref(py)));
                Ok(Step::Yield(parker))
            }
            finished => {
                self.finish(py);
                finished
            }
        }
    }

    fn begin(&self, py: Python<'_>) -> PyResult<Step> {
        match &self.source {
            Source::Value(registration) => {
                let parker = match registration.state(py) {
                    Ok(parker) => parker,
                    Err(result) => return result.map(Step::Return),
                };
                if let Some(outcome) = parker.get().take_outcome(py) {
                    return unwrap(py, outcome).map(Step::Return);
                }
                self.suspend(py, parker)?.map_or_else(
                    |outcome| unwrap(py, outcome).map(Step::Return),
                    |parker| Ok(Step::Yield(parker)),
                )
            }
            Source::Reader { subscription, .. } => {
                if let Err(error) = subscription.get().begin(py) {
                    // The read that is under way is another's: it must not be ended.
                    self.set_phase(py, Phase::Done);
                    return Err(error);
                }
                self.read(py, self.timeout == Some(0.0))
            }
        }
    }

    fn resume(&self, py: Python<'_>, outcome: Outcome) -> PyResult<Step> {
        match &self.source {
            Source::Value(_) => unwrap(py, outcome).map(Step::Return),
            Source::Reader { .. } => self.read(py, matches!(outcome, Outcome::Expired)),
        }
    }

    /// Take the next transition, or wait for one.
    fn read(&self, py: Python<'_>, mut expired: bool) -> PyResult<Step> {
        let Source::Reader {
            subscription,
            iterating,
        } = &self.source
        else {
            unreachable!("only a reader reads")
        };
        let reader = subscription.get();
        loop {
            match reader.take(py) {
                Ok(Some(transition)) => return Ok(Step::Return(transition)),
                Ok(None) => {}
                Err(error) if *iterating && error.is_instance(py, imports(py).watcher_closed.bind(py)) => {
                    return Err(PyStopAsyncIteration::new_err(()));
                }
                Err(error) => return Err(error),
            }
            if expired {
                return Err(timed_out(py));
            }
            let parker = reader.parker(py)?;
            match self.suspend(py, parker.clone_ref(py))? {
                Ok(parker) if reader.park(py, &parker) => return Ok(Step::Yield(parker)),
                // Something has come meanwhile, or time is up.
                Ok(_) => {}
                Err(outcome) => expired = matches!(outcome, Outcome::Expired),
            }
        }
    }

    /// Make the parker ready to be yielded, or say what its outcome is already.
    fn suspend(&self, py: Python<'_>, parker: Py<Parker>) -> PyResult<Result<Py<Parker>, Outcome>> {
        let (hub, event_loop) = running_hub(py)?;
        if self.timeout == Some(0.0) {
            return Ok(Err(parker.get().take_outcome(py).unwrap_or(Outcome::Expired)));
        }
        if let Some(timeout) = self.timeout {
            self.start_timer(&event_loop, timeout, &parker)?;
        }
        if parker.get().park(py, &hub) {
            return Ok(Ok(parker));
        }
        let outcome = parker.get().take_outcome(py);
        Ok(Err(outcome.expect("not parked for it has an outcome")))
    }

    fn start_timer(&self, event_loop: &Bound<'_, PyAny>, timeout: f64, parker: &Py<Parker>) -> PyResult<()> {
        let py = event_loop.py();
        self.stop_timer(py);
        // The deadline is fixed at the first await; later ones wait for what is left.
        let deadline = self.progress.with(py, |progress| progress.deadline);
        let delay = match deadline {
            None => timeout,
            Some(deadline) => (deadline - now(event_loop)?).max(0.0),
        };
        if deadline.is_none() && matches!(self.source, Source::Reader { .. }) {
            let deadline = now(event_loop)? + timeout;
            self.progress.with(py, |progress| progress.deadline = Some(deadline));
        }
        let expire = parker.bind(py).getattr(intern!(py, "expire"))?;
        let timer = event_loop.call_method1(intern!(py, "call_later"), (delay, expire))?.unbind();
        self.progress.with(py, |progress| progress.timer = Some(timer));
        Ok(())
    }

    fn stop_timer(&self, py: Python<'_>) {
        if let Some(timer) = self.progress.with(py, |progress| progress.timer.take())
            && let Err(error) = timer.call_method0(py, intern!(py, "cancel"))
        {
            error.write_unraisable(py, Some(timer.bind(py)));
        }
    }

    fn set_phase(&self, py: Python<'_>, phase: Phase) {
        drop(self.progress.with(py, |progress| std::mem::replace(&mut progress.phase, phase)));
    }

    /// The wait is over, one way or another: leave nothing behind (X6).
    fn finish(&self, py: Python<'_>) -> bool {
        let phase = self
            .progress
            .with(py, |progress| std::mem::replace(&mut progress.phase, Phase::Done));
        self.stop_timer(py);
        match (&self.source, &phase) {
            (_, Phase::Done) => {}
            (Source::Value(registration), _) => registration.cancel(py),
            (Source::Reader { .. }, Phase::Fresh) => {}
            (Source::Reader { subscription, .. }, _) => subscription.get().end(py),
        }
        matches!(phase, Phase::Fresh)
    }
}

fn now(event_loop: &Bound<'_, PyAny>) -> PyResult<f64> {
    event_loop.call_method0(intern!(event_loop.py(), "time"))?.extract()
}

/// Raise `StopIteration(value)`, which is how an iterator returns a value.
#[allow(unsafe_code)]
fn stop_iteration(value: &Bound<'_, PyAny>) {
    // SAFETY: the thread is attached; all pointers are references that live long enough.
    // The exception is made first, for `PyErr_SetObject` would unpack a tuple into its
    // arguments.
    unsafe {
        let error = ffi::PyObject_CallOneArg(ffi::PyExc_StopIteration, value.as_ptr());
        if !error.is_null() {
            ffi::PyErr_SetObject(ffi::PyExc_StopIteration, error);
            ffi::Py_DECREF(error);
        }
    }
}

#[pymethods]
impl Wait {
    fn __await__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        let fresh = slf.get().progress.with(py, |progress| match progress.phase {
            Phase::Fresh => Ok(()),
            Phase::Done => Err("cannot reuse already awaited coroutine"),
            Phase::Parked(_) | Phase::Running => Err("coroutine is being awaited already"),
        });
        fresh.map(|()| slf).map_err(PyRuntimeError::new_err)
    }

    fn __iter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        Self::__await__(slf, py)
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<*mut ffi::PyObject> {
        match self.step(py)? {
            Step::Yield(parker) => Ok(parker.into_ptr()),
            Step::Return(value) => {
                stop_iteration(value.bind(py));
                Ok(std::ptr::null_mut())
            }
        }
    }

    fn send(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Py<Parker>> {
        let fresh = self
            .progress
            .with(py, |progress| matches!(progress.phase, Phase::Fresh));
        if fresh && !value.is_none() {
            return Err(PyTypeError::new_err(
                "can't send non-None value to a just-started coroutine",
            ));
        }
        match self.step(py)? {
            Step::Yield(parker) => Ok(parker),
            Step::Return(value) => {
                stop_iteration(value.bind(py));
                Err(PyErr::fetch(py))
            }
        }
    }

    #[pyo3(signature = (error_or_type, value = None, traceback = None))]
    fn throw(
        &self,
        py: Python<'_>,
        error_or_type: Bound<'_, PyAny>,
        value: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let over = self.progress.with(py, |progress| match progress.phase {
            Phase::Done => Err(PyRuntimeError::new_err("cannot reuse already awaited coroutine")),
            Phase::Running => Err(PyValueError::new_err("coroutine already executing")),
            Phase::Fresh | Phase::Parked(_) => Ok(()),
        });
        over?;
        self.finish(py);
        let error = match value {
            Some(value) if value.is_instance(&error_or_type)? => value,
            Some(value) => error_or_type.call1((value,))?,
            None if error_or_type.is_instance_of::<pyo3::types::PyType>() => error_or_type.call0()?,
            None => error_or_type,
        };
        if let Some(traceback) = traceback {
            error.call_method1(intern!(py, "with_traceback"), (traceback,))?;
        }
        Err(PyErr::from_value(error))
    }

    fn close(&self, py: Python<'_>) {
        self.finish(py);
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.name
    }

    #[getter]
    fn __qualname__(&self) -> String {
        format!("{}.{}", self.owner, self.name)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        format!("<coroutine object {} at {:p}>", slf.get().__qualname__(), slf.as_ptr())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.source {
            Source::Value(registration) => registration.traverse(&visit)?,
            Source::Reader { subscription, .. } => visit.call(subscription)?,
        }
        self.progress
            .peek(|progress| {
                if let Phase::Parked(parker) = &progress.phase {
                    visit.call(parker)?;
                }
                visit.call(&progress.timer)
            })
            .unwrap_or(Ok(()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Attached already: Python objects are deallocated by attached threads.
        Python::attach(|py| {
            if !self.finish(py) {
                return;
            }
            // As for every coroutine. Whatever is being raised meanwhile is kept.
            let raised = PyErr::take(py);
            let message = format!("coroutine '{}' was never awaited", self.__qualname__());
            let warned = std::ffi::CString::new(message)
                .map_err(PyErr::from)
                .and_then(|message| PyErr::warn(py, &PyRuntimeWarning::type_object(py), &message, 1));
            if let Err(error) = warned {
                error.write_unraisable(py, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}

pub(crate) fn init(py: Python<'_>) -> PyResult<()> {
    let coroutine = py.import("collections.abc")?.getattr("Coroutine")?;
    coroutine.call_method1("register", PyTuple::new(py, [Wait::type_object(py)])?)?;
    Ok(())
}
