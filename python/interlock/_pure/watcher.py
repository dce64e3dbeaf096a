"""The watched value: one total order of transitions, and whom each of them concerns."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from interlock._pure.callback import CallbackHandle
from interlock._pure.history import Node, Window
from interlock._pure.lock import lock
from interlock._pure.matching import Registration, matcher
from interlock._pure.parker import Parker, notify_all
from interlock._pure.registry import Registry, hash_or_none
from interlock._pure.turn import Turn
from interlock._pure.waiter import Wait, check_timeout, unwrap
from interlock.equality import equal
from interlock.errors import WatcherClosed

if TYPE_CHECKING:
    from typing_extensions import Self

    from interlock._pure.subscription import Cursor
    from interlock.callback import Callback

T = TypeVar("T")


class Watcher(Generic[T]):
    __slots__ = (
        "_callbacks",
        "_closed",
        "_cursors",
        "_dispatched",
        "_dispatching",
        "_equals",
        "_error",
        "_initialised",
        "_matched",
        "_matching",
        "_once",
        "_parked",
        "_tail",
        "_waiters",
        "_windows",
    )

    _tail: Node
    _initialised: bool
    _equals: Callable[[Any, Any], object] | None
    _closed: bool
    _error: BaseException | None
    # Readers of subscriptions that have nothing to read.
    _parked: dict[Parker, None]
    _cursors: dict[Cursor, None]
    _windows: dict[int, Window]
    # Two jobs follow the log, each done by one thread at a time so that it is done in
    # order: matching waiters, and calling callbacks. A slow callback delays no waiter.
    _waiters: Registry
    _matched: Node
    _matching: Turn
    _callbacks: dict[CallbackHandle, None]
    _once: Registry
    _dispatched: Node
    _dispatching: Turn

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Takes any arguments, so that a subclass may have an `__init__` of its own."""
        self = super().__new__(cls)
        self._tail = self._matched = self._dispatched = Node(None, 0)
        self._initialised = self._closed = False
        self._equals = equal
        self._error = None
        self._parked = {}
        self._cursors = {}
        self._windows = {}
        self._waiters = Registry()
        self._matching = Turn()
        self._callbacks = {}
        self._once = Registry()
        self._dispatching = Turn()
        return self

    def _init(self, initial_value: T, equals: Callable[[T, T], object] | None) -> None:
        with lock:
            # One step.
            if not self._initialised:
                self._initialised = True
                self._equals = equals
                self._tail.value = initial_value
                return
        raise RuntimeError("this watcher is initialised already; make another one, or set its value")

    @property
    def value(self) -> T:
        """The current value. Setting it is `set`."""
        value: T = self._tail.value
        return value

    @value.setter
    def value(self, new_value: T) -> None:
        self.set(new_value)

    @property
    def version(self) -> int:
        """How many transitions there have been."""
        return self._tail.version

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    # Setting.

    def set(self, new_value: T) -> None:
        """Set the value; a transition unless it is equal to the current one (W5).

        When this returns, every consumer has the transition: waits are resolved and
        callbacks have run, unless another thread was dispatching, which then does it.

        Args:
            new_value: Any value, `None` and exceptions included.

        Raises:
            WatcherClosed: The watcher is closed.
        """
        while True:
            seen = self._tail
            if self._closed:
                raise self._closed_error()
            if self._is_equal(seen.value, new_value) or self._commit(seen, new_value):
                return

    def set_if(self, new_value: T, condition: Callable[[T], object]) -> bool:
        while True:
            seen = self._tail
            if self._closed:
                raise self._closed_error()
            if not condition(seen.value):
                return False
            if self._is_equal(seen.value, new_value) or self._commit(seen, new_value):
                return True

    def update(self, function: Callable[[T], T]) -> T:
        while True:
            seen = self._tail
            if self._closed:
                raise self._closed_error()
            new_value = function(seen.value)
            if self._is_equal(seen.value, new_value) or self._commit(seen, new_value):
                return new_value

    def _is_equal(self, old: T, new: T) -> bool:
        equals = self._equals
        if equals is None:
            return False
        # The default rule needs no second guard.
        if equals is equal:
            return equal(old, new)
        try:
            return bool(equals(old, new))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            return False

    def _commit(self, seen: Node, new_value: T) -> bool:
        """Append a transition, if `seen` is still the newest; then tell everybody."""
        node = Node(new_value, seen.version + 1)
        nobody: dict[Parker, None] = {}
        with lock:
            # One step.
            if not self._closed and self._tail is seen:
                seen.next = node
                self._tail = node
                parked, self._parked = self._parked, nobody
            else:
                return False
            # One step each. Where they do not apply, the jobs below walk the log.
            if not self._waiters._by_hash and not self._waiters._scanned and self._matched is seen:
                self._matched = node
            if not self._callbacks and not self._once._by_hash and not self._once._scanned and self._dispatched is seen:
                self._dispatched = node
        interrupts: list[BaseException] = []
        if parked:
            notify_all(parked, interrupts)
        for window in list(self._windows.values()):
            window.slide(self._tail)
        self._match(interrupts)
        self._dispatch(interrupts)
        if interrupts:
            raise interrupts[0]
        return True

    def close(self, error: BaseException | None) -> None:
        nobody: dict[Parker, None] = {}
        with lock:
            # One step.
            if not self._closed:
                self._error = error
                self._closed = True
                parked, self._parked = self._parked, nobody
            else:
                return
        interrupts: list[BaseException] = []
        notify_all(parked, interrupts)
        self._match(interrupts)
        self._dispatch(interrupts)
        if interrupts:
            raise interrupts[0]

    def _closed_error(self) -> WatcherClosed:
        error = WatcherClosed(
            "the watcher is closed; its value stays readable, but it can no longer be set or waited for"
        )
        error.__cause__ = self._error
        return error

    # Whom a transition concerns.

    def _match(self, interrupts: list[BaseException]) -> None:
        while self._matched is not self._tail or (self._closed and self._waiters):
            if not self._matching.take():
                return
            try:
                while (node := self._matched.next) is not None:
                    self._matched = node
                    self._try_entries(self._waiters, node, interrupts)
                if self._closed:
                    for entry in self._waiters.all():
                        entry._failed(self._error or self._closed_error())
                    with lock:
                        self._waiters = Registry()
            finally:
                self._matching.give_back()

    def _dispatch(self, interrupts: list[BaseException]) -> None:
        while self._dispatched is not self._tail or (self._closed and (self._callbacks or self._once)):
            if not self._dispatching.take():
                return
            try:
                while (node := self._dispatched.next) is not None:
                    old = self._dispatched.value
                    self._dispatched = node
                    for handle in list(self._callbacks):
                        if handle._since < node.version:
                            interrupt = handle._call(old, node.value)
                            if interrupt is not None:
                                interrupts.append(interrupt)
                    self._try_entries(self._once, node, interrupts)
                if self._closed:
                    # Nothing will be called any more: let go of it.
                    self._callbacks = {}
                    self._once = Registry()
            finally:
                self._dispatching.give_back()

    def _try_entries(self, registry: Registry, node: Node, interrupts: list[BaseException]) -> None:
        """Match one transition against those registered before it."""
        if not registry:
            return
        value = node.value
        try:
            key = hash_or_none(value) if registry._by_hash else 0
        except (KeyboardInterrupt, SystemExit) as stop:
            # Without a hash everybody is tried, so it loses nothing.
            interrupts.append(stop)
            key = None
        for entry in registry.candidates(key):
            if entry._since >= node.version or entry._match is None:
                continue
            try:
                if not entry._match(value):
                    continue
                interrupt = entry._matched(value)
                if interrupt is not None:
                    interrupts.append(interrupt)
            except (KeyboardInterrupt, SystemExit) as stop:
                interrupts.append(stop)
                continue
            except BaseException as error:
                entry._failed(error)
            with lock:
                registry.discard(entry)

    # Waiting.

    def _register(self, kind: str, operand: Any, immediate: bool) -> Registration:
        match, key = matcher(kind, operand)
        parker = Parker(key, match)
        registration = Registration(self, parker)
        try:
            seen = self._tail
            if immediate and match(seen.value):
                parker._matched(seen.value)
                return registration
            with lock:
                # One step, but for the entry itself, which may come later: a transition
                # in between is newer than `since` and finds it, or is looked at below.
                node = self._tail
                parker._since = node.version
                self._waiters.add(parker)
            if self._closed:
                parker._failed(self._error or self._closed_error())
            elif immediate and node is not seen and match(node.value):
                parker._matched(node.value)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            parker._failed(error)
        return registration

    def _wait(self, kind: str, operand: Any, immediate: bool, timeout: float | None) -> Coroutine[Any, Any, Any]:
        seconds = check_timeout(timeout)
        return Wait(kind, self._register(kind, operand, immediate), seconds)

    def _block(self, kind: str, operand: Any, immediate: bool, timeout: float | None) -> Any:
        seconds = check_timeout(timeout)
        registration = self._register(kind, operand, immediate)
        try:
            return unwrap(registration.parker.block(seconds))
        finally:
            registration.cancel()

    # Callbacks.

    def _on_change(self, callback: Callback) -> CallbackHandle:
        handle = CallbackHandle(self, callback)
        with lock:
            handle._since = self._tail.version
            if not self._closed:
                self._callbacks[handle] = None
        return handle

    def _on_value(self, value: T, callback: Callback) -> CallbackHandle:
        handle = CallbackHandle(self, callback, hash_or_none(value), lambda current: equal(current, value))
        with lock:
            node = self._tail
            handle._since = node.version
            if not self._closed:
                self._once.add(handle)
                # A signal handler may have set the value in the middle, and so fired it.
                if handle._watcher is None:
                    self._once.discard(handle)
        if equal(node.value, value):
            interrupt = handle._fire()
            if interrupt is not None:
                raise interrupt
        return handle

    def _forget(self, handle: CallbackHandle) -> None:
        with lock:
            self._callbacks.pop(handle, None)
            self._once.discard(handle)

    def _counts(self) -> tuple[int, int, int, int, int]:
        tail = self._tail
        oldest = [window.anchor.version for window in list(self._windows.values())]
        oldest.extend(cursor.version for cursor in list(self._cursors) if cursor.window is None)
        return (
            tail.version,
            len(self._cursors),
            len(self._waiters),
            len(self._callbacks) + len(self._once),
            tail.version - min(oldest, default=tail.version),
        )
