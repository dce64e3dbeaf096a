"""What users see of a queue: the ledger, and who puts, gets and waits."""

from __future__ import annotations

import asyncio
import time
from asyncio.events import _get_running_loop
from collections.abc import Callable, Coroutine
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock._pure.hub import running_hub
from interlock._pure.ledger import MISSED, HookedLedger, Ledger, LifoLedger, PriorityLedger
from interlock._pure.lock import lock
from interlock._pure.parker import EXPIRED, Parker
from interlock._pure.waiter import called, check_timeout, unwrap
from interlock.errors import Expired, QueueEmpty, QueueFull, QueueShutDown

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_LEDGERS: dict[str, type[Ledger]] = {
    "fifo": Ledger,
    "lifo": LifoLedger,
    "priority": PriorityLedger,
    "hooked": HookedLedger,
}


class _NoLedger:
    """What a queue has for a ledger until it is initialised."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # asked for by tools that look at everything in a module
        raise RuntimeError("this queue is not initialised; call super().__init__(maxsize) first")


_NO_LEDGER: Any = _NoLedger()


class Queue(Generic[T]):
    # A single attribute: all other names belong to the subclasses.
    __slots__ = ("_ledger",)

    _ledger: Ledger

    # Not a `typing` alias, as for other classes derived from `Generic`: drop-in (Q1).
    def __class_getitem__(cls, key: Any) -> GenericAlias:
        return GenericAlias(cls, key)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Takes any arguments, so that a subclass may have an `__init__` of its own."""
        self = super().__new__(cls)
        self._ledger = _NO_LEDGER
        return self

    def _setup(self, maxsize: Any, capacity: int, order: str, key: Callable[[T], Any] | None) -> None:
        ledger = _LEDGERS[order](maxsize, capacity, key)
        with lock:
            # One step.
            if self._ledger is _NO_LEDGER:
                self._ledger = ledger
                return
        raise RuntimeError("this queue is initialised already; make another one")

    # Putting.

    def put(self, item: T, *, timeout: float | None = None) -> Coroutine[Any, Any, None]:
        """Put an item into the queue; wait while it is full.

        Nothing happens before the first `await`. If there is a place then, it does not
        yield to the loop.

        Args:
            item: Any object, `None` and exceptions included.
            timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
                for ever, 0 does not wait.

        Returns:
            A coroutine, to be awaited once. If it is cancelled, times out or raises
            anything else, the item is not in the queue and never will be (Q3).

        Raises:
            ValueError: `timeout` is negative or not a number of seconds.
            asyncio.TimeoutError: In the await, when time is up.
            QueueShutDown: In the await, if the queue is or gets shut down.
        """
        return _put(self, item, None if timeout is None else check_timeout(timeout))

    def put_nowait(self, item: T) -> None:
        """Put an item into the queue without waiting.

        Args:
            item: Any object, `None` and exceptions included.

        Raises:
            asyncio.QueueFull: There is no place now.
            QueueShutDown: The queue was shut down, whether it is full or not.
        """
        ledger = self._ledger
        if ledger.hooked:
            _put_with_hooks(self, item)
            return
        key = ledger.key
        if ledger.put(item, item if key is None else key(item), None) is MISSED:
            raise QueueFull
        if ledger.getters:
            ledger.notify_getter()

    # Getting.

    def get(self, *, timeout: float | None = None) -> Coroutine[Any, Any, T]:
        """Remove the next item and return it; wait while there is none.

        Nothing happens before the first `await`. If there is an item then, it does not
        yield to the loop.

        Args:
            timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
                for ever, 0 does not wait.

        Returns:
            A coroutine, to be awaited once. If it is cancelled, times out or raises
            anything else, it has taken nothing: an item that it was woken for goes to
            the next one who waits (Q2).

        Raises:
            ValueError: `timeout` is negative or not a number of seconds.
            asyncio.TimeoutError: In the await, when time is up.
            QueueShutDown: In the await, if the queue is or gets shut down and has no
                items left (Q5).
        """
        return _get(self, None if timeout is None else check_timeout(timeout))

    def get_nowait(self) -> T:
        """Remove the next item and return it, without waiting.

        Raises:
            asyncio.QueueEmpty: There is none now.
            QueueShutDown: The queue was shut down and has no items left (Q5).
        """
        ledger = self._ledger
        if ledger.hooked:
            return _get_with_hooks(self)  # type: ignore[no-any-return]
        item = ledger.get(None)
        if item is MISSED:
            raise QueueEmpty
        if ledger.putters:
            ledger.notify_putter()
        return item  # type: ignore[no-any-return]

    @called("Queue.__anext__")
    async def __anext__(self) -> T:
        try:
            return await _get(self, None)  # type: ignore[no-any-return]
        except QueueShutDown:
            raise StopAsyncIteration from None

    # Unfinished items.

    def task_done(self) -> None:
        """Account for one item that was got: the work on it is finished.

        Call it once for each item got, also if the work failed; else `join` waits for
        ever. When the last one is finished, all who wait in `join` are released (Q4).

        Raises:
            ValueError: There are no unfinished items: it was called more often than items
                were put, not counting dropped ones.
        """
        self._ledger.task_done()

    def join(self, *, timeout: float | None = None) -> Coroutine[Any, Any, None]:
        """Wait until every item accepted is finished: got and accounted for by `task_done`, or dropped.

        It returns when the number of unfinished items becomes zero, even if others are put
        before its task runs (Q4). A shutdown alone does not end it: what was got already
        is waited for (Q6).

        Args:
            timeout: Seconds from the `await` until `asyncio.TimeoutError`; `None` waits
                for ever, 0 does not wait.

        Returns:
            A coroutine, to be awaited once. Cancelling it changes nothing else.

        Raises:
            ValueError: `timeout` is negative or not a number of seconds.
            asyncio.TimeoutError: In the await, when time is up.
        """
        return _join(self, check_timeout(timeout))

    # The end.

    def shutdown(self, immediate: bool = False) -> None:
        """End the intake, for good; wake everybody who waits to put or to get.

        From now on every put raises `QueueShutDown`, also those that wait. What is in the
        queue may still be got; after that every get raises it, too (Q5). `join` and
        `task_done` go on as before. Idempotent, from any thread.

        Args:
            immediate: Drop what is in the queue, so that every get raises at once. Dropped
                items are no longer unfinished; those got before are, until their
                `task_done` (Q6). A graceful shutdown may be followed by an immediate one.
        """
        _shut_down(self, bool(immediate), ordered=False)

    def abort(self) -> list[T]:
        """Shut down at once, and return what was dropped: `shutdown(immediate=True)` for those who want to know (Q6).

        Returns:
            The items that were in the queue, in the order in which `get` would have given
            them; those of a `PriorityQueue` that cannot be compared, in the order in which
            they were put. Empty if the queue was, or was aborted before.
        """
        return _shut_down(self, True, ordered=True)

    # Looking.

    def qsize(self) -> int:
        """Return how many items are in the queue. With other threads at work it may be outdated at once."""
        if self._ledger.hooked:
            return _with_hooks(self, "_qsize")  # type: ignore[no-any-return]
        return self._ledger.size

    def empty(self) -> bool:
        """Return whether there is no item in the queue."""
        if self._ledger.hooked:
            return _with_hooks(self, "qsize") == 0  # type: ignore[no-any-return]
        return not self._ledger.size

    def full(self) -> bool:
        """Return whether there is no place in the queue: never if `maxsize` is 0 or less."""
        ledger = self._ledger
        if ledger.hooked:
            return bool(0 < ledger.maxsize <= _with_hooks(self, "qsize"))
        return ledger.size >= ledger.capacity

    @property
    def maxsize(self) -> int:
        """How many items fit, as given; 0 or less is no limit."""
        return self._ledger.maxsize  # type: ignore[no-any-return]

    @property
    def is_shutdown(self) -> bool:
        """Whether the queue was shut down."""
        return self._ledger.is_shutdown

    def _counts(self) -> tuple[int, int, int, int, int, int, int, int]:
        if self._ledger.hooked:
            return _counts_with_hooks(self)
        return self._ledger.counts()

    def _snapshot(self) -> list[T]:
        return self._ledger.snapshot()

    # Blocking.

    def _block_put(self, item: T, timeout: float | None) -> None:
        timeout = check_timeout(timeout)
        ledger = self._ledger
        key = ledger.key
        attempt = partial(_offer, self, item, item if key is None else key(item))
        _block(self, attempt, _pass_on_place, timeout, "await queue.put(item)")

    def _block_get(self, timeout: float | None) -> T:
        timeout = check_timeout(timeout)
        item: T = _block(self, partial(_take, self), _pass_on_item, timeout, "await queue.get()")
        return item

    def _block_join(self, timeout: float | None) -> None:
        timeout = check_timeout(timeout)
        ledger = self._ledger
        parker = Parker()
        if ledger.join(parker):
            try:
                if timeout != 0:
                    _refuse_in_loop("await queue.join()")
                _joined(ledger, parker.block(timeout))
            finally:
                ledger.leave(parker)


# One attempt each: the result, or MISSED, and then the parker, if any, waits.


def _offer(queue: Queue[Any], item: Any, key: Any, parker: Parker | None) -> Any:
    ledger = queue._ledger
    if ledger.hooked:
        return _offer_with_hooks(queue, item, parker)
    result = ledger.put(item, key, parker)
    if ledger.getters and result is not MISSED:
        ledger.notify_getter()
    return result


def _take(queue: Queue[Any], parker: Parker | None) -> Any:
    ledger = queue._ledger
    if ledger.hooked:
        return _take_with_hooks(queue, parker)
    item = ledger.get(parker)
    if ledger.putters and item is not MISSED:
        ledger.notify_putter()
    return item


# Attempts again and again. Who was notified and does not take what there is passes that on.


@called("Queue.put")
async def _put(queue: Queue[Any], item: Any, timeout: float | None) -> None:
    ledger = queue._ledger
    key = ledger.key
    sort_key = item if key is None else key(item)
    if _offer(queue, item, sort_key, None) is MISSED:
        await _persist(queue, partial(_offer, queue, item, sort_key), _pass_on_place, timeout)


@called("Queue.get")
async def _get(queue: Queue[Any], timeout: float | None) -> Any:
    item = _take(queue, None)
    if item is MISSED:
        return await _persist(queue, partial(_take, queue), _pass_on_item, timeout)
    return item


@called("Queue.join")
async def _join(queue: Queue[Any], timeout: float | None) -> None:
    ledger = queue._ledger
    parker = Parker()
    if ledger.join(parker):
        try:
            _joined(ledger, await parker.wait(timeout))
        finally:
            ledger.leave(parker)


def _joined(ledger: Ledger, outcome: tuple[str, Any]) -> None:
    # The last item may have been finished after time was up and before the waiter ran.
    if outcome[0] is not EXPIRED or ledger.unfinished:
        unwrap(outcome)


def _pass_on_item(queue: Queue[Any]) -> None:
    ledger = queue._ledger
    if not ledger.hooked or not _says_at_once(queue, "empty"):
        ledger.notify_getter()


def _pass_on_place(queue: Queue[Any]) -> None:
    ledger = queue._ledger
    if not ledger.hooked or not _says_at_once(queue, "full"):
        ledger.notify_putter()


Attempt = Callable[[Parker | None], Any]
PassOn = Callable[[Queue[Any]], None]


async def _persist(queue: Queue[Any], attempt: Attempt, pass_on: PassOn, timeout: float | None) -> Any:
    """Attempt it each time that it is notified, until it succeeds."""
    if timeout == 0:
        raise asyncio.TimeoutError
    deadline = None
    give_back = partial(pass_on, queue)
    parker = Parker()
    try:
        parker.line.append(give_back)
        while (result := attempt(parker)) is MISSED:
            if timeout is None:
                # As `parker.wait`, without another coroutine.
                if parker.park(running_hub()):
                    await parker
                outcome = parker.outcome
            else:
                now = asyncio.get_running_loop().time()
                if deadline is None:
                    deadline = now + timeout
                outcome = await parker.wait(max(0, deadline - now))
            expired = outcome[0] is EXPIRED
            if expired:
                queue._ledger.leave(parker)
            else:
                unwrap(outcome)
            if (result := attempt(None)) is not MISSED:
                break
            if expired:
                raise asyncio.TimeoutError
            parker = Parker()
            parker.line.append(give_back)
        return result
    except BaseException:
        if queue._ledger.leave(parker):
            give_back()
        raise


def _block(queue: Queue[Any], attempt: Attempt, pass_on: PassOn, timeout: float | None, instead: str) -> Any:
    """As `_persist`, for a thread, and with the first attempt."""
    if (result := attempt(None)) is not MISSED:
        return result
    if timeout == 0:
        raise Expired
    _refuse_in_loop(instead)
    deadline = None if timeout is None else time.monotonic() + timeout
    give_back = partial(pass_on, queue)
    parker = Parker()
    try:
        parker.line.append(give_back)
        while (result := attempt(parker)) is MISSED:
            if deadline is not None:
                timeout = max(0, deadline - time.monotonic())
            expired = parker.block(timeout)[0] is EXPIRED
            if expired:
                queue._ledger.leave(parker)
            if (result := attempt(None)) is not MISSED:
                break
            if expired:
                raise Expired
            parker = Parker()
            parker.line.append(give_back)
        return result
    except BaseException:
        if queue._ledger.leave(parker):
            give_back()
        raise


def _refuse_in_loop(instead: str) -> None:
    if _get_running_loop() is not None:
        raise RuntimeError(f"this would block the event loop that runs in this thread; use '{instead}'")


# Queues with hooks. What runs these, and asks whether it is worth it, runs in turn; hooks may call any method.


def _with_hooks(queue: Any, hook: str) -> Any:
    with queue._ledger.turn:
        return getattr(queue, hook)()


def _says_at_once(queue: Any, hook: str) -> bool:
    """As `_with_hooks`, but without waiting for the turn: the collector may call this, anywhere. In doubt, false."""
    turn = queue._ledger.turn
    if not turn.acquire(blocking=False):
        return False
    try:
        return bool(getattr(queue, hook)())
    except Exception:
        # It must not take the place of a cancellation; who is notified will see it, too.
        return False
    finally:
        turn.release()


def _put_with_hooks(queue: Any, item: Any) -> None:
    ledger = queue._ledger
    with ledger.turn:
        if ledger.is_shutdown:
            raise QueueShutDown
        if queue.full():
            raise QueueFull
        queue._put(item)
        ledger.count_put()
        ledger.notify_getter()


def _get_with_hooks(queue: Any) -> Any:
    ledger = queue._ledger
    with ledger.turn:
        # Before it looks for items: after the shutdown nothing is put.
        is_shutdown = ledger.is_shutdown
        if queue.empty():
            raise QueueShutDown if is_shutdown else QueueEmpty
        item = queue._get()
        ledger.count_get()
        ledger.notify_putter()
        return item


def _offer_with_hooks(queue: Any, item: Any, parker: Parker | None) -> Any:
    ledger = queue._ledger
    with ledger.turn:
        while True:
            traffic = ledger.traffic()
            if ledger.is_shutdown:
                raise QueueShutDown
            if not queue.full():
                return queue.put_nowait(item)
            if parker is None or ledger.wait(ledger.putters, parker, traffic):
                return MISSED


def _take_with_hooks(queue: Any, parker: Parker | None) -> Any:
    ledger = queue._ledger
    with ledger.turn:
        while True:
            traffic, is_shutdown = ledger.traffic(), ledger.is_shutdown
            if not queue.empty():
                return queue.get_nowait()
            if is_shutdown:
                raise QueueShutDown
            if parker is None or ledger.wait(ledger.getters, parker, traffic):
                return MISSED


def _drop_with_hooks(queue: Any, dropped: list[Any]) -> None:
    ledger = queue._ledger
    with ledger.turn:
        while not queue.empty():
            dropped.append(queue._get())
            ledger.count_dropped()


def _counts_with_hooks(queue: Any) -> tuple[int, int, int, int, int, int, int, int]:
    with queue._ledger.turn:
        size = queue.qsize()
        _, unfinished, accepted, delivered, dropped, getters, putters, joiners = queue._ledger.counts()
        return size, unfinished, accepted, delivered, dropped, getters, putters, joiners


def _shut_down(queue: Queue[Any], immediate: bool, ordered: bool) -> list[Any]:
    """Return what was dropped."""
    ledger = queue._ledger
    dropped: list[Any] = []
    try:
        ledger.shut_down()
        if immediate and ledger.hooked:
            _drop_with_hooks(queue, dropped)
        elif immediate:
            dropped = ledger.drop(ordered)
    finally:
        # In the order in which asyncio's wake.
        ledger.notify_joiners()
        ledger.notify_waiting()
    return dropped
