//! `StopIteration`, by which an iterator returns a value.
//!
//! From 3.12 on, raising one always makes an exception object, which costs as much as
//! the rest of a read. Nobody keeps it: `await` takes the value out and drops it. So one
//! object serves again and again, as long as nobody else has it.

use pyo3::PyTraverseError;
use pyo3::ffi;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::lock::Lock;
use crate::python::is_unshared;

/// The object to use again.
pub(crate) struct Stop(Lock<Option<Py<PyAny>>>);

impl Stop {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(None))
    }

    /// Leave `StopIteration(value)` raised.
    pub(crate) fn raise(&self, py: Python<'_>, value: Py<PyAny>) {
        let kept = self.0.with(py, Option::take);
        let Some(exception) = kept.filter(is_fresh) else {
            let made = stop_iteration(py, value);
            if cfg!(Py_3_12)
                && let Ok(exception) = &made
            {
                let exception = exception.clone().unbind();
                drop(self.0.with(py, |kept| kept.replace(exception)));
            }
            restore(py, made);
            return;
        };
        drop(replace_value(py, &exception, value));
        let raised = exception.bind(py).clone();
        drop(self.0.with(py, |kept| kept.replace(exception)));
        restore(py, Ok(raised));
    }

    /// Let go of the value that was returned last (X8).
    pub(crate) fn forget(&self, py: Python<'_>) {
        if let Some(exception) = self.0.with(py, Option::take).filter(is_fresh) {
            drop(replace_value(py, &exception, py.None()));
            drop(self.0.with(py, |kept| kept.replace(exception)));
        }
    }

    pub(crate) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.peek(|kept| visit.call(&*kept)).unwrap_or(Ok(()))
    }
}

/// Leave `StopIteration(value)` raised.
pub(crate) fn raise(py: Python<'_>, value: Py<PyAny>) {
    restore(py, stop_iteration(py, value));
}

/// `StopIteration`, without the detour over its `__new__` and without arguments, which
/// would keep the first value for ever.
#[allow(unsafe_code)]
fn stop_iteration(py: Python<'_>, value: Py<PyAny>) -> PyResult<Bound<'_, PyAny>> {
    // SAFETY: the class is a static type; its allocator gives an object of that type with
    // all fields zero, which is what they are in one without a traceback, and nobody else
    // sees it before `args` and `value` are set, with references of their own.
    unsafe {
        let class = ffi::PyExc_StopIteration.cast::<ffi::PyTypeObject>();
        let exception = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class, 0))?;
        let fields = exception.as_ptr().cast::<ffi::PyStopIterationObject>();
        (*fields).args = PyTuple::empty(py).into_ptr();
        (*fields).value = value.into_ptr();
        Ok(exception)
    }
}

#[cfg_attr(Py_3_12, allow(unsafe_code))]
fn restore(py: Python<'_>, exception: PyResult<Bound<'_, PyAny>>) {
    match exception {
        // SAFETY: the thread is attached; the call takes the reference over.
        #[cfg(Py_3_12)]
        Ok(exception) => unsafe { ffi::PyErr_SetRaisedException(exception.into_ptr()) },
        #[cfg(not(Py_3_12))]
        Ok(exception) => PyErr::from_value(exception).restore(py),
        Err(error) => error.restore(py),
    }
}

/// Whether nobody else has it, nor has it been seen by Python code, which would have left
/// a traceback on it.
#[allow(unsafe_code)]
fn is_fresh(exception: &Py<PyAny>) -> bool {
    // SAFETY: it is a StopIteration, made above; its fields are only read.
    let untouched = unsafe {
        let fields = &*exception.as_ptr().cast::<ffi::PyStopIterationObject>();
        fields.traceback.is_null() && fields.context.is_null() && fields.cause.is_null()
    };
    untouched && is_unshared(exception)
}

/// Set the value of an exception that nobody else has; returns the old one.
#[allow(unsafe_code)]
fn replace_value<'py>(
    py: Python<'py>,
    exception: &Py<PyAny>,
    value: Py<PyAny>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: it is a StopIteration, made above, and nobody else looks at it; the reference
    // that it held is ours now.
    unsafe {
        let fields = exception.as_ptr().cast::<ffi::PyStopIterationObject>();
        let old = std::mem::replace(&mut (*fields).value, value.into_ptr());
        Bound::from_owned_ptr_or_opt(py, old)
    }
}
