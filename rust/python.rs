//! The few things of CPython, asyncio and this package's Python side that the core
//! uses, looked up once.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::{PyImportError, PyKeyboardInterrupt, PySystemExit, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyInt, PyTuple, PyType};

use crate::call;

pub(crate) struct Imports {
    pub(crate) get_running_loop: Py<PyAny>,
    #[cfg(Py_3_12)]
    current_task: Py<PyAny>,
    #[cfg(not(Py_3_12))]
    current_tasks: Py<PyDict>,
    pub(crate) future: Py<PyType>,
    pub(crate) cancelled_error: Py<PyType>,
    pub(crate) timeout_error: Py<PyType>,
    pub(crate) invalid_state_error: Py<PyType>,
    pub(crate) queue_empty: Py<PyType>,
    pub(crate) queue_full: Py<PyType>,
    pub(crate) queue_shut_down: Py<PyType>,
    pub(crate) expired: Py<PyType>,
    pub(crate) watcher_closed: Py<PyType>,
    pub(crate) lagged: Py<PyType>,
    pub(crate) transition: Py<PyType>,
    pub(crate) equal: Py<PyAny>,
    pub(crate) allocate_lock: Py<PyAny>,
    pub(crate) reentrant_lock: Py<PyAny>,
    /// The longest time, in seconds, that a lock can be waited for.
    pub(crate) longest: f64,
    pub(crate) copy_context: Py<PyAny>,
    pub(crate) weak_reference: Py<PyAny>,
    pub(crate) context_keyword: Py<PyTuple>,
}

static IMPORTS: PyOnceLock<Imports> = PyOnceLock::new();

/// Forks so far, counted in the child. What was made in an older generation belongs to
/// the parent: its loops, and whatever its other threads had under way (X12).
static GENERATION: AtomicU64 = AtomicU64::new(0);

pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

#[pyfunction]
fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn imports(py: Python<'_>) -> &Imports {
    IMPORTS
        .get(py)
        .expect("set when the module was initialised")
}

pub(crate) fn init(py: Python<'_>) -> PyResult<()> {
    fn class(module: &Bound<'_, PyModule>, name: &str) -> PyResult<Py<PyType>> {
        Ok(module.getattr(name)?.cast_into::<PyType>()?.unbind())
    }
    let asyncio = py.import("asyncio")?;
    let errors = py.import("interlock.errors")?;
    let imports = Imports {
        get_running_loop: py
            .import("asyncio.events")?
            .getattr("_get_running_loop")?
            .unbind(),
        #[cfg(Py_3_12)]
        current_task: asyncio.getattr("current_task")?.unbind(),
        #[cfg(not(Py_3_12))]
        current_tasks: py
            .import("asyncio.tasks")?
            .getattr("_current_tasks")?
            .cast_into::<PyDict>()?
            .unbind(),
        future: class(&asyncio, "Future")?,
        cancelled_error: class(&asyncio, "CancelledError")?,
        timeout_error: class(&asyncio, "TimeoutError")?,
        invalid_state_error: class(&asyncio, "InvalidStateError")?,
        queue_empty: class(&asyncio, "QueueEmpty")?,
        queue_full: class(&asyncio, "QueueFull")?,
        queue_shut_down: class(&errors, "QueueShutDown")?,
        expired: class(&errors, "Expired")?,
        watcher_closed: class(&errors, "WatcherClosed")?,
        lagged: class(&errors, "Lagged")?,
        transition: class(&py.import("interlock.transition")?, "Transition")?,
        equal: py.import("interlock.equality")?.getattr("equal")?.unbind(),
        longest: py.import("_thread")?.getattr("TIMEOUT_MAX")?.extract()?,
        allocate_lock: py.import("_thread")?.getattr("allocate_lock")?.unbind(),
        reentrant_lock: py.import("_thread")?.getattr("RLock")?.unbind(),
        copy_context: py.import("contextvars")?.getattr("copy_context")?.unbind(),
        weak_reference: py.import("weakref")?.getattr("ref")?.unbind(),
        context_keyword: PyTuple::new(py, ["context"])?.unbind(),
    };
    if IMPORTS.set(py, imports).is_ok() {
        let os = py.import("os")?;
        if os.hasattr("register_at_fork")? {
            let arguments = PyDict::new(py);
            arguments.set_item("after_in_child", wrap_pyfunction!(forked, py)?)?;
            os.call_method("register_at_fork", (), Some(&arguments))?;
        }
    }
    Ok(())
}

/// PyO3 attaches threads to the main interpreter, so in another one they would wait for ever.
#[allow(unsafe_code)]
pub(crate) fn refuse_subinterpreters(_attached: Python<'_>) -> PyResult<()> {
    // SAFETY: the thread is attached; the pointers are only compared.
    if unsafe { ffi::PyInterpreterState_Get() != ffi::PyInterpreterState_Main() } {
        return Err(PyImportError::new_err(
            "interlock._core works in the main interpreter only, not in a subinterpreter; set INTERLOCK_BACKEND=pure there",
        ));
    }
    Ok(())
}

/// The loop that runs in this thread.
pub(crate) fn running_loop(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let running = imports(py).get_running_loop.bind(py).call0()?;
    Ok((!running.is_none()).then_some(running))
}

/// Whether a task of `event_loop` is running in this thread. Without one, the code that
/// asks may be a signal handler that has interrupted the loop's sleep.
pub(crate) fn in_task_of(event_loop: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = event_loop.py();
    if !running_loop(py)?.is_some_and(|running| running.is(event_loop)) {
        return Ok(false);
    }
    #[cfg(Py_3_12)]
    let task = Some(imports(py).current_task.bind(py).call1((event_loop,))?);
    #[cfg(not(Py_3_12))]
    let task = imports(py).current_tasks.bind(py).get_item(event_loop)?;
    Ok(task.is_some_and(|task| !task.is_none()))
}

/// Whether an error means that the program is to stop, and so is nobody's own failure.
pub(crate) fn is_interrupt(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyKeyboardInterrupt>(py) || error.is_instance_of::<PySystemExit>(py)
}

/// An exception of this class, without arguments.
pub(crate) fn error_of(py: Python<'_>, class: &Py<PyType>) -> PyErr {
    let made = class.bind(py).call0();
    made.map_or_else(|error| error, PyErr::from_value)
}

/// A pending call that raises an exception.
#[allow(unsafe_code)]
extern "C" fn raise(error: *mut c_void) -> c_int {
    // SAFETY: pending calls are made by an attached thread. The reference was given up
    // for this call, which is made once.
    unsafe {
        let py = Python::assume_attached();
        let error = Bound::from_owned_ptr(py, error.cast());
        ffi::PyErr_SetObject(error.get_type().as_ptr(), error.as_ptr());
    }
    -1
}

/// Raise an interrupt that an operation which is done cannot raise any more: in the main
/// thread, where signal handlers run, as soon as that runs Python code again, as if it had
/// come a moment later.
#[allow(unsafe_code)]
pub(crate) fn raise_later(py: Python<'_>, error: PyErr) {
    let error = error.into_value(py).into_ptr();
    // SAFETY: the function takes the reference over, if it is going to be called.
    unsafe {
        if ffi::Py_AddPendingCall(Some(raise), error.cast()) != 0 {
            let error = Bound::from_owned_ptr(py, error);
            PyErr::from_value(error).write_unraisable(py, None);
        }
    }
}

/// The truth of what a comparison returned; one that fails counts as false (W5).
pub(crate) fn truth_or_false(py: Python<'_>, answer: PyResult<bool>) -> PyResult<bool> {
    match answer {
        Err(error) if !is_interrupt(py, &error) => Ok(false),
        answer => answer,
    }
}

/// Identity first, then `==`; in doubt, different. The twin of `interlock.equality.equal`.
pub(crate) fn equal(old: &Bound<'_, PyAny>, new: &Bound<'_, PyAny>) -> PyResult<bool> {
    if old.is(new) {
        return Ok(true);
    }
    truth_or_false(old.py(), call::equals(old, new))
}

/// The hash of a value, or None if it has none.
pub(crate) fn hash(value: &Bound<'_, PyAny>) -> PyResult<Option<isize>> {
    match call::hash(value) {
        Ok(hash) => Ok(Some(hash)),
        Err(error) if !is_interrupt(value.py(), &error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `Transition(old, new)`, without the detour over its `__new__`.
#[allow(unsafe_code)]
pub(crate) fn transition<'py>(
    py: Python<'py>,
    old: Bound<'py, PyAny>,
    new: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let class = imports(py).transition.as_ptr().cast::<ffi::PyTypeObject>();
    // SAFETY: `Transition` is a subclass of tuple with empty `__slots__`, so an instance of
    // size 2 is a tuple of two; both items are set, with references of our own, before
    // anybody else can see it.
    unsafe {
        let pair = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 2))?;
        ffi::PyTuple_SET_ITEM(pair.as_ptr(), 0, old.into_ptr());
        ffi::PyTuple_SET_ITEM(pair.as_ptr(), 1, new.into_ptr());
        // A tuple keeps its hash; this is how it says that it has not been asked for yet.
        #[cfg(Py_3_14)]
        {
            (*pair.as_ptr().cast::<ffi::PyTupleObject>()).ob_hash = -1;
        }
        Ok(pair)
    }
}

/// The value of an exact int, if it fits. Nothing is allocated, not even an exception.
#[allow(unsafe_code)]
pub(crate) fn small_int(value: &Bound<'_, PyAny>) -> Option<i64> {
    if !value.is_exact_instance_of::<PyInt>() {
        return None;
    }
    let mut overflow = 0;
    // SAFETY: the thread is attached, and the value is an int.
    let number = unsafe { ffi::PyLong_AsLongLongAndOverflow(value.as_ptr(), &raw mut overflow) };
    (overflow == 0).then_some(number)
}

/// Whether ours is the only reference to this object.
#[allow(unsafe_code)]
pub(crate) fn is_unshared<T>(object: &Py<T>) -> bool {
    // SAFETY: the caller is attached and holds a reference; nothing is changed.
    unsafe {
        #[cfg(Py_3_14)]
        return ffi::PyUnstable_Object_IsUniquelyReferenced(object.as_ptr()) == 1;
        #[cfg(not(Py_3_14))]
        return ffi::Py_REFCNT(object.as_ptr()) == 1;
    }
}

/// Run `body` in a `contextvars.Context`.
#[allow(unsafe_code)]
pub(crate) fn in_context<R>(
    context: &Bound<'_, PyAny>,
    body: impl FnOnce() -> PyResult<R>,
) -> PyResult<R> {
    struct Leave<'a, 'py>(&'a Bound<'py, PyAny>);

    impl Drop for Leave<'_, '_> {
        fn drop(&mut self) {
            // SAFETY: this thread is attached and has entered the context. The call fails
            // only if it had not.
            unsafe { ffi::PyContext_Exit(self.0.as_ptr()) };
        }
    }

    // SAFETY: this thread is attached; the call checks that it is given a context.
    if unsafe { ffi::PyContext_Enter(context.as_ptr()) } < 0 {
        return Err(PyErr::fetch(context.py()));
    }
    let leave = Leave(context);
    let result = body();
    drop(leave);
    result
}

/// A copy of a `contextvars.Context`.
#[allow(unsafe_code)]
pub(crate) fn copy_of<'py>(context: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: this thread is attached; the call checks that it is given a context.
    unsafe { Bound::from_owned_ptr_or_err(context.py(), ffi::PyContext_Copy(context.as_ptr())) }
}

/// For `__reduce__`: without it, the oldest protocols of pickle would make a copy.
pub(crate) fn cannot_pickle(class: &str) -> PyErr {
    PyTypeError::new_err(format!("cannot pickle '{class}' object"))
}
