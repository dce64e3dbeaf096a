//! Calls that may run Python code.
//!
//! Up to 3.13 CPython ends a daemon thread that wants to go on while the interpreter
//! shuts down by `pthread_exit`, which with glibc unwinds its stack: through our frames,
//! too, and there it aborts the process, since nothing in Rust may be unwound from C
//! unless it says so. So the innermost frame, the one that has called into Python, says
//! so, and then stops the thread for good, which is what CPython itself does from 3.14
//! on (python/cpython#87135).

use std::ffi::{CStr, c_char, c_int};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Stops the thread when it is dropped, which only unwinding does.
struct Stay;

impl Drop for Stay {
    fn drop(&mut self) {
        loop {
            std::thread::park();
        }
    }
}

/// Run something that cannot panic, but may be unwound by C.
#[inline]
fn guarded<R>(call: impl FnOnce() -> R) -> R {
    let stay = Stay;
    let result = call();
    std::mem::forget(stay);
    result
}

/// A function of the C API as one that may unwind. The calling convention is the same.
///
/// The compiler must not see which function it is, or it would call it directly, by its
/// declaration, which says that it does not unwind.
macro_rules! unwinding {
    ($function:path, fn($($argument:ty),*) -> $result:ty) => {
        // SAFETY: only the ABI string differs; "C-unwind" promises less than "C".
        std::mem::transmute::<
            unsafe extern "C" fn($($argument),*) -> $result,
            unsafe extern "C-unwind" fn($($argument),*) -> $result,
        >(std::hint::black_box($function))
    };
}

type Object = *mut ffi::PyObject;

/// `callable(*arguments)`.
#[allow(unsafe_code)]
pub(crate) fn call<'py, const N: usize>(
    callable: &Bound<'py, PyAny>,
    arguments: [&Bound<'py, PyAny>; N],
) -> PyResult<Bound<'py, PyAny>> {
    let pointers = arguments.map(Bound::as_ptr);
    // SAFETY: the thread is attached, and all references outlive the call.
    unsafe {
        // A function of its own from 3.11 on.
        #[cfg(Py_3_11)]
        let function = unwinding!(
            ffi::PyObject_Vectorcall,
            fn(Object, *const Object, usize, Object) -> Object
        );
        #[cfg(not(Py_3_11))]
        let function = unwinding!(
            ffi::PyObject_VectorcallDict,
            fn(Object, *const Object, usize, Object) -> Object
        );
        let nobody = std::ptr::null_mut();
        let result = guarded(|| function(callable.as_ptr(), pointers.as_ptr(), N, nobody));
        Bound::from_owned_ptr_or_err(callable.py(), result)
    }
}

/// `object.name(*arguments)`; the last ones by these names, if any.
#[allow(unsafe_code)]
pub(crate) fn call_method<'py, const N: usize>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
    arguments: [&Bound<'py, PyAny>; N],
    keywords: Option<&Bound<'py, PyTuple>>,
) -> PyResult<Bound<'py, PyAny>> {
    let named = keywords.map_or(0, PyTupleMethods::len);
    // One more place in front, for the object.
    let mut pointers = [object.as_ptr(); 5];
    assert!(named <= N && N < pointers.len());
    for (place, argument) in pointers[1..].iter_mut().zip(arguments) {
        *place = argument.as_ptr();
    }
    let keywords = keywords.map_or(std::ptr::null_mut(), Bound::as_ptr);
    // SAFETY: the thread is attached, all references outlive the call, and there are as many
    // of them as stated: the object, the positional arguments, and those of the keywords.
    unsafe {
        let function = unwinding!(
            ffi::PyObject_VectorcallMethod,
            fn(Object, *const Object, usize, Object) -> Object
        );
        let positional = 1 + N - named;
        let result = guarded(|| function(name.as_ptr(), pointers.as_ptr(), positional, keywords));
        Bound::from_owned_ptr_or_err(object.py(), result)
    }
}

/// `left == right`; identical objects are equal.
pub(crate) fn equals(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> PyResult<bool> {
    compare(left, right, ffi::Py_EQ)
}

/// `left < right`.
pub(crate) fn less(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>) -> PyResult<bool> {
    compare(left, right, ffi::Py_LT)
}

#[allow(unsafe_code)]
fn compare(left: &Bound<'_, PyAny>, right: &Bound<'_, PyAny>, how: c_int) -> PyResult<bool> {
    // SAFETY: the thread is attached, and both references outlive the call.
    let answer = unsafe {
        let function = unwinding!(
            ffi::PyObject_RichCompareBool,
            fn(Object, Object, c_int) -> c_int
        );
        guarded(|| function(left.as_ptr(), right.as_ptr(), how))
    };
    truth_of(left.py(), answer)
}

/// `bool(object)`.
#[allow(unsafe_code)]
pub(crate) fn truth(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // SAFETY: the thread is attached, and the reference outlives the call.
    let answer = unsafe {
        let function = unwinding!(ffi::PyObject_IsTrue, fn(Object) -> c_int);
        guarded(|| function(object.as_ptr()))
    };
    truth_of(object.py(), answer)
}

/// `float(object)`, without parsing strings.
#[allow(unsafe_code)]
pub(crate) fn float(object: &Bound<'_, PyAny>) -> PyResult<f64> {
    // SAFETY: the thread is attached, and the reference outlives the call.
    let number = unsafe {
        let function = unwinding!(ffi::PyFloat_AsDouble, fn(Object) -> f64);
        guarded(|| function(object.as_ptr()))
    };
    match PyErr::take(object.py()) {
        Some(error) => Err(error),
        None => Ok(number),
    }
}

/// `hash(object)`.
#[allow(unsafe_code)]
pub(crate) fn hash(object: &Bound<'_, PyAny>) -> PyResult<isize> {
    // SAFETY: the thread is attached, and the reference outlives the call.
    let hash = unsafe {
        let function = unwinding!(ffi::PyObject_Hash, fn(Object) -> isize);
        guarded(|| function(object.as_ptr()))
    };
    if hash == -1 {
        Err(PyErr::fetch(object.py()))
    } else {
        Ok(hash)
    }
}

/// Drop these references, which may run finalisers.
#[allow(unsafe_code)]
pub(crate) fn release(_attached: Python<'_>, objects: impl IntoIterator<Item = Py<PyAny>>) {
    for object in objects {
        // SAFETY: the thread is attached, and the reference is given up.
        unsafe {
            let function = unwinding!(ffi::Py_DecRef, fn(Object) -> ());
            guarded(|| function(object.into_ptr()));
        }
    }
}

/// Warn, as `warnings.warn` does.
#[allow(unsafe_code)]
pub(crate) fn warn(category: &Bound<'_, PyAny>, message: &CStr) -> PyResult<()> {
    // SAFETY: the thread is attached, and the category and the text outlive the call.
    let answer = unsafe {
        let function = unwinding!(
            ffi::PyErr_WarnEx,
            fn(Object, *const c_char, ffi::Py_ssize_t) -> c_int
        );
        guarded(|| function(category.as_ptr(), message.as_ptr(), 1))
    };
    truth_of(category.py(), answer).map(drop)
}

fn truth_of(py: Python<'_>, answer: c_int) -> PyResult<bool> {
    if answer < 0 {
        Err(PyErr::fetch(py))
    } else {
        Ok(answer != 0)
    }
}
