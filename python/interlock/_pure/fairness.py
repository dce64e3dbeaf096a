"""An operation on a heap, from its first try to the last.

Others may change the heap while its items are compared, and then the search begins anew.
Where comparing takes long and others never pause, it would never end. So one that has been
overtaken again and again makes a reservation: for a while the operations that other
threads begin wait for it. Only for a while, because comparing is the user's code, and may
itself wait for one of those.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from interlock._pure.lock import lock

# How often an operation is overtaken before it makes a reservation.
OVERTAKEN = 100

# How long a reservation stands, in seconds, at most: until it is renewed for the next try.
COURTESY = 1.0

# How often those who wait for it look again, in seconds.
PAUSE = 0.001

# How often an operation begins anew before it gives up.
PATIENCE = 1_000


class Reservation(NamedTuple):
    holder: int
    until: float

    def is_over(self) -> bool:
        # Its holder may be gone: a thread of the parent of a fork (X12), or one that was interrupted.
        return time.monotonic() >= self.until


class Fairness:
    """Who is to be left alone with the heap."""

    __slots__ = ("_reservation",)

    def __init__(self) -> None:
        self._reservation: Reservation | None = None

    def tries(self) -> Iterator[None]:
        """One for each try of an operation, until it gives up."""
        has_precedence = False
        for _ in range(OVERTAKEN):
            if self._reservation is not None and not has_precedence:
                self._give_way()
                has_precedence = True  # it has waited for others enough
            yield
        try:
            for _ in range(PATIENCE - OVERTAKEN):
                self._reserve()
                yield
        finally:
            # If it was over, another may have made one since.
            with lock:
                reservation = self._reservation
                if reservation is not None and reservation.holder == threading.get_ident():
                    self._reservation = None

    def _reserve(self) -> None:
        with lock:
            other = self._reservation
            if other is None or other.is_over():
                self._reservation = Reservation(threading.get_ident(), time.monotonic() + COURTESY)

    def _give_way(self) -> None:
        """Wait while there is a reservation of another thread."""
        me = threading.get_ident()
        while True:
            reservation = self._reservation
            if reservation is None or reservation.holder == me or reservation.is_over():
                return
            time.sleep(PAUSE)


def impatient() -> RuntimeError:
    return RuntimeError(
        f"the queue has changed {PATIENCE:,} times while its items were compared; a comparison must not change it "
        "each time, nor take seconds beside threads that use it without pause"
    )
