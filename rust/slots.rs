//! The slots by which the interpreter and tasks drive a wait.
//!
//! They are called twice for every transition that a task reads, so they do without what
//! PyO3 puts around each call to tell itself that the thread is attached: within a round
//! of a hub it knows that already.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::hub::{in_round, raise_stop};
use crate::stop;
use crate::waiter::{Step, Wait};

/// Step a wait. None if an exception is raised.
#[allow(unsafe_code)]
unsafe fn step<R>(
    slf: *mut ffi::PyObject,
    finish: impl FnOnce(Python<'_>, Step) -> R,
) -> Option<R> {
    let stepped = catch_unwind(AssertUnwindSafe(|| {
        let run = |py: Python<'_>| {
            // SAFETY: a slot is called with an instance of the type it belongs to.
            let wait = unsafe { Borrowed::from_ptr(py, slf).cast_unchecked::<Wait>() };
            match Wait::step(&wait) {
                Ok(step) => Some(finish(py, step)),
                Err(error) => {
                    error.restore(py);
                    None
                }
            }
        };
        attached(run)
    }));
    // No panic may cross into C.
    stepped.unwrap_or_else(|_| {
        panicked("a wait");
        None
    })
}

/// Run something as the attached thread that it is called by.
#[allow(unsafe_code)]
pub(crate) fn attached<R>(body: impl for<'py> FnOnce(Python<'py>) -> R) -> R {
    // SAFETY: slots and methods are called by attached threads. PyO3 knows that within a
    // round, for the hub's own call has told it. While the interpreter shuts down, and
    // finalisers call methods, it does not want to be told; it then leaks what is dropped.
    if in_round() || unsafe { ffi::Py_IsInitialized() } == 0 {
        body(unsafe { Python::assume_attached() })
    } else {
        Python::attach(body)
    }
}

/// Leave an error raised that says that something has panicked. None is known to.
#[allow(unsafe_code)]
pub(crate) fn panicked(what: &str) -> *mut ffi::PyObject {
    // SAFETY: slots and methods are called by attached threads.
    let py = unsafe { Python::assume_attached() };
    let text = format!("interlock has a defect: {what} panicked; please report it");
    PyRuntimeError::new_err(text).restore(py);
    std::ptr::null_mut()
}

/// `tp_iternext`: `__next__`, and `await` from 3.12 on.
#[allow(unsafe_code)]
unsafe extern "C" fn next(slf: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see `step`.
    let next = unsafe {
        step(slf, |py, step| match step {
            Step::Yield(parker) => parker.into_ptr(),
            // Without an exception it means `StopIteration(None)`.
            Step::Return(value) | Step::Deliver(value) if value.is_none(py) => std::ptr::null_mut(),
            Step::Return(value) => {
                raise_stop(py, value);
                std::ptr::null_mut()
            }
            Step::Deliver(value) => {
                stop::raise(py, value);
                std::ptr::null_mut()
            }
        })
    };
    next.unwrap_or(std::ptr::null_mut())
}

/// `am_await`: `__await__` of one that has not begun is itself; whatever else is for the
/// slot that PyO3 has made.
#[allow(unsafe_code)]
unsafe extern "C" fn begin(slf: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: see `step`; the new reference is the caller's.
    unsafe {
        let py = Python::assume_attached();
        let wait = Borrowed::from_ptr(py, slf).cast_unchecked::<Wait>();
        if wait.get().is_fresh(py) {
            return wait.to_owned().into_ptr();
        }
        AWAIT
            .get()
            .map_or(std::ptr::null_mut(), |original| original(slf))
    }
}

static AWAIT: OnceLock<ffi::unaryfunc> = OnceLock::new();

/// `am_send`: `send` for callers in C, which returns a value without a `StopIteration`.
/// Tasks use it for the coroutine that they run, and `await` does up to 3.11.
#[allow(unsafe_code)]
unsafe extern "C" fn send(
    slf: *mut ffi::PyObject,
    _value: *mut ffi::PyObject,
    result: *mut *mut ffi::PyObject,
) -> ffi::PySendResult {
    // SAFETY: see `step`; the caller has given a place for the result.
    unsafe {
        let sent = step(slf, |_, step| match step {
            Step::Yield(parker) => (parker.into_ptr(), ffi::PySendResult::PYGEN_NEXT),
            Step::Return(value) | Step::Deliver(value) => {
                (value.into_ptr(), ffi::PySendResult::PYGEN_RETURN)
            }
        });
        let (object, outcome) =
            sent.unwrap_or((std::ptr::null_mut(), ffi::PySendResult::PYGEN_ERROR));
        *result = object;
        outcome
    }
}

/// Put them in the place of what PyO3 has made.
#[allow(unsafe_code)]
pub(crate) fn install(class: &Bound<'_, PyType>) {
    // SAFETY: `Wait` is a heap type of ours with a slot for `__await__`, so it has its own
    // `tp_as_async`; the module is being initialised, so there is no instance yet.
    unsafe {
        let class = class.as_type_ptr();
        (*class).tp_iternext = Some(next);
        let slots = (*class).tp_as_async;
        if !slots.is_null() {
            (*slots).am_send = Some(send);
            if let Some(original) = (*slots).am_await.replace(begin) {
                AWAIT.get_or_init(|| original);
            }
        }
    }
}
