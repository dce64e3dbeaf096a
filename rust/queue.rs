//! What users see: the ledger, and who puts, gets and waits.

use std::collections::VecDeque;
use std::convert::Infallible;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use pyo3::{PyTraverseError, PyTypeInfo};

use crate::call::{call, call_method, less, release, truth};
use crate::fairness::{Effort, Reservation};
use crate::heap::{Entry, Heap, Question, Rank, Search};
use crate::hub::Wakes;
use crate::ledger::{Buffer, Get, Ledger, Refusal, Side};
use crate::lock::Lock;
use crate::methods;
use crate::parker::{Outcome, Parker};
use crate::python::{
    error_of, generation, imports, is_interrupt, is_unshared, raise_later, small_int,
};
use crate::registry::Token;
use crate::request::{Offer, Request, SPARES, Want};
use crate::waiter::{Source, Wait, check_timeout};

pub(crate) type Item = Py<PyAny>;

#[pyclass(frozen, subclass, generic, module = "interlock._core")]
pub(crate) struct Queue {
    state: Lock<Option<State>>,
    /// Coroutines that are done, to be used again if nobody else has them.
    spare: Lock<[Option<Py<Wait>>; SPARES]>,
}

struct State {
    ledger: Ledger<Item, Py<Parker>>,
    /// As it was given.
    maxsize: Py<PyAny>,
    /// How many items fit; 0 for no limit.
    capacity: usize,
    key: Option<Py<PyAny>>,
    /// Of one who does not get on with the heap, for others change it.
    reservation: Option<Reservation>,
    /// Held while the hooks of a subclass run, with the generation that it was made in.
    turn: Option<(u64, Py<PyAny>)>,
}

impl State {
    /// Whether somebody else's reservation is in the way of this.
    #[inline]
    const fn has_to_wait(&self, effort: &Effort<'_, '_>) -> bool {
        self.reservation.is_some() && !effort.has_precedence
    }
}

/// The turn to run a subclass's hooks.
struct Turn<'py>(Bound<'py, PyAny>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let py = self.0.py();
        if let Err(error) = self.0.call_method0(intern!(py, "release")) {
            error.write_unraisable(py, Some(&self.0));
        }
    }
}

fn uninitialised() -> PyErr {
    PyRuntimeError::new_err("this queue is not initialised; call super().__init__(maxsize) first")
}

/// What of an item can be compared without running code of the user's. Allocates nothing.
fn rank(compared: &Bound<'_, PyAny>) -> Rank {
    if let Some(number) = small_int(compared) {
        return Rank::Number(number);
    }
    let first = compared
        .cast_exact::<PyTuple>()
        .ok()
        .filter(|pair| !pair.is_empty())
        .and_then(|pair| pair.get_item(0).ok())
        .and_then(|first| small_int(&first));
    first.map_or(Rank::Opaque, Rank::Leading)
}

impl Queue {
    #[inline]
    fn with<R>(&self, py: Python<'_>, body: impl FnOnce(&mut State) -> R) -> PyResult<R> {
        self.state
            .with(py, |state| state.as_mut().map(body))
            .ok_or_else(uninitialised)
    }

    pub(crate) fn reservation<R>(
        &self,
        py: Python<'_>,
        look: impl FnOnce(&mut Option<Reservation>) -> R,
    ) -> PyResult<R> {
        self.with(py, |state| look(&mut state.reservation))
    }

    /// Wake one who waits; if it has gone, the next one.
    ///
    /// By now something has been put or taken, and that stands: what interrupts the waking
    /// is not this operation's failure (Q2, Q3).
    pub(crate) fn wake(&self, py: Python<'_>, side: Side, mut next: Option<Py<Parker>>) {
        while let Some(parker) = next {
            match Parker::notify(&parker, py) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => return raise_later(py, error),
            }
            // None if the queue is being collected as garbage.
            next = self
                .with(py, |state| state.ledger.next(side))
                .ok()
                .flatten();
        }
    }

    /// Register a parker, unless there is something to look at already.
    pub(crate) fn register(
        slf: &Bound<'_, Self>,
        side: Side,
        parker: Py<Parker>,
    ) -> PyResult<Option<Token>> {
        let (py, this) = (slf.py(), slf.get());
        let turn = match side {
            Side::Join => None,
            Side::Get | Side::Put => this.turn(py)?,
        };
        if turn.is_none() {
            let waiting = this.with(py, |state| state.ledger.wait(side, parker))?;
            return Ok(waiting.ok());
        }
        let before = this.with(py, |state| state.ledger.counts())?;
        if Self::is_ready(slf, side)? {
            return Ok(None);
        }
        let waiting = this.with(py, |state| {
            // A signal handler may have used the queue while the hook ran.
            if state.ledger.counts() != before {
                return Err(parker);
            }
            state.ledger.wait(side, parker)
        })?;
        Ok(waiting.ok())
    }

    /// Whether there is something to get, or a place to put; for a subclass with hooks.
    fn is_ready(slf: &Bound<'_, Self>, side: Side) -> PyResult<bool> {
        let py = slf.py();
        let name = if side == Side::Get {
            intern!(py, "empty")
        } else {
            intern!(py, "full")
        };
        Ok(!truth(&call_method(slf, name, [], None)?)?)
    }

    /// Somebody no longer waits.
    pub(crate) fn leave(&self, py: Python<'_>, side: Side, token: Token) {
        // A queue that is being collected as garbage has forgotten it already.
        drop(self.with(py, |state| state.ledger.leave(side, token)));
    }

    /// Somebody who was notified does not take what there is: another may.
    pub(crate) fn pass_on(slf: &Bound<'_, Self>, side: Side) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        let mut ready = Ok(true);
        if let Ok(Some(lock)) = this.turn_lock(py) {
            // This may be the collector's doing, anywhere. One woken in vain is better than
            // to wait for the turn here.
            let now = false.into_pyobject(py)?.to_owned().into_any();
            if truth(&call_method(&lock, intern!(py, "acquire"), [&now], None)?)? {
                let turn = Turn(lock);
                ready = Self::is_ready(slf, side);
                drop(turn);
            }
        }
        if !matches!(ready, Ok(false))
            && let Ok(next) = this.with(py, |state| state.ledger.next(side))
        {
            this.wake(py, side, next);
        }
        match ready {
            // A hook's failure is not what ends this wait (X7); whoever is woken meets it, too.
            Err(error) if is_interrupt(py, &error) => Err(error),
            _ => Ok(()),
        }
    }

    /// The turn to run a subclass's hooks; None if there are none.
    fn turn<'py>(&self, py: Python<'py>) -> PyResult<Option<Turn<'py>>> {
        let Some(lock) = self.turn_lock(py)? else {
            return Ok(None);
        };
        call_method(&lock, intern!(py, "acquire"), [], None)?;
        Ok(Some(Turn(lock)))
    }

    /// The lock of the turn, which is re-entrant.
    fn turn_lock<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if !self.with(py, |state| state.ledger.is_elsewhere())? {
            return Ok(None);
        }
        let mut made = None;
        loop {
            let lock = self.with(py, |state| match &state.turn {
                Some((made_in, kept)) if *made_in == generation() => Ok(kept.clone_ref(py)),
                // A forked child may have inherited one that is held (X12).
                _ => Err(made.take().and_then(|made| state.turn.replace(made))),
            })?;
            match lock {
                Ok(lock) => return Ok(Some(lock.into_bound(py))),
                Err(_inherited) => {
                    let lock = imports(py).reentrant_lock.bind(py).call0()?;
                    made = Some((generation(), lock.unbind()));
                }
            }
        }
    }

    fn shut_down_error(py: Python<'_>) -> PyErr {
        error_of(py, &imports(py).queue_shut_down)
    }

    /// An attempt to put: gives the offer back if there is no place. `direct` is the way that
    /// asks a subclass for no more than `_put`.
    pub(crate) fn offer(
        slf: &Bound<'_, Self>,
        mut offer: Offer,
        direct: bool,
    ) -> PyResult<Option<Offer>> {
        let (py, this) = (slf.py(), slf.get());
        let mut effort = Effort::new(slf);
        loop {
            let copy = |item: &Item| item.clone_ref(py);
            let put = this.with(py, |state| {
                if state.has_to_wait(&effort) {
                    return Err(offer);
                }
                Ok(match offer {
                    // A key is asked for once, before the item is tried.
                    item @ Offer::Item(_) if state.key.is_some() => Err((item, Refusal::Elsewhere)),
                    Offer::Item(item) => match state.ledger.put(item) {
                        Ok(getter) => Ok(getter),
                        Err((item, refusal)) => Err((Offer::Item(item), refusal)),
                    },
                    Offer::Entry(entry) => {
                        match state.ledger.put_entry(entry, &mut effort.search, copy) {
                            Ok(getter) => Ok(getter),
                            Err((entry, refusal)) => Err((Offer::Entry(entry), refusal)),
                        }
                    }
                })
            })?;
            let put = match put {
                Ok(put) => put,
                Err(back) => {
                    effort.give_way()?;
                    offer = back;
                    continue;
                }
            };
            offer = match put {
                Ok(getter) => {
                    this.wake(py, Side::Get, getter);
                    return Ok(None);
                }
                Err((back, Refusal::Full)) => return Ok(Some(back)),
                Err((_, Refusal::ShutDown)) => return Err(Self::shut_down_error(py)),
                Err((back, Refusal::Compare(question))) => {
                    effort.answer(&question)?;
                    back
                }
                Err((back, Refusal::Elsewhere)) => {
                    let item = back.into_item();
                    if let Some(_turn) = this.turn(py)? {
                        return Self::offer_in_turn(slf, item, direct);
                    }
                    Offer::Entry(this.entry(py, item)?)
                }
            };
        }
    }

    /// The entry of an item for the heap.
    fn entry(&self, py: Python<'_>, item: Item) -> PyResult<Entry<Item>> {
        let key = self.with(py, |state| state.key.as_ref().map(|key| key.clone_ref(py)))?;
        let key = key
            .map(|key| call(key.bind(py), [item.bind(py)]))
            .transpose()?;
        let rank = rank(key.as_ref().unwrap_or_else(|| item.bind(py)));
        Ok(Entry::new(item, key.map(Bound::unbind), rank))
    }

    fn offer_in_turn(slf: &Bound<'_, Self>, item: Item, direct: bool) -> PyResult<Option<Offer>> {
        let (py, this) = (slf.py(), slf.get());
        if this.is_shutdown(py)? {
            return Err(Self::shut_down_error(py));
        }
        if !Self::is_ready(slf, Side::Put)? {
            return Ok(Some(Offer::Item(item)));
        }
        if direct {
            call_method(slf, intern!(py, "_put"), [item.bind(py)], None)?;
            let getter = this.with(py, |state| state.ledger.note_put())?;
            this.wake(py, Side::Get, getter);
        } else {
            call_method(slf, intern!(py, "put_nowait"), [item.bind(py)], None)?;
        }
        Ok(None)
    }

    /// An attempt to get: None if there is nothing. `direct` as for `offer`.
    pub(crate) fn take(slf: &Bound<'_, Self>, direct: bool) -> PyResult<Option<Item>> {
        let (py, this) = (slf.py(), slf.get());
        let mut effort = Effort::new(slf);
        loop {
            let copy = |item: &Item| item.clone_ref(py);
            let got = this.with(py, |state| {
                let waits = state.has_to_wait(&effort);
                (!waits).then(|| state.ledger.get(&mut effort.search, copy))
            })?;
            let Some(got) = got else {
                effort.give_way()?;
                continue;
            };
            match got {
                Get::Item { item, key, putter } => {
                    this.wake(py, Side::Put, putter);
                    release(py, key);
                    return Ok(Some(item));
                }
                Get::Empty => return Ok(None),
                Get::ShutDown => return Err(Self::shut_down_error(py)),
                Get::Compare(question) => effort.answer(&question)?,
                Get::Elsewhere => {
                    let _turn = this.turn(py)?;
                    return Self::take_in_turn(slf, direct);
                }
            }
        }
    }

    fn take_in_turn(slf: &Bound<'_, Self>, direct: bool) -> PyResult<Option<Item>> {
        let (py, this) = (slf.py(), slf.get());
        if !Self::is_ready(slf, Side::Get)? {
            if this.is_shutdown(py)? {
                return Err(Self::shut_down_error(py));
            }
            return Ok(None);
        }
        if !direct {
            let item = call_method(slf, intern!(py, "get_nowait"), [], None)?;
            return Ok(Some(item.unbind()));
        }
        let item = call_method(slf, intern!(py, "_get"), [], None)?.unbind();
        let putter = this.with(py, |state| state.ledger.note_get())?;
        this.wake(py, Side::Put, putter);
        Ok(Some(item))
    }

    /// Whether everything that was accepted is finished.
    pub(crate) fn is_finished(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| state.ledger.counts().unfinished == 0)
    }

    /// The items of a heap in the order in which they are to be got, and the version of the
    /// heap for which that holds. None if they cannot be compared.
    fn sorted(&self, py: Python<'_>) -> PyResult<Option<(u64, Vec<Item>)>> {
        let copied = self.with(py, |state| {
            let heap = state.ledger.heap()?;
            Some(heap.copied(|item| item.clone_ref(py)))
        })?;
        let Some(mut heap) = copied else {
            return Ok(None);
        };
        let version = heap.version();
        let mut items = Vec::with_capacity(heap.len());
        let mut search = Search::default();
        loop {
            match heap.pop(&mut search, |item| item.clone_ref(py)) {
                Ok(Some(entry)) => {
                    items.push(entry.item);
                    search = Search::default();
                }
                Ok(None) => return Ok(Some((version, items))),
                Err(Question { left, right }) => match less(left.bind(py), right.bind(py)) {
                    Err(error) if !is_interrupt(py, &error) => return Ok(None),
                    answer => search.answer(answer?),
                },
            }
        }
    }

    /// Drop what is in, and return it: in order, if that is asked for.
    fn drop_all(slf: &Bound<'_, Self>, ordered: bool) -> PyResult<Vec<Item>> {
        let (py, this) = (slf.py(), slf.get());
        let items = |entries: Vec<Entry<Item>>| entries.into_iter().map(|entry| entry.item);
        loop {
            let sorted = if ordered { this.sorted(py)? } else { None };
            let dropped = this.with(py, |state| {
                let version = state.ledger.heap().map(Heap::version);
                match &sorted {
                    // Somebody has taken one meanwhile.
                    Some((sorted, _)) if version != Some(*sorted) => None,
                    _ => Some(state.ledger.drop_all()),
                }
            })?;
            match (dropped, sorted) {
                (Some(_), Some((_, sorted))) => return Ok(sorted),
                (Some(dropped), None) => return Ok(items(dropped).collect()),
                (None, _) => {}
            }
        }
    }

    /// As `drop_all`, for a subclass with hooks. What was dropped before a hook raised stays so.
    fn drop_all_in_turn(slf: &Bound<'_, Self>, dropped: &mut Vec<Item>) -> PyResult<()> {
        let (py, this) = (slf.py(), slf.get());
        while Self::is_ready(slf, Side::Get)? {
            dropped.push(call_method(slf, intern!(py, "_get"), [], None)?.unbind());
            this.with(py, |state| state.ledger.note_dropped(1))?;
        }
        Ok(())
    }

    /// Shut down; returns what was dropped.
    fn end(slf: &Bound<'_, Self>, immediate: bool, ordered: bool) -> PyResult<Vec<Item>> {
        let (py, this) = (slf.py(), slf.get());
        let mut dropped = Vec::new();
        let mut failure = Ok(());
        let turn = this.turn(py)?;
        let waiters = this.with(py, |state| state.ledger.shut_down())?;
        if immediate && turn.is_some() {
            failure = Self::drop_all_in_turn(slf, &mut dropped);
        } else if immediate {
            match Self::drop_all(slf, ordered) {
                Ok(items) => dropped = items,
                Err(error) => failure = Err(error),
            }
        }
        drop(turn);
        let joiners = this.with(py, |state| state.ledger.finished())?;
        // In the order in which asyncio's wake.
        settle_all(py, joiners, || Outcome::Matched(py.None()));
        settle_all(py, waiters, || Outcome::Notified);
        failure.map(|()| dropped)
    }

    /// Put an item, if that is all there is to do.
    #[inline]
    pub(crate) fn put_quietly(&self, item: &Bound<'_, PyAny>) -> bool {
        self.state.with(item.py(), |state| match state {
            Some(State {
                key: None,
                reservation: None,
                ledger,
                ..
            }) => ledger.put_quietly(|| item.clone().unbind(), || rank(item)),
            _ => false,
        })
    }

    /// Take the next item, if that is all there is to do.
    #[inline]
    pub(crate) fn get_quietly(&self, py: Python<'_>) -> Option<Item> {
        self.state.with(py, |state| match state {
            // An entry with a key is more to drop than its item.
            Some(State {
                key: None,
                reservation: None,
                ledger,
                ..
            }) => ledger.get_quietly(),
            _ => None,
        })
    }

    /// A coroutine that is done, made as new for this, if nobody else has it.
    #[inline]
    pub(crate) fn spare_wait<'py>(
        slf: &Bound<'py, Self>,
        spare: usize,
        want: impl FnOnce() -> Want,
    ) -> Option<Bound<'py, Wait>> {
        let py = slf.py();
        let wait = slf.get().spare.with(py, |kept| kept[spare].take())?;
        let shared = !is_unshared(&wait);
        let wait = wait.into_bound(py);
        if shared {
            return None;
        }
        let request = Request::new(slf.clone().unbind(), want());
        wait.get().renew(py, Source::Queue(request));
        Some(wait)
    }

    /// A coroutine for this.
    fn wait(
        slf: &Bound<'_, Self>,
        want: Want,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Wait>> {
        let py = slf.py();
        let timeout = check_timeout(timeout)?;
        let name = want.name();
        let source = Source::Queue(Request::new(slf.clone().unbind(), want));
        Py::new(py, Wait::new(name, source, timeout))
    }

    /// Keep a coroutine that is done, to be used again.
    pub(crate) fn keep(&self, py: Python<'_>, spare: usize, wait: Py<Wait>) {
        drop(self.spare.with(py, |kept| kept[spare].replace(wait)));
    }
}

/// Settle all these waits. What interrupts that is not this operation's failure.
fn settle_all(py: Python<'_>, parkers: Vec<Py<Parker>>, outcome: impl Fn() -> Outcome) {
    let mut wakes = Wakes::default();
    for parker in parkers {
        if let Err(error) = Parker::settle(&parker, py, outcome(), &mut wakes) {
            raise_later(py, error);
        }
    }
    if let Err(error) = wakes.flush(py) {
        raise_later(py, error);
    }
}

#[pymethods]
impl Queue {
    /// Takes any arguments, so that a subclass may have an `__init__` of its own.
    #[new]
    #[pyo3(signature = (*_args, **_kwargs))]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> Self {
        Self {
            state: Lock::new(None),
            spare: Lock::new([const { None }; SPARES]),
        }
    }

    fn _setup(
        &self,
        py: Python<'_>,
        maxsize: Py<PyAny>,
        capacity: usize,
        order: &str,
        key: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let buffer = match order {
            "fifo" => Buffer::Fifo(VecDeque::new()),
            "lifo" => Buffer::Lifo(Vec::new()),
            "priority" => Buffer::Heap(Heap::new()),
            _ => Buffer::Elsewhere,
        };
        let limit = match &buffer {
            // Then it is up to the subclass.
            Buffer::Elsewhere => 0,
            _ => capacity,
        };
        let state = State {
            ledger: Ledger::new(buffer, limit),
            maxsize,
            capacity,
            key,
            reservation: None,
            turn: None,
        };
        let refused = self.state.with(py, |slot| {
            if slot.is_some() {
                return Some(state);
            }
            *slot = Some(state);
            None
        });
        if refused.is_some() {
            return Err(PyRuntimeError::new_err(
                "this queue is initialised already; make another one",
            ));
        }
        Ok(())
    }

    /// Put an item into the queue; wait while it is full.
    ///
    /// Nothing happens before the first `await`. If there is a place then, it does not
    /// yield to the loop.
    ///
    /// Args:
    ///     item: Any object, `None` and exceptions included.
    ///     timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
    ///         for ever, 0 does not wait.
    ///
    /// Returns:
    ///     A coroutine, to be awaited once. If it is cancelled, times out or raises
    ///     anything else, the item is not in the queue and never will be (Q3).
    ///
    /// Raises:
    ///     ValueError: `timeout` is negative or not a number of seconds.
    ///     asyncio.TimeoutError: In the await, when time is up.
    ///     QueueShutDown: In the await, if the queue is or gets shut down.
    #[pyo3(signature = (item, *, timeout = None))]
    pub(crate) fn put(
        slf: &Bound<'_, Self>,
        item: Py<PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Wait>> {
        Self::wait(slf, Want::Put(Some(Offer::Item(item))), timeout)
    }

    /// Put an item into the queue without waiting.
    ///
    /// Args:
    ///     item: Any object, `None` and exceptions included.
    ///
    /// Raises:
    ///     asyncio.QueueFull: There is no place now.
    ///     QueueShutDown: The queue was shut down, whether it is full or not.
    pub(crate) fn put_nowait(slf: &Bound<'_, Self>, item: Py<PyAny>) -> PyResult<()> {
        match Self::offer(slf, Offer::Item(item), true)? {
            None => Ok(()),
            Some(_) => Err(error_of(slf.py(), &imports(slf.py()).queue_full)),
        }
    }

    /// Remove the next item and return it; wait while there is none.
    ///
    /// Nothing happens before the first `await`. If there is an item then, it does not
    /// yield to the loop.
    ///
    /// Args:
    ///     timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
    ///         for ever, 0 does not wait.
    ///
    /// Returns:
    ///     A coroutine, to be awaited once. If it is cancelled, times out or raises
    ///     anything else, it has taken nothing: an item that it was woken for goes to
    ///     the next one who waits (Q2).
    ///
    /// Raises:
    ///     ValueError: `timeout` is negative or not a number of seconds.
    ///     asyncio.TimeoutError: In the await, when time is up.
    ///     QueueShutDown: In the await, if the queue is or gets shut down and has no
    ///         items left (Q5).
    #[pyo3(signature = (*, timeout = None))]
    pub(crate) fn get(
        slf: &Bound<'_, Self>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Wait>> {
        Self::wait(slf, Want::Get, timeout)
    }

    /// Remove the next item and return it, without waiting.
    ///
    /// Raises:
    ///     asyncio.QueueEmpty: There is none now.
    ///     QueueShutDown: The queue was shut down and has no items left (Q5).
    pub(crate) fn get_nowait(slf: &Bound<'_, Self>) -> PyResult<Item> {
        match Self::take(slf, true)? {
            Some(item) => Ok(item),
            None => Err(error_of(slf.py(), &imports(slf.py()).queue_empty)),
        }
    }

    fn __anext__(slf: &Bound<'_, Self>) -> PyResult<Py<Wait>> {
        if let Some(wait) = Self::spare_wait(slf, Want::NEXT, || Want::Next) {
            return Ok(wait.unbind());
        }
        Self::wait(slf, Want::Next, None)
    }

    /// Wait until every item accepted is finished: got and accounted for by `task_done`, or dropped.
    ///
    /// It returns when the number of unfinished items becomes zero, even if others are put
    /// before its task runs (Q4). A shutdown alone does not end it: what was got already
    /// is waited for (Q6).
    ///
    /// Args:
    ///     timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
    ///         for ever, 0 does not wait.
    ///
    /// Returns:
    ///     A coroutine, to be awaited once. Cancelling it changes nothing else.
    ///
    /// Raises:
    ///     ValueError: `timeout` is negative or not a number of seconds.
    ///     asyncio.TimeoutError: In the await, when time is up.
    #[pyo3(signature = (*, timeout = None))]
    fn join(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Py<Wait>> {
        Self::wait(slf, Want::Join, timeout)
    }

    /// Account for one item that was got: the work on it is finished.
    ///
    /// Call it once for each item got, also if the work failed; else `join` waits for
    /// ever. When the last one is finished, all who wait in `join` are released (Q4).
    ///
    /// Raises:
    ///     ValueError: There are no unfinished items: it was called more often than items
    ///         were put, not counting dropped ones.
    fn task_done(&self, py: Python<'_>) -> PyResult<()> {
        let Some(joiners) = self.with(py, |state| state.ledger.task_done())? else {
            return Err(PyValueError::new_err("task_done() called too many times"));
        };
        if !joiners.is_empty() {
            settle_all(py, joiners, || Outcome::Matched(py.None()));
        }
        Ok(())
    }

    /// End the intake, for good; wake everybody who waits to put or to get.
    ///
    /// From now on every put raises `QueueShutDown`, also those that wait. What is in the
    /// queue may still be got; after that every get raises it, too (Q5). `join` and
    /// `task_done` go on as before. Idempotent, from any thread.
    ///
    /// Args:
    ///     immediate: Drop what is in the queue, so that every get raises at once. Dropped
    ///         items are no longer unfinished; those got before are, until their
    ///         `task_done` (Q6). A graceful shutdown may be followed by an immediate one.
    #[pyo3(signature = (immediate = None), text_signature = "($self, immediate=False)")]
    fn shutdown(slf: &Bound<'_, Self>, immediate: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let immediate = immediate.map_or(Ok(false), truth)?;
        let dropped = Self::end(slf, immediate, false)?;
        release(slf.py(), dropped);
        Ok(())
    }

    /// Shut down at once, and return what was dropped: `shutdown(immediate=True)` for those who want to know (Q6).
    ///
    /// Returns:
    ///     The items that were in the queue, in the order in which `get` would have given
    ///     them; those of a `PriorityQueue` that cannot be compared, in the order in which
    ///     they were put. Empty if the queue was, or was aborted before.
    fn abort<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(slf.py(), Self::end(slf, true, true)?)
    }

    /// Return how many items are in the queue. With other threads at work it may be outdated at once.
    fn qsize(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(_turn) = this.turn(py)? {
            return call_method(slf, intern!(py, "_qsize"), [], None).map(Bound::unbind);
        }
        let size = this.with(py, |state| state.ledger.len())?;
        Ok(size.into_pyobject(py)?.into_any().unbind())
    }

    /// Return whether there is no item in the queue.
    fn empty(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(_turn) = this.turn(py)? {
            let size = call_method(slf, intern!(py, "qsize"), [], None)?;
            return size.eq(0);
        }
        this.with(py, |state| state.ledger.len() == 0)
    }

    /// Return whether there is no place in the queue: never if `maxsize` is 0 or less.
    fn full(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let (py, this) = (slf.py(), slf.get());
        if let Some(_turn) = this.turn(py)? {
            let capacity = this.with(py, |state| state.capacity)?;
            if capacity == 0 {
                return Ok(false);
            }
            let size = call_method(slf, intern!(py, "qsize"), [], None)?;
            return size.ge(capacity);
        }
        this.with(py, |state| state.ledger.is_full())
    }

    /// How many items fit, as given; 0 or less is no limit.
    #[getter]
    fn maxsize(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.with(py, |state| state.maxsize.clone_ref(py))
    }

    /// Whether the queue was shut down.
    #[getter]
    fn is_shutdown(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |state| state.ledger.is_shut_down())
    }

    fn _block_put(
        slf: &Bound<'_, Self>,
        item: Py<PyAny>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let timeout = check_timeout(timeout)?;
        let want = Want::Put(Some(Offer::Item(item)));
        Request::new(slf.clone().unbind(), want).block(slf.py(), timeout)
    }

    fn _block_get(slf: &Bound<'_, Self>, timeout: Option<&Bound<'_, PyAny>>) -> PyResult<Item> {
        let timeout = check_timeout(timeout)?;
        Request::new(slf.clone().unbind(), Want::Get).block(slf.py(), timeout)
    }

    fn _block_join(
        slf: &Bound<'_, Self>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let timeout = check_timeout(timeout)?;
        Request::new(slf.clone().unbind(), Want::Join).block(slf.py(), timeout)
    }

    #[allow(clippy::type_complexity)]
    fn _counts(
        slf: &Bound<'_, Self>,
    ) -> PyResult<(Py<PyAny>, u64, u64, u64, u64, usize, usize, usize)> {
        let (py, this) = (slf.py(), slf.get());
        let outside = match this.turn(py)? {
            Some(_turn) => Some(call_method(slf, intern!(py, "qsize"), [], None)?.unbind()),
            None => None,
        };
        let (size, counts, waiting) = this.with(py, |state| {
            let ledger = &state.ledger;
            let waiting = [Side::Get, Side::Put, Side::Join].map(|side| ledger.waiting(side));
            (ledger.len(), ledger.counts(), waiting)
        })?;
        let size = match outside {
            Some(size) => size,
            None => size.into_pyobject(py)?.into_any().unbind(),
        };
        let [getters, putters, joiners] = waiting;
        Ok((
            size,
            counts.unfinished,
            counts.accepted,
            counts.delivered,
            counts.dropped,
            getters,
            putters,
            joiners,
        ))
    }

    fn _snapshot<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        let py = slf.py();
        let mut items = Vec::new();
        slf.get().with(py, |state| {
            let looked = state.ledger.each_item(|item| {
                items.push(item.clone_ref(py));
                Ok::<(), Infallible>(())
            });
            let Ok(()) = looked;
        })?;
        PyList::new(py, items)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.spare
            .peek(|kept| kept.iter().try_for_each(|wait| visit.call(wait)))
            .unwrap_or(Ok(()))?;
        self.state
            .peek(|state| {
                let Some(state) = state else {
                    return Ok(());
                };
                visit.call(&state.maxsize)?;
                visit.call(&state.key)?;
                if let Some((_, turn)) = &state.turn {
                    visit.call(turn)?;
                }
                let ledger = &state.ledger;
                ledger.each_item(|item| visit.call(item))?;
                let mut entries = ledger.heap().into_iter().flat_map(Heap::entries);
                entries.try_for_each(|entry| visit.call(&entry.key))?;
                let mut waiters = ledger.waiters();
                waiters.try_for_each(|parker| visit.call(parker))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        self.forget(py);
        let spare = self
            .spare
            .with(py, |kept| std::mem::replace(kept, [const { None }; SPARES]));
        drop(spare);
    }
}

impl Queue {
    fn forget(&self, py: Python<'_>) {
        let state = self.state.with(py, Option::take);
        if let Some(state) = state {
            release(py, state.ledger.into_items());
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Attached already: Python objects are deallocated by attached threads.
        Python::attach(|py| self.forget(py));
    }
}

pub(crate) fn init(py: Python<'_>) -> PyResult<()> {
    methods::install(&Queue::type_object(py))
}
