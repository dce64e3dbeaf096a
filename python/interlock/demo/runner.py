"""`asyncio.run` for a program that Ctrl-C ends cleanly, on Python 3.10 as well."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
    """Run `main` for at most `timeout` seconds; Ctrl-C cancels it, and is raised when it has ended.

    Python 3.10 raises it in the midst of the loop's own code, and later versions do so
    while a loop is made or closed, which leaves transports open or loses the interrupt.
    """
    if threading.current_thread() is not threading.main_thread():
        return asyncio.run(asyncio.wait_for(main, timeout))  # signals are not for this thread
    interrupted = False
    cancel: Callable[[], None] | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        if interrupted:
            raise KeyboardInterrupt  # asked twice: do not wait for the end
        interrupted = True
        if cancel is not None:
            cancel()

    async def cancellable() -> T:
        nonlocal cancel
        loop = asyncio.get_running_loop()
        task = loop.create_task(main)

        def cancel_task() -> None:
            loop.call_soon_threadsafe(task.cancel)

        cancel = cancel_task
        if interrupted:
            task.cancel()
        try:
            return await asyncio.wait_for(task, timeout)
        finally:
            cancel = None

    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        result = asyncio.run(cancellable())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    if interrupted:
        raise KeyboardInterrupt
    return result
