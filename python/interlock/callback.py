"""What is called back, where, and what becomes of its errors (W10, X13)."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import weakref
from asyncio.events import _get_running_loop
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from interlock._backend import core

__all__ = ["Callback", "CallbackHandle"]

CallbackHandle = core.CallbackHandle

_logger = logging.getLogger("interlock")

# asyncio keeps only weak references to tasks; these hold them until they are done.
_running_tasks: set[asyncio.Task[Any]] = set()


class Callback:
    """A user's function with the context and the loop it was registered in.

    The backend calls `function` in `context`, hands an exception to `failed` and a
    result that is not `None` to `returned`.
    """

    __slots__ = ("_loop", "_user_function", "_what", "context", "function", "handle")

    def __init__(self, function: Callable[..., object], what: str) -> None:
        if not callable(function):
            raise TypeError(f"{what} needs a callable, not {type(function).__name__}")
        loop = _get_running_loop()
        self.context: Context = copy_context()
        self._loop = None if loop is None else weakref.ref(loop)
        self._user_function = function
        self._what = what
        # Set once registered. What is under way to a loop asks it (W10).
        self.handle: CallbackHandle | None = None
        self.function: Callable[..., object] = function
        if _is_coroutine_function(function):
            if loop is None:
                raise RuntimeError(
                    f"{what} with a coroutine function needs a running event loop to run it on; "
                    "register it inside a coroutine, or pass a plain function"
                )
            self.function = TaskStarter(self, loop)
        elif what == "on_value" and loop is not None:
            self.function = self._call_in_loop

    def _call_in_loop(self) -> object:
        """Call it in the loop where it was registered, or here if that one is closed."""
        loop = self.loop()
        if loop is not None and _get_running_loop() is not loop:
            try:
                # A copy, because the setter's thread is in the context at this moment.
                loop.call_soon_threadsafe(self._call_here, context=self.context.copy())
            except RuntimeError:
                pass  # the loop is closed
            else:
                return None
        return self._user_function()

    def _call_here(self) -> None:
        if self.cancelled:
            return
        try:
            result = self._user_function()
            if result is not None:
                self.returned(result)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Report what the callback raised: to its loop's exception handler, else to the log."""
        message = f"Exception in {self._what} callback {self._user_function!r}"
        loop = self.loop()
        if loop is not None:
            details = {"message": message, "exception": error}
            if _get_running_loop() is loop:
                loop.call_exception_handler(details)
                return
            try:
                loop.call_soon_threadsafe(loop.call_exception_handler, details)
            except RuntimeError:
                pass  # the loop is closed
            else:
                return
        _logger.error(message, exc_info=error)

    def returned(self, result: object) -> None:
        """A plain function may still return a coroutine (a lambda does); run it rather than drop it."""
        if not asyncio.iscoroutine(result):
            return
        loop = self.loop()
        if loop is None:
            result.close()
            self.failed(
                RuntimeError("the callback returned a coroutine, but no event loop was running where it was registered")
            )
            return
        TaskStarter(self, loop)(coroutine=result)

    @property
    def cancelled(self) -> bool:
        return self.handle is not None and self.handle.cancelled

    def loop(self) -> asyncio.AbstractEventLoop | None:
        return None if self._loop is None else self._loop()

    def start(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, object]) -> None:
        # A copy, because several of these tasks may be under way at once and a
        # context can be entered only by one of them.
        task = self.context.copy().run(loop.create_task, coroutine)
        _running_tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        _running_tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)

    def call(self, *arguments: Any) -> Coroutine[Any, Any, object]:
        result: Coroutine[Any, Any, object] = self._user_function(*arguments)  # type: ignore[assignment]
        return result


class TaskStarter:
    """Starts a coroutine function as a task, on its own loop, from any thread.

    A burst of calls is one handle in the loop (X3).
    """

    __slots__ = ("_callback", "_idle", "_loop", "_pending")

    def __init__(self, callback: Callback, loop: asyncio.AbstractEventLoop) -> None:
        self._callback = callback
        self._loop = weakref.ref(loop)
        self._pending: deque[tuple[tuple[Any, ...], Coroutine[Any, Any, object] | None]] = deque()
        # Held while a handle is scheduled. Only ever tried, never waited for.
        self._idle = threading.Lock()

    def __call__(self, *arguments: Any, coroutine: Coroutine[Any, Any, object] | None = None) -> None:
        loop = self._loop()
        if loop is None:
            return
        self._pending.append((arguments, coroutine))
        if self._idle.acquire(blocking=False):
            try:
                loop.call_soon_threadsafe(self._run, loop)
            except RuntimeError:  # the loop is closed: nobody is left to run them (X4)
                self._drop()

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        self._idle.release()
        for _ in range(len(self._pending)):
            arguments, coroutine = self._pending.popleft()
            if self._callback.cancelled:
                if coroutine is not None:
                    coroutine.close()
                continue
            try:
                self._callback.start(loop, coroutine or self._callback.call(*arguments))
            except Exception as error:
                self._callback.failed(error)

    def _drop(self) -> None:
        while self._pending:
            _, coroutine = self._pending.popleft()
            if coroutine is not None:
                coroutine.close()
        self._idle.release()


def _is_coroutine_function(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
