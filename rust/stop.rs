//! `StopIteration`, by which an iterator returns a value.
//!
//! From 3.12 on, raising one always makes an exception object, which costs as much as
//! the rest of a read. Nobody keeps it: `await` takes the value out and drops it. So one
//! object serves again and again, as long as nobody else has it.

use pyo3::PyTraverseError;
use pyo3::ffi;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

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
        let raised = if cfg!(Py_3_12) {
            self.with_value(py, value)
        } else {
            // Not `PyErr_SetObject` with the value, which would unpack a tuple.
            stop_iteration(py, Some(&value))
        };
        match raised {
            Ok(raised) => PyErr::from_value(raised).restore(py),
            Err(error) => error.restore(py),
        }
    }

    fn with_value<'py>(&self, py: Python<'py>, value: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let kept = self.0.with(py, Option::take);
        let exception = match kept.filter(is_fresh) {
            Some(exception) => exception,
            // Without arguments, which would keep the first value for ever.
            None => stop_iteration(py, None)?.unbind(),
        };
        drop(replace_value(py, &exception, value));
        let raised = exception.bind(py).clone();
        drop(self.0.with(py, |kept| kept.replace(exception)));
        Ok(raised)
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

fn stop_iteration<'py>(py: Python<'py>, value: Option<&Py<PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let class = py.get_type::<pyo3::exceptions::PyStopIteration>();
    match value {
        Some(value) => class.call1((value,)),
        None => class.call0(),
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
