//! What the caller gets: a coroutine. What it yields to the task is in `parker`.

use pyo3::exceptions::{
    PyOverflowError, PyRuntimeError, PyRuntimeWarning, PyStopAsyncIteration, PyStopIteration,
    PyTypeError, PyValueError,
};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::{PyTraverseError, PyTypeInfo};

use crate::call::{float, warn};
use crate::hub::{Hub, current_hub, now, running_hub};
use crate::lock::Lock;
use crate::matching::Registration;
use crate::parker::{Outcome, Parker, cancelled};
use crate::python::{cannot_pickle, error_of, imports};
use crate::request::Request;
use crate::slots;
use crate::subscription::{Begun, Subscription};
use crate::timers::Deadline;

/// A timeout in seconds; infinity is no timeout.
pub(crate) fn check_timeout(timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Option<f64>> {
    let Some(timeout) = timeout else {
        return Ok(None);
    };
    let py = timeout.py();
    let seconds = match float(timeout) {
        Ok(seconds) => seconds,
        // An integer beyond all floats.
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
            if timeout.lt(0)? {
                -1.0
            } else {
                f64::INFINITY
            }
        }
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
    error_of(py, &imports(py).timeout_error)
}

/// The value of a settled wait, or its exception.
pub(crate) fn unwrap(py: Python<'_>, outcome: Outcome) -> PyResult<Py<PyAny>> {
    match outcome {
        Outcome::Matched(value) => Ok(value),
        Outcome::Failed(error) => Err(PyErr::from_value(error.into_bound(py))),
        Outcome::Expired => Err(timed_out(py)),
        // A driver that is no task may have cancelled the parker and gone on all the same.
        Outcome::Cancelled(message) => Err(cancelled(py, message)),
        Outcome::Notified => Err(PyRuntimeError::new_err(
            "a wait was woken without an outcome",
        )),
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
    Queue(Request),
}

enum Phase {
    Fresh,
    Parked(Py<Parker>),
    Running,
    Done,
}

struct Progress {
    phase: Phase,
    /// None while running, and when done.
    source: Option<Source>,
    /// When to give up, and the hub that has the timer for it.
    timer: Option<(Py<Hub>, Deadline)>,
}

/// The coroutine of a wait. Single use, like every coroutine.
#[pyclass(frozen, module = "interlock._core")]
pub(crate) struct Wait {
    /// With the class: "Queue.get".
    name: &'static str,
    timeout: Option<f64>,
    progress: Lock<Progress>,
    /// The parker of the last request that had to wait, to be used again.
    parker: Lock<Option<Py<Parker>>>,
}

/// What a step has to do: wait on this parker (or nothing, if it is settled), or read.
enum Job {
    Wait(Option<Py<Parker>>),
    Read(Py<Subscription>, bool),
    Request(Request),
}

pub(crate) enum Step {
    Return(Py<PyAny>),
    /// As `Return`, but nobody may keep it any longer (X8).
    Deliver(Py<PyAny>),
    Yield(Py<Parker>),
}

impl Wait {
    pub(crate) fn new(name: &'static str, source: Source, timeout: Option<f64>) -> Self {
        Self {
            name,
            timeout,
            progress: Lock::new(Progress {
                phase: Phase::Fresh,
                source: Some(source),
                timer: None,
            }),
            parker: Lock::new(None),
        }
    }

    /// Make a finished one as new, for the next of its kind.
    pub(crate) fn renew(&self, py: Python<'_>, source: Source) {
        self.progress.with(py, |progress| {
            progress.phase = Phase::Fresh;
            progress.source = Some(source);
        });
    }

    pub(crate) fn step(slf: &Bound<'_, Self>) -> PyResult<Step> {
        let (py, this) = (slf.py(), slf.get());
        let (job, outcome, phase) = this.start_step(py)?;
        let mut request = None;
        let next = match (job, outcome) {
            (Job::Request(begun), outcome) => this.pursue(py, request.insert(begun), outcome),
            (Job::Wait(Some(parker)), None) => this.begin_wait(py, parker),
            (Job::Wait(None), None) => this.settled(py).map(Step::Return),
            (Job::Wait(_), Some(outcome)) => unwrap(py, outcome).map(Step::Return),
            (Job::Read(subscription, iterating), None) => {
                match this.begin_read(py, &subscription, iterating) {
                    Err(Refused(error)) => {
                        // The read that is under way is another's: it must not be ended.
                        this.finish(py);
                        return Err(error);
                    }
                    Ok(next) => next,
                }
            }
            (Job::Read(subscription, iterating), Some(outcome)) => {
                let expired = matches!(outcome, Outcome::Expired);
                this.read(py, &subscription, iterating, expired)
            }
        };
        // One that waits again may do so with the same parker, in line anew.
        if let Phase::Parked(parker) = phase
            && !matches!(next, Ok(Step::Yield(_)))
        {
            parker.get().leave_line(py);
        }
        match &next {
            Ok(Step::Yield(parker)) => {
                let parked = Phase::Parked(parker.clone_ref(py));
                drop(this.progress.with(py, |progress| {
                    if let Some(request) = request {
                        progress.source = Some(Source::Queue(request));
                    }
                    std::mem::replace(&mut progress.phase, parked)
                }));
            }
            // What found something has ended in doing so.
            Ok(Step::Return(_) | Step::Deliver(_)) => this.release(slf, request, true),
            Err(_) => this.release(slf, request, false),
        }
        // It would pass for a return value (PEP 479).
        next.map_err(|error| {
            if !error.is_instance_of::<PyStopIteration>(py) {
                return error;
            }
            let converted = PyRuntimeError::new_err("coroutine raised StopIteration");
            converted.set_cause(py, Some(error));
            converted
        })
    }

    /// What the next step has to do; from here on the coroutine is running.
    fn start_step(&self, py: Python<'_>) -> PyResult<(Job, Option<Outcome>, Phase)> {
        let started = self.progress.with(py, |progress| {
            let outcome = match &progress.phase {
                Phase::Fresh => None,
                Phase::Parked(parker) => match parker.get().take_outcome(py) {
                    None => return Err((Misuse::Reused, "coroutine is being awaited already")),
                    outcome => outcome,
                },
                Phase::Running => return Err((Misuse::Reentered, "coroutine already executing")),
                Phase::Done => return Err(DONE),
            };
            let job = match &progress.source {
                Some(Source::Reader {
                    subscription,
                    iterating,
                }) => Job::Read(subscription.clone_ref(py), *iterating),
                Some(Source::Value(registration)) => Job::Wait(registration.parker(py)),
                Some(Source::Queue(_)) => match progress.source.take() {
                    Some(Source::Queue(request)) => Job::Request(request),
                    _ => return Err(DONE),
                },
                None => return Err(DONE),
            };
            let phase = std::mem::replace(&mut progress.phase, Phase::Running);
            Ok((job, outcome, phase))
        });
        started.map_err(|(misuse, text)| match misuse {
            Misuse::Reentered => PyValueError::new_err(text),
            Misuse::Reused => PyRuntimeError::new_err(text),
        })
    }

    /// The result of a wait that was over before it began.
    fn settled(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let source = self.progress.with(py, |progress| progress.source.take());
        match source {
            Some(Source::Value(registration)) => registration.into_result(py),
            _ => Ok(py.None()),
        }
    }

    /// The first step of a read. One that is refused has not begun.
    fn begin_read(
        &self,
        py: Python<'_>,
        subscription: &Py<Subscription>,
        iterating: bool,
    ) -> Result<PyResult<Step>, Refused> {
        let hub = if self.timeout.is_none() {
            current_hub(py)
        } else {
            None
        };
        Ok(match subscription.get().begin(py, hub.as_ref()) {
            Begun::Busy => return Err(Refused(Begun::busy())),
            Begun::Parked(parker) => Ok(Step::Yield(parker)),
            Begun::Otherwise => self.read(py, subscription, iterating, self.timeout == Some(0.0)),
        })
    }

    fn begin_wait(&self, py: Python<'_>, parker: Py<Parker>) -> PyResult<Step> {
        if let Some(outcome) = parker.get().take_outcome(py) {
            return unwrap(py, outcome).map(Step::Return);
        }
        match self.suspend(py, parker)? {
            Ok(parker) => Ok(Step::Yield(parker)),
            Err(outcome) => unwrap(py, outcome).map(Step::Return),
        }
    }

    /// Take the next transition, or wait for one.
    fn read(
        &self,
        py: Python<'_>,
        subscription: &Py<Subscription>,
        iterating: bool,
        mut expired: bool,
    ) -> PyResult<Step> {
        let reader = subscription.get();
        loop {
            match reader.take(py, true) {
                Ok(Some(transition)) => return Ok(Step::Return(transition)),
                Ok(None) => {}
                Err(error)
                    if iterating && error.is_instance(py, imports(py).watcher_closed.bind(py)) =>
                {
                    return Err(PyStopAsyncIteration::new_err(()));
                }
                Err(error) => return Err(error),
            }
            if expired {
                return Err(timed_out(py));
            }
            let parker = reader.parker(py)?;
            match self.suspend(py, parker)? {
                Ok(parker) if reader.park(py, &parker) => return Ok(Step::Yield(parker)),
                // Something has come meanwhile, or time is up.
                Ok(_) => {}
                Err(outcome) => expired = matches!(outcome, Outcome::Expired),
            }
        }
    }

    /// Go on with a request, until it has a result or must wait.
    fn pursue(
        &self,
        py: Python<'_>,
        request: &mut Request,
        outcome: Option<Outcome>,
    ) -> PyResult<Step> {
        let mut expired = match &outcome {
            None => self.timeout == Some(0.0),
            Some(outcome) => matches!(outcome, Outcome::Expired),
        };
        if let Some(outcome) = outcome
            && let Some(result) = request.settled(py, outcome)?
        {
            return Ok(Step::Deliver(result));
        }
        loop {
            match request.attempt(py) {
                Ok(Some(result)) => return Ok(Step::Deliver(result)),
                Ok(None) => {}
                Err(error)
                    if request.is_iterating()
                        && error.is_instance(py, imports(py).queue_shut_down.bind(py)) =>
                {
                    return Err(PyStopAsyncIteration::new_err(()));
                }
                Err(error) => return Err(error),
            }
            if expired {
                return Err(timed_out(py));
            }
            let parker = self.parker(py)?;
            match self.suspend(py, parker)? {
                Ok(parker) if request.register(py, &parker)? => return Ok(Step::Yield(parker)),
                // Something has come meanwhile, or time is up.
                Ok(_) => {}
                Err(outcome) => expired = matches!(outcome, Outcome::Expired),
            }
        }
    }

    /// A parker for a request: the last one, made as new.
    fn parker(&self, py: Python<'_>) -> PyResult<Py<Parker>> {
        // One that has had a timer might still be notified for the last wait.
        if self.timeout.is_some() {
            return Py::new(py, Parker::new());
        }
        Parker::renewed(py, &self.parker)
    }

    /// Make the parker ready to be yielded, or say what its outcome is already.
    fn suspend(&self, py: Python<'_>, parker: Py<Parker>) -> PyResult<Result<Py<Parker>, Outcome>> {
        let (hub, event_loop) = running_hub(py)?;
        if self.timeout == Some(0.0) {
            return Ok(Err(parker
                .get()
                .take_outcome(py)
                .unwrap_or(Outcome::Expired)));
        }
        if let Some(timeout) = self.timeout {
            // Fixed when it first waits; a read that waits again has what is left.
            let now = now(&event_loop)?;
            let when = match self.stop_timer(py) {
                Some(deadline) if deadline.when <= now => return Ok(Err(Outcome::Expired)),
                Some(deadline) => deadline.when,
                None => now + timeout,
            };
            let deadline = Hub::start_timer(&hub, &event_loop, when, parker.clone_ref(py))?;
            let timer = Some((hub.clone().unbind(), deadline));
            self.progress.with(py, |progress| progress.timer = timer);
        }
        if parker.get().park(py, &hub) {
            return Ok(Ok(parker));
        }
        let outcome = parker.get().take_outcome(py);
        Ok(Err(outcome.expect("not parked for it has an outcome")))
    }

    fn stop_timer(&self, py: Python<'_>) -> Option<Deadline> {
        self.timeout?;
        let (hub, deadline) = self.progress.with(py, |progress| progress.timer.take())?;
        hub.get().stop_timer(py, deadline);
        Some(deadline)
    }

    /// Done: let go of the source, and say what it was and where the wait had got to.
    fn finish(&self, py: Python<'_>) -> (Phase, Option<Source>) {
        self.progress.with(py, |progress| {
            let phase = std::mem::replace(&mut progress.phase, Phase::Done);
            (phase, progress.source.take())
        })
    }

    /// The wait has begun and is over: leave nothing behind (X6).
    fn release(&self, slf: &Bound<'_, Self>, request: Option<Request>, found: bool) {
        let py = slf.py();
        let (_, source) = self.finish(py);
        self.stop_timer(py);
        if let Some(request) = request {
            if found
                && self.timeout.is_none()
                && let Some(spare) = request.spare()
            {
                request.queue().get().keep(py, spare, slf.clone().unbind());
            }
            return;
        }
        match &source {
            Some(Source::Reader {
                subscription,
                iterating,
            }) => {
                if !found {
                    subscription.get().end(py);
                }
                if *iterating {
                    subscription.get().keep(py, slf.clone().unbind());
                }
            }
            Some(Source::Value(registration)) => registration.cancel(py),
            Some(Source::Queue(_)) | None => {}
        }
    }

    pub(crate) fn is_fresh(&self, py: Python<'_>) -> bool {
        self.progress
            .with(py, |progress| matches!(progress.phase, Phase::Fresh))
    }

    fn is_done(&self, py: Python<'_>) -> bool {
        self.progress
            .with(py, |progress| matches!(progress.phase, Phase::Done))
    }

    /// Give it up; true if it had not begun.
    fn abandon(&self, py: Python<'_>) -> PyResult<bool> {
        let (phase, source) = self.finish(py);
        self.stop_timer(py);
        match (&phase, source) {
            (_, Some(Source::Value(registration))) => registration.cancel(py),
            // What has not begun must not end another's read.
            (Phase::Fresh, _) | (_, None) => {}
            (_, Some(Source::Reader { subscription, .. })) => subscription.get().end(py),
            (Phase::Parked(parker), Some(Source::Queue(mut request))) => {
                let notified = parker.get().withdraw(py);
                request.leave(py, notified)?;
            }
            (_, Some(Source::Queue(_))) => {}
        }
        Ok(matches!(phase, Phase::Fresh))
    }
}

/// What `RuntimeError` and `ValueError` stand for in the protocol of coroutines.
enum Misuse {
    Reused,
    Reentered,
}

const DONE: (Misuse, &str) = (Misuse::Reused, "cannot reuse already awaited coroutine");

/// Why a read did not begin.
struct Refused(PyErr);

#[pymethods]
impl Wait {
    fn __await__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        let fresh = slf
            .get()
            .progress
            .with(py, |progress| match progress.phase {
                Phase::Fresh => Ok(()),
                Phase::Done => Err("cannot reuse already awaited coroutine"),
                Phase::Parked(_) | Phase::Running => Err("coroutine is being awaited already"),
            });
        fresh.map(|()| slf).map_err(PyRuntimeError::new_err)
    }

    fn __iter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        Self::__await__(slf, py)
    }

    /// Here for the slot, which `slots` then fills.
    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Py<Parker>> {
        Self::send(slf, slf.py().None().bind(slf.py()))
    }

    fn send(slf: &Bound<'_, Self>, value: &Bound<'_, PyAny>) -> PyResult<Py<Parker>> {
        let py = slf.py();
        if slf.get().is_fresh(py) && !value.is_none() {
            return Err(PyTypeError::new_err(
                "can't send non-None value to a just-started coroutine",
            ));
        }
        match Self::step(slf)? {
            Step::Yield(parker) => Ok(parker),
            Step::Return(value) | Step::Deliver(value) => Err(PyStopIteration::new_err((value,))),
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
            Phase::Done => Err(PyRuntimeError::new_err(
                "cannot reuse already awaited coroutine",
            )),
            Phase::Running => Err(PyValueError::new_err("coroutine already executing")),
            Phase::Fresh | Phase::Parked(_) => Ok(()),
        });
        over?;
        self.abandon(py)?;
        let error = match value {
            Some(value) if value.is_instance(&error_or_type)? => value,
            Some(value) => error_or_type.call1((value,))?,
            None if error_or_type.is_instance_of::<PyType>() => error_or_type.call0()?,
            None => error_or_type,
        };
        if let Some(traceback) = traceback {
            error.call_method1(intern!(py, "with_traceback"), (traceback,))?;
        }
        Err(PyErr::from_value(error))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let running = self
            .progress
            .with(py, |progress| matches!(progress.phase, Phase::Running));
        if running {
            return Err(PyValueError::new_err("coroutine already executing"));
        }
        self.abandon(py).map(drop)
    }

    #[getter]
    fn __name__(&self) -> &'static str {
        self.name.rsplit('.').next().unwrap_or(self.name)
    }

    #[getter]
    fn __qualname__(&self) -> &'static str {
        self.name
    }

    fn __repr__(slf: &Bound<'_, Self>) -> String {
        format!(
            "<coroutine object {} at {:p}>",
            slf.get().name,
            slf.as_ptr()
        )
    }

    #[allow(clippy::unused_self)]
    fn __reduce__(&self) -> PyResult<()> {
        Err(cannot_pickle("coroutine"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.parker
            .peek(|parker| visit.call(&*parker))
            .unwrap_or(Ok(()))?;
        self.progress
            .peek(|progress| {
                match &progress.source {
                    Some(Source::Value(registration)) => registration.traverse(&visit)?,
                    Some(Source::Reader { subscription, .. }) => visit.call(subscription)?,
                    Some(Source::Queue(request)) => request.traverse(&visit)?,
                    None => {}
                }
                if let Phase::Parked(parker) = &progress.phase {
                    visit.call(parker)?;
                }
                if let Some((hub, _)) = &progress.timer {
                    visit.call(hub)?;
                }
                Ok(())
            })
            .unwrap_or(Ok(()))
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // Attached already: Python objects are deallocated by attached threads.
        Python::attach(|py| {
            if self.is_done(py) {
                return;
            }
            // Whatever is being raised meanwhile is kept.
            let raised = PyErr::take(py);
            let warned = self.abandon(py).and_then(|fresh| {
                if !fresh {
                    return Ok(());
                }
                // As for every coroutine.
                let message = format!("coroutine '{}' was never awaited", self.name);
                let message = std::ffi::CString::new(message)?;
                warn(&PyRuntimeWarning::type_object(py), &message)
            });
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
    let class = Wait::type_object(py);
    slots::install(&class);
    let coroutine = py.import("collections.abc")?.getattr("Coroutine")?;
    coroutine.call_method1("register", (class,))?;
    Ok(())
}
