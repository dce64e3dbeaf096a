//! One hub per event loop: the list of who is ready, and the single handle that wakes
//! them (X3).

use std::cell::RefCell;
use std::collections::VecDeque;

use pyo3::PyTraverseError;
use pyo3::exceptions::{PyAttributeError, PyRecursionError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::call::{call, call_method, truth};
use crate::lock::Lock;
use crate::parker::{Outcome, Parker};
use crate::python::{
    cannot_pickle, generation, imports, in_context, in_task_of, is_interrupt, running_loop,
};
use crate::ready::ReadyList;
use crate::stop::{self, Stop};
use crate::timers::{Deadline, Timers};
use crate::watcher::Interrupt;

/// What came of a push.
pub(crate) enum Pushed {
    Scheduled,
    /// A handle had been scheduled before, by which time the loop was open.
    OnTop,
    /// The loop is closed or gone; these were ready there, and are so no more.
    ToNobody(VecDeque<Py<Parker>>),
}

/// The parkers that are ready in one loop.
///
/// The loop holds its hub, as an attribute, and the hub its loop only weakly: so it
/// keeps no loop alive, and what waits on a loop that is gone goes with it.
#[pyclass(frozen, module = "interlock._core")]
pub(crate) struct Hub {
    event_loop: Py<PyAny>,
    /// A future that is done: what a task is told it has waited for. It would ask a parker
    /// for its result by name; for an `asyncio.Future` it has a short way.
    done: Py<PyAny>,
    // Empty, so that a setter's context leaks to nobody (X13).
    context: Py<PyAny>,
    generation: u64,
    ready: Lock<ReadyList<Py<Parker>>>,
    timers: Lock<Timers<Py<Parker>>>,
    /// The loop's one timer for them.
    timer: Lock<Option<Py<PyAny>>>,
    stop: Stop,
    /// The loop, held while a round is under way.
    running: Lock<Option<Py<PyAny>>>,
    /// To be used again.
    ticket: Lock<Option<Py<Ticket>>>,
}

/// What the loop is given to call, once: the next round.
///
/// A loop that is closed drops what it was to call. So if this goes without having been
/// called, those who are ready there will never have their turn.
#[pyclass(frozen, module = "interlock._core")]
struct Ticket {
    hub: Lock<Option<Py<Hub>>>,
}

#[pymethods]
impl Ticket {
    fn __call__(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let Some(hub) = slf.get().take(py) else {
            return Ok(());
        };
        hub.get().keep(slf);
        Hub::run(hub.bind(py))
    }

    #[allow(clippy::unused_self)]
    fn __reduce__(&self) -> PyResult<()> {
        Err(cannot_pickle("Ticket"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.hub.peek(|hub| visit.call(&*hub)).unwrap_or(Ok(()))
    }
}

impl Ticket {
    fn take(&self, py: Python<'_>) -> Option<Py<Hub>> {
        self.hub.with(py, Option::take)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Attached already: Python objects are deallocated by attached threads.
        Python::attach(|py| {
            let Some(hub) = self.take(py) else {
                return;
            };
            // Whatever is being raised meanwhile is kept.
            let raised = PyErr::take(py);
            if let Some(abandoned) = Hub::abandon_if_closed(hub.bind(py)) {
                give_up(py, abandoned, None);
            }
            if let Some(raised) = raised {
                raised.restore(py);
            }
        });
    }
}

/// These were ready, and will never have their turn: what they were notified of is for others.
/// `but` is the caller's business.
pub(crate) fn give_up(
    py: Python<'_>,
    parkers: impl IntoIterator<Item = Py<Parker>>,
    but: Option<&Py<Parker>>,
) {
    for parker in parkers {
        if !but.is_some_and(|but| but.is(&parker)) {
            parker.get().give_up(py);
        }
    }
}

thread_local! {
    /// The hub whose round is under way in this thread, so that its loop is running here.
    static CURRENT: RefCell<Option<Py<Hub>>> = const { RefCell::new(None) };
}

/// The hub whose round is under way in this thread.
pub(crate) fn current_hub(py: Python<'_>) -> Option<Bound<'_, Hub>> {
    // One of an older generation was left by a fork from within its round.
    CURRENT.with_borrow(|current| {
        let hub = current.as_ref()?;
        (hub.get().generation == generation()).then(|| hub.bind(py).clone())
    })
}

/// Whether a round is under way in this thread.
pub(crate) fn in_round() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Leave `StopIteration(value)` raised, by which an iterator returns a value.
pub(crate) fn raise_stop(py: Python<'_>, value: Py<PyAny>) {
    match current_hub(py) {
        Some(hub) => hub.get().stop.raise(py, value),
        None => stop::raise(py, value),
    }
}

/// The hub of the loop that runs in this thread, and the loop.
pub(crate) fn running_hub(py: Python<'_>) -> PyResult<(Bound<'_, Hub>, Bound<'_, PyAny>)> {
    let Some(event_loop) = running_loop(py)? else {
        return Err(PyRuntimeError::new_err("no running event loop"));
    };
    // Unless a task that the round has stepped runs another loop inside it.
    if let Some(hub) = current_hub(py)
        && let Some(current) = hub.get().event_loop(py)?
        && current.is(&event_loop)
    {
        return Ok((hub, event_loop));
    }
    let name = intern!(py, "_interlock_hub");
    if let Some(found) = event_loop.getattr_opt(name)?
        && let Ok(hub) = found.cast_into::<Hub>()
        && hub.get().generation == generation()
    {
        return Ok((hub, event_loop));
    }
    let hub = Bound::new(py, Hub::new(&event_loop)?)?;
    match event_loop.setattr(name, &hub) {
        // A loop that takes no attributes gets a hub each time: still right, only slower.
        Err(error)
            if error.is_instance_of::<PyAttributeError>(py)
                || error.is_instance_of::<PyTypeError>(py) => {}
        outcome => outcome?,
    }
    Ok((hub, event_loop))
}

impl Hub {
    fn new(event_loop: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = event_loop.py();
        Ok(Self {
            event_loop: imports(py)
                .weak_reference
                .bind(py)
                .call1((event_loop,))?
                .unbind(),
            done: done_future(py)?,
            context: new_context(py)?.unbind(),
            generation: generation(),
            ready: Lock::new(ReadyList::new()),
            timers: Lock::new(Timers::new()),
            timer: Lock::new(None),
            stop: Stop::new(),
            running: Lock::new(None),
            ticket: Lock::new(None),
        })
    }

    /// The loop, if it still lives.
    pub(crate) fn event_loop<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let running = self.running.with(py, |running| {
            running
                .as_ref()
                .map(|event_loop| event_loop.bind(py).clone())
        });
        if running.is_some() {
            return Ok(running);
        }
        let event_loop = self.event_loop.bind(py).call0()?;
        Ok((!event_loop.is_none()).then_some(event_loop))
    }

    /// Wake these, from any thread, in the loop's next round.
    ///
    /// A loop that is closed or gone has nobody to wake, and that is no error of the
    /// caller's (X4).
    pub(crate) fn push(
        slf: &Bound<'_, Self>,
        parkers: impl IntoIterator<Item = Py<Parker>>,
    ) -> PyResult<Pushed> {
        let (py, hub) = (slf.py(), slf.get());
        if hub.generation != generation() {
            return Ok(Pushed::ToNobody(VecDeque::new()));
        }
        if !hub.ready.with(py, |ready| ready.push(parkers)) {
            return Ok(Pushed::OnTop);
        }
        let Err(error) = Self::schedule(slf) else {
            return Ok(Pushed::Scheduled);
        };
        // The loop is asked only now that the call has failed.
        if let Some(abandoned) = Self::abandon_if_closed(slf) {
            return Ok(Pushed::ToNobody(abandoned));
        }
        // An interrupt, say, that came in the middle: whether the handle got there is
        // unknown, and one too many does no harm. Nobody is forgotten: if there is none, the
        // next push schedules one.
        let again = if error.is_instance_of::<PyRecursionError>(py) {
            with_room(py, || Self::schedule(slf))
        } else {
            Self::schedule(slf)
        };
        if again.is_err() {
            hub.ready.with(py, ReadyList::postpone);
        }
        if is_interrupt(py, &error) {
            return Err(error);
        }
        Self::report(slf, "interlock had trouble to wake its tasks", error)?;
        Ok(Pushed::Scheduled)
    }

    /// As `push`, for those whose outcome is nobody else's.
    pub(crate) fn push_all(
        slf: &Bound<'_, Self>,
        parkers: impl IntoIterator<Item = Py<Parker>>,
    ) -> PyResult<()> {
        if let Pushed::ToNobody(abandoned) = Self::push(slf, parkers)? {
            give_up(slf.py(), abandoned, None);
        }
        Ok(())
    }

    /// Whoever is ready on a loop that is closed or gone, and now is so no more.
    pub(crate) fn abandon_if_closed(slf: &Bound<'_, Self>) -> Option<VecDeque<Py<Parker>>> {
        let (py, hub) = (slf.py(), slf.get());
        let closed = match hub.event_loop(py) {
            Ok(Some(event_loop)) => is_closed(&event_loop),
            Ok(None) => true,
            Err(_) => false,
        };
        closed.then(|| hub.ready.with(py, ReadyList::abandon))
    }

    fn schedule(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, hub) = (slf.py(), slf.get());
        let Some(event_loop) = hub.event_loop(py)? else {
            return Err(PyRuntimeError::new_err("the event loop is gone"));
        };
        // A task of the loop is running here, so the loop looks at its ready list before it
        // sleeps. Without one this may be a signal handler that has interrupted the loop's
        // sleep: only the thread-safe call ends that.
        let in_round = current_hub(py).is_some_and(|current| current.is(slf));
        let here = in_round || in_task_of(&event_loop)?;
        let name = if here {
            intern!(py, "call_soon")
        } else {
            intern!(py, "call_soon_threadsafe")
        };
        // The hub's own is entered while a round is under way, and this handle may run within.
        let context = if in_round {
            new_context(py)?
        } else {
            hub.context.bind(py).clone()
        };
        let keyword = imports(py).context_keyword.bind(py);
        let ticket = hub.issue(slf)?;
        let called = call_method(
            &event_loop,
            name,
            [ticket.as_any(), &context],
            Some(keyword),
        );
        let scheduled = match called {
            // It may have been closed in the middle of the call, and then it has the handle all
            // the same.
            Ok(_) if !here && is_closed(&event_loop) => {
                Err(PyRuntimeError::new_err("the event loop is closed"))
            }
            called => called.map(drop),
        };
        if scheduled.is_err() {
            drop(ticket.get().take(py));
        }
        scheduled
    }

    fn issue<'py>(&self, slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Ticket>> {
        let py = slf.py();
        let hub = slf.clone().unbind();
        match self.ticket.with(py, Option::take) {
            Some(ticket) => {
                drop(ticket.get().hub.with(py, |slot| slot.replace(hub)));
                Ok(ticket.into_bound(py))
            }
            None => Bound::new(
                py,
                Ticket {
                    hub: Lock::new(Some(hub)),
                },
            ),
        }
    }

    fn keep(&self, ticket: &Bound<'_, Ticket>) {
        let kept = ticket.clone().unbind();
        drop(self.ticket.with(ticket.py(), |slot| slot.replace(kept)));
    }

    /// Let the wait expire at a time of the loop's clock.
    pub(crate) fn start_timer(
        slf: &Bound<'_, Self>,
        event_loop: &Bound<'_, PyAny>,
        when: f64,
        parker: Py<Parker>,
    ) -> PyResult<Deadline> {
        let py = slf.py();
        let timers = &slf.get().timers;
        let (deadline, arm) = timers.with(py, |timers| timers.insert(when, parker));
        if arm && let Err(error) = Self::arm(slf, event_loop, when) {
            slf.get().stop_timer(py, deadline);
            return Err(error);
        }
        Ok(deadline)
    }

    pub(crate) fn stop_timer(&self, py: Python<'_>, deadline: Deadline) {
        drop(self.timers.with(py, |timers| timers.remove(deadline)));
    }

    /// Let the loop call `expire` at this time, and no more at a later one.
    fn arm(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>, when: f64) -> PyResult<()> {
        let (py, hub) = (slf.py(), slf.get());
        let expire = slf.getattr(intern!(py, "expire"))?;
        let when = when.into_pyobject(py)?.into_any();
        let context = hub.context.bind(py);
        let keyword = imports(py).context_keyword.bind(py);
        let arguments = [&when, &expire, context];
        let name = intern!(py, "call_at");
        let timer = call_method(event_loop, name, arguments, Some(keyword)).inspect_err(|_| {
            hub.timers.with(py, Timers::disarm);
        })?;
        let later = hub.timer.with(py, |slot| slot.replace(timer.unbind()));
        match later {
            Some(later) => call_method(later.bind(py), intern!(py, "cancel"), [], None).map(drop),
            None => Ok(()),
        }
    }

    fn wake(&self, parker: &Bound<'_, Parker>) -> PyResult<()> {
        let py = parker.py();
        let Some(wakeup) = parker.get().take_wakeup(py) else {
            return Ok(());
        };
        let awaited = if wakeup.cancelled {
            parker.as_any()
        } else {
            self.done.bind(py)
        };
        let function = wakeup.function.bind(py);
        match &wakeup.context {
            Some(context) => in_context(context.bind(py), || call(function, [awaited])),
            None => call(function, [awaited]),
        }
        .map(drop)
    }
}

/// Stands in for a loop where a future only has to exist.
#[pyclass(frozen, module = "interlock._core")]
struct NoLoop;

#[pymethods]
impl NoLoop {
    #[allow(clippy::unused_self)]
    fn get_debug(&self) -> bool {
        false
    }
}

/// A future that is done, with no loop to keep alive.
fn done_future(py: Python<'_>) -> PyResult<Py<PyAny>> {
    let arguments = PyDict::new(py);
    arguments.set_item("loop", Py::new(py, NoLoop)?)?;
    let future = imports(py).future.bind(py).call((), Some(&arguments))?;
    future.call_method1("set_result", (py.None(),))?;
    Ok(future.unbind())
}

#[pymethods]
impl Hub {
    /// Called by the loop's timer.
    fn expire(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, hub) = (slf.py(), slf.get());
        drop(hub.timer.with(py, Option::take));
        let Some(event_loop) = hub.event_loop(py)? else {
            return Ok(());
        };
        // Whatever interrupts this, nobody's time may be forgotten.
        let mut interrupt = Interrupt(None);
        let now = now(&event_loop).unwrap_or_else(|error| {
            interrupt.keep(Err(error));
            0.0
        });
        let (due, next) = hub.timers.with(py, |timers| timers.fired(now));
        let mut wakes = Wakes::default();
        for parker in due {
            interrupt.keep(Parker::settle(&parker, py, Outcome::Expired, &mut wakes).map(drop));
        }
        interrupt.keep(wakes.flush(py));
        if let Some(next) = next
            && let Err(error) = Self::arm(slf, &event_loop, next)
        {
            interrupt.keep(Err(error));
            interrupt.keep(Self::arm(slf, &event_loop, next));
        }
        interrupt.0.map_or(Ok(()), Err)
    }

    #[allow(clippy::unused_self)]
    fn __reduce__(&self) -> PyResult<()> {
        Err(cannot_pickle("Hub"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.timers
            .peek(|timers| timers.items().try_for_each(|parker| visit.call(parker)))
            .unwrap_or(Ok(()))?;
        self.timer
            .peek(|timer| visit.call(&*timer))
            .unwrap_or(Ok(()))?;
        visit.call(&self.event_loop)?;
        visit.call(&self.done)?;
        visit.call(&self.context)?;
        self.stop.traverse(&visit)?;
        self.running
            .peek(|running| visit.call(&*running))
            .unwrap_or(Ok(()))?;
        self.ready
            .peek(|ready| ready.items().try_for_each(|parker| visit.call(parker)))
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop(self.ready.with(py, ReadyList::abandon));
        drop(self.timers.with(py, Timers::clear));
        drop(self.timer.with(py, Option::take));
    }
}

/// Run something for which the stack of Python's calls was too deep: a put that is done must
/// still wake whom it is for.
fn with_room<R>(py: Python<'_>, body: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    const ROOM: i64 = 200;
    let sys = py.import("sys")?;
    let limit: i64 = sys.call_method0("getrecursionlimit")?.extract()?;
    sys.call_method1("setrecursionlimit", (limit + ROOM,))?;
    let result = body();
    sys.call_method1("setrecursionlimit", (limit,))?;
    result
}

fn is_closed(event_loop: &Bound<'_, PyAny>) -> bool {
    call_method(event_loop, intern!(event_loop.py(), "is_closed"), [], None)
        .is_ok_and(|closed| truth(&closed).unwrap_or(false))
}

/// The time by the loop's clock.
pub(crate) fn now(event_loop: &Bound<'_, PyAny>) -> PyResult<f64> {
    let name = intern!(event_loop.py(), "time");
    call_method(event_loop, name, [], None)?.extract()
}

impl Hub {
    /// Wake everybody who was ready when the round began.
    ///
    /// No task is running inside a handle, so stepping tasks from here is what the loop
    /// itself does.
    fn run(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (py, hub) = (slf.py(), slf.get());
        let Some(event_loop) = hub.event_loop(py)? else {
            return Ok(());
        };
        let outer_loop = hub
            .running
            .with(py, |running| running.replace(event_loop.clone().unbind()));
        let outer = CURRENT.replace(Some(slf.clone().unbind()));
        let outcome = Self::round(slf, &event_loop);
        hub.stop.forget(py);
        drop(CURRENT.replace(outer));
        drop(
            hub.running
                .with(py, |running| std::mem::replace(running, outer_loop)),
        );
        outcome
    }

    fn round(slf: &Bound<'_, Self>, event_loop: &Bound<'_, PyAny>) -> PyResult<()> {
        let (py, hub) = (slf.py(), slf.get());
        let count = hub.ready.with(py, ReadyList::begin_round);
        // A loop that may be run again inside one of its own tasks must find a handle then,
        // for those whose turn has not come.
        if count > 1 && event_loop.hasattr(intern!(py, "_nest_patched"))? {
            Self::push_all(slf, [])?;
        }
        for done in 1..=count {
            let Some(parker) = hub.ready.with(py, ReadyList::pop) else {
                break;
            };
            let woken = hub.wake(parker.bind(py)).or_else(|error| {
                if is_interrupt(py, &error) {
                    return Err(error);
                }
                Self::report(slf, "interlock could not resume what was waiting", error)
            });
            if let Err(interrupt) = woken {
                // The rest is still to be woken, should the loop run again.
                if done < count {
                    Self::push_all(slf, [])?;
                }
                return Err(interrupt);
            }
        }
        Ok(())
    }

    /// Tell the loop of an error that nobody else is told of. (A task reports its own.)
    fn report(slf: &Bound<'_, Self>, message: &str, error: PyErr) -> PyResult<()> {
        let py = slf.py();
        if let Some(event_loop) = slf.get().event_loop(py)? {
            let details = PyDict::new(py);
            details.set_item("message", message)?;
            details.set_item("exception", error.into_value(py))?;
            let name = intern!(py, "call_exception_handler");
            call_method(&event_loop, name, [&details], None)?;
        }
        Ok(())
    }
}

#[allow(unsafe_code)]
fn new_context(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: this thread is attached; the call returns a new reference or an error.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyContext_New()) }
}

/// Wakes many with one call per hub.
#[derive(Default)]
pub(crate) struct Wakes {
    hub: Option<Py<Hub>>,
    parkers: Vec<Py<Parker>>,
}

impl Wakes {
    pub(crate) fn add(&mut self, py: Python<'_>, hub: Py<Hub>, parker: Py<Parker>) -> PyResult<()> {
        let mut flushed = Ok(());
        if self.hub.as_ref().is_none_or(|current| !current.is(&hub)) {
            flushed = self.flush(py);
            self.hub = Some(hub);
        }
        // Whatever interrupted the flush, this one is settled and has to be woken.
        self.parkers.push(parker);
        flushed
    }

    pub(crate) fn flush(&mut self, py: Python<'_>) -> PyResult<()> {
        match self.hub.take() {
            Some(hub) => Hub::push_all(hub.bind(py), self.parkers.drain(..)),
            None => Ok(()),
        }
    }
}
