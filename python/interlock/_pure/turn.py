"""One job, several threads that have cause to do it."""

from __future__ import annotations

import threading

from interlock._pure import hub


class Turn:
    """Lets one thread at a time do a job that others only announce.

    It is tried, never waited for: who does not get it knows that the holder will look
    again. A turn that was held by a thread of the parent of a fork is void (X12).
    """

    __slots__ = ("_generation", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._generation = hub.generation

    def take(self) -> bool:
        if self._lock.acquire(blocking=False):
            self._generation = hub.generation
            return True
        if self._generation == hub.generation:
            return False
        self._generation = hub.generation
        self._lock = threading.Lock()
        return self._lock.acquire(blocking=False)

    def give_back(self) -> None:
        if self._generation == hub.generation and self._lock.locked():
            self._lock.release()
