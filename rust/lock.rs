//! The lock around one object's state.
//!
//! It is held for a few instructions and never while Python runs: no reference is
//! dropped, nothing is compared or called inside. So on a build with the GIL nobody
//! else can be inside while we are attached, and a flag that would catch a mistake is
//! all it takes. On a free-threaded build it is a mutex.

use pyo3::Python;

#[cfg(Py_GIL_DISABLED)]
mod imp {
    use std::sync::{Mutex, PoisonError};

    pub(crate) struct Cell<T>(Mutex<T>);

    impl<T> Cell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(Mutex::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
            body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }

        pub(crate) fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            self.0.try_lock().ok().map(|mut guard| body(&mut guard))
        }
    }
}

#[cfg(not(Py_GIL_DISABLED))]
#[allow(unsafe_code)]
mod imp {
    use std::cell::UnsafeCell;
    use std::sync::atomic::{AtomicBool, Ordering};

    pub(crate) struct Cell<T> {
        // Read and written by the holder of the GIL only, so `Relaxed`, which costs
        // nothing, is enough.
        entered: AtomicBool,
        value: UnsafeCell<T>,
    }

    // SAFETY: `value` is touched only in `try_with`, by a thread that holds the GIL (see
    // there) and found `entered` unset; two threads never do at once.
    unsafe impl<T: Send> Sync for Cell<T> {}

    struct Leave<'a>(&'a AtomicBool);

    impl Drop for Leave<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Relaxed);
        }
    }

    impl<T> Cell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self {
                entered: AtomicBool::new(false),
                value: UnsafeCell::new(value),
            }
        }

        #[inline]
        pub(crate) fn with<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
            self.try_with(body)
                .expect("no Python code runs while a lock is held")
        }

        #[inline]
        pub(crate) fn try_with<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
            if self.entered.load(Ordering::Relaxed) {
                return None;
            }
            self.entered.store(true, Ordering::Relaxed);
            let _leave = Leave(&self.entered);
            // SAFETY: both callers in `Lock` have the GIL, and `entered` was unset, so this
            // is the only reference; if `body` let another thread have the GIL, that one
            // would find `entered` set.
            Some(body(unsafe { &mut *self.value.get() }))
        }
    }
}

pub(crate) struct Lock<T>(imp::Cell<T>);

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(imp::Cell::new(value))
    }

    /// Run `body` with the state. It must not run Python code, drop references
    /// included: move them out.
    #[inline]
    pub(crate) fn with<R>(&self, _attached: Python<'_>, body: impl FnOnce(&mut T) -> R) -> R {
        self.0.with(body)
    }

    /// For `__traverse__`, which may neither block nor attach: the collector holds the
    /// GIL, or has stopped all other threads. None if somebody is inside; the object is
    /// then taken to be in use.
    pub(crate) fn peek<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.0.try_with(body)
    }
}
