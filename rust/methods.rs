//! Short ways into the methods of a queue that are called for every item.
//!
//! Without keywords to be looked at, and with nobody to be woken, there is so little to do
//! that what PyO3 puts around each call would be most of it.

use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;

use crate::queue::Queue;
use crate::request::{Offer, Want};
use crate::slots::{attached, panicked};

type Object = *mut ffi::PyObject;
type Method = unsafe extern "C" fn(Object, *const Object, ffi::Py_ssize_t, Object) -> Object;

/// Each with its place among the methods stood in for.
const METHODS: [(&str, Method); 4] = [
    ("put_nowait", put_nowait),
    ("get_nowait", get_nowait),
    ("put", put),
    ("get", get),
];

static ORIGINALS: PyOnceLock<[Py<PyAny>; METHODS.len()]> = PyOnceLock::new();

/// What a method was called with: `count` positional arguments, then those of the tuple
/// `names`, if there is one.
struct Call {
    slf: Object,
    arguments: *const Object,
    count: ffi::Py_ssize_t,
    names: Object,
}

impl Call {
    /// The first argument, of a call that has one.
    #[allow(unsafe_code)]
    unsafe fn item<'py>(&self, py: Python<'py>) -> Borrowed<'_, 'py, PyAny> {
        // SAFETY: the caller of the method holds it, and the caller of this knows that there is one.
        unsafe { Borrowed::from_ptr(py, *self.arguments) }
    }

    /// Do `quick`, and if that is not all, `full`. A call with other than so many positional
    /// arguments is for the method that the one at this place stands in for.
    #[allow(unsafe_code)]
    unsafe fn run(
        &self,
        place: usize,
        arguments: ffi::Py_ssize_t,
        quick: impl for<'py> FnOnce(Borrowed<'_, 'py, Queue>) -> Option<Object>,
        full: impl for<'py> FnOnce(Borrowed<'_, 'py, Queue>) -> PyResult<Object>,
    ) -> Object {
        // SAFETY: as for this.
        unsafe {
            if self.count != arguments || !self.names.is_null() {
                return self.forward(place);
            }
            let result = self.quick(quick);
            if result.is_null() {
                return self.full(full);
            }
            result
        }
    }

    /// The result, or null if there is more to do than was thought.
    ///
    /// In here no reference may be dropped as `Py`: PyO3 does not know that we are attached.
    #[allow(unsafe_code)]
    unsafe fn quick(
        &self,
        body: impl for<'py> FnOnce(Borrowed<'_, 'py, Queue>) -> Option<Object>,
    ) -> Object {
        // SAFETY: a method is called by an attached thread, with an instance of the type that
        // its descriptor belongs to.
        let queue = unsafe {
            Borrowed::from_ptr(Python::assume_attached(), self.slf).cast_unchecked::<Queue>()
        };
        // No panic may cross into C; whatever is done next would show it.
        let result = catch_unwind(AssertUnwindSafe(|| body(queue)));
        result.ok().flatten().unwrap_or(std::ptr::null_mut())
    }

    /// The result, or null if an exception is raised.
    #[allow(unsafe_code)]
    unsafe fn full(
        &self,
        body: impl for<'py> FnOnce(Borrowed<'_, 'py, Queue>) -> PyResult<Object>,
    ) -> Object {
        let result = catch_unwind(AssertUnwindSafe(|| {
            attached(|py| {
                // SAFETY: as in `quick`.
                let queue = unsafe { Borrowed::from_ptr(py, self.slf).cast_unchecked::<Queue>() };
                body(queue).unwrap_or_else(|error| {
                    error.restore(py);
                    std::ptr::null_mut()
                })
            })
        }));
        result.unwrap_or_else(|_| panicked("a method of a queue"))
    }

    /// Call the method that the one at this place stands in for.
    #[allow(unsafe_code)]
    unsafe fn forward(&self, place: usize) -> Object {
        // SAFETY: it is passed on as it came. The thread is attached.
        unsafe {
            let py = Python::assume_attached();
            let Some(originals) = ORIGINALS.get(py) else {
                return std::ptr::null_mut();
            };
            let named = if self.names.is_null() {
                0
            } else {
                ffi::PyTuple_GET_SIZE(self.names)
            };
            let mut all = vec![self.slf];
            for index in 0..(self.count + named) {
                all.push(*self.arguments.offset(index));
            }
            let positional = 1 + self.count.unsigned_abs();
            let original = originals[place].as_ptr();
            ffi::PyObject_Vectorcall(original, all.as_ptr(), positional, self.names)
        }
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn put_nowait(
    slf: Object,
    arguments: *const Object,
    count: ffi::Py_ssize_t,
    names: Object,
) -> Object {
    let call = Call {
        slf,
        arguments,
        count,
        names,
    };
    // SAFETY: these are called with what CPython calls a method with.
    unsafe {
        call.run(
            0,
            1,
            |queue| {
                let put = queue.get().put_quietly(&call.item(queue.py()));
                put.then(|| queue.py().None().into_ptr())
            },
            |queue| {
                Queue::put_nowait(&queue, call.item(queue.py()).to_owned().unbind())?;
                Ok(queue.py().None().into_ptr())
            },
        )
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn get_nowait(
    slf: Object,
    arguments: *const Object,
    count: ffi::Py_ssize_t,
    names: Object,
) -> Object {
    let call = Call {
        slf,
        arguments,
        count,
        names,
    };
    // SAFETY: these are called with what CPython calls a method with.
    unsafe {
        call.run(
            1,
            0,
            |queue| queue.get().get_quietly(queue.py()).map(Py::into_ptr),
            |queue| Queue::get_nowait(&queue).map(Py::into_ptr),
        )
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn put(
    slf: Object,
    arguments: *const Object,
    count: ffi::Py_ssize_t,
    names: Object,
) -> Object {
    let call = Call {
        slf,
        arguments,
        count,
        names,
    };
    // SAFETY: these are called with what CPython calls a method with.
    unsafe {
        call.run(
            2,
            1,
            |queue| {
                let item = call.item(queue.py());
                let want = || Want::Put(Some(Offer::Item(item.to_owned().unbind())));
                Queue::spare_wait(&queue, Want::PUT, want).map(Bound::into_ptr)
            },
            |queue| {
                let item = call.item(queue.py()).to_owned().unbind();
                Queue::put(&queue, item, None).map(Py::into_ptr)
            },
        )
    }
}

#[allow(unsafe_code)]
unsafe extern "C" fn get(
    slf: Object,
    arguments: *const Object,
    count: ffi::Py_ssize_t,
    names: Object,
) -> Object {
    let call = Call {
        slf,
        arguments,
        count,
        names,
    };
    // SAFETY: these are called with what CPython calls a method with.
    unsafe {
        call.run(
            3,
            0,
            |queue| Queue::spare_wait(&queue, Want::GET, || Want::Get).map(Bound::into_ptr),
            |queue| Queue::get(&queue, None).map(Py::into_ptr),
        )
    }
}

/// Put them in the place of the methods that they stand in for.
#[allow(unsafe_code)]
pub(crate) fn install(class: &Bound<'_, PyType>) -> PyResult<()> {
    let py = class.py();
    let mut originals = Vec::new();
    for (name, method) in METHODS {
        let original = class.getattr(name)?;
        let signature: String = original.getattr("__text_signature__")?.extract()?;
        let documentation: String = original.getattr("__doc__")?.extract()?;
        let documentation = format!("{name}{signature}\n--\n\n{documentation}");
        // The type refers to all of it for as long as the process lives.
        let definition = ffi::PyMethodDef {
            ml_name: CString::new(name)?.into_raw(),
            ml_meth: ffi::PyMethodDefPointer {
                PyCFunctionFastWithKeywords: method,
            },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: CString::new(documentation)?.into_raw(),
        };
        let definition = Box::leak(Box::new(definition));
        // SAFETY: the thread is attached, and the class and the definition outlive the
        // descriptor.
        let descriptor = unsafe {
            let descriptor = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
            Bound::from_owned_ptr_or_err(py, descriptor)?
        };
        class.setattr(name, descriptor)?;
        originals.push(original.unbind());
    }
    if let Ok(originals) = originals.try_into() {
        // Set once: the module is not to be had in a second interpreter.
        let _ = ORIGINALS.set(py, originals);
    }
    Ok(())
}
