//! The Rust core of interlock.
//!
//! From the ground up; each part knows only those above it. (But a hub and its parkers know
//! each other, and a parker knows its queue, to give back what it was notified of in vain.)
//!
//! - `history`, `registry`, `ready`, `timers`, `heap`, `ledger`: plain data, generic, without
//!   Python;
//! - `lock`: one object's state, never held while Python runs;
//! - `call`: calls that may run Python code;
//! - `python`: the few things of CPython and asyncio that the core calls;
//! - `stop`: the exception by which a coroutine returns;
//! - `hub`: one per event loop, wakes what is ready there;
//! - `parker`, `waiter`: what a task is suspended on, and the coroutine for the caller;
//! - `slots`: how the interpreter drives that coroutine;
//! - `matching`: what a wait accepts; `callback`: what is called back;
//! - `watcher`, `subscription`: what users see;
//! - `request`: what somebody wants of a queue; `fairness`: an operation on a heap that others
//!   change; `queue`: what users see;
//! - `methods`: short ways into it.

// Without the `python` feature only the plain parts are built, for their tests.
#![cfg_attr(not(feature = "python"), allow(dead_code))]

mod heap;
mod history;
mod ledger;
mod ready;
mod registry;
mod timers;

#[cfg(feature = "python")]
mod call;
#[cfg(feature = "python")]
mod callback;
#[cfg(feature = "python")]
mod fairness;
#[cfg(feature = "python")]
mod hub;
#[cfg(feature = "python")]
mod lock;
#[cfg(feature = "python")]
mod matching;
#[cfg(feature = "python")]
mod methods;
#[cfg(feature = "python")]
mod parker;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod queue;
#[cfg(feature = "python")]
mod request;
#[cfg(feature = "python")]
mod slots;
#[cfg(feature = "python")]
mod stop;
#[cfg(feature = "python")]
mod subscription;
#[cfg(feature = "python")]
mod waiter;
#[cfg(feature = "python")]
mod watcher;

/// The Rust backend of interlock; see `_core.pyi` for what it offers.
#[cfg(feature = "python")]
#[pyo3::pymodule(gil_used = false)]
mod _core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::callback::CallbackHandle;
    #[pymodule_export]
    use crate::queue::Queue;
    #[pymodule_export]
    use crate::subscription::Subscription;
    #[pymodule_export]
    use crate::watcher::Watcher;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::python::refuse_subinterpreters(module.py())?;
        crate::python::init(module.py())?;
        crate::waiter::init(module.py())?;
        crate::queue::init(module.py())
    }
}
