"""Who waits for which value: indexed by hash, so that a set finds only those it may concern (W15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Entry(Protocol):
    """What is registered: a waiter or a one-shot callback."""

    _key: int | None
    _match: Callable[[Any], object] | None
    _since: int

    def _matched(self, value: Any) -> BaseException | None: ...

    def _failed(self, error: BaseException) -> None: ...


def hash_or_none(value: Any) -> int | None:
    """The hash, if the value has one: what raises, for whatever reason, has none."""
    try:
        return hash(value)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


class Registry:
    """Entries by the hash of the value they wait for; those without one are tried at every transition.

    The keys are the hashes, not the values, so that no user's `__eq__` runs in here.
    """

    __slots__ = ("_by_hash", "_scanned")

    def __init__(self) -> None:
        self._by_hash: dict[int, dict[Entry, None]] = {}
        self._scanned: dict[Entry, None] = {}

    def __bool__(self) -> bool:
        return bool(self._by_hash) or bool(self._scanned)

    def __len__(self) -> int:
        return len(self._scanned) + sum(map(len, list(self._by_hash.values())))

    def add(self, entry: Entry) -> None:
        key = entry._key
        if key is None:
            self._scanned[entry] = None
            return
        by_hash = self._by_hash
        fresh: dict[Entry, None] = {entry: None}
        while True:
            bucket = by_hash.setdefault(key, fresh)
            # An interruption may have removed the bucket as empty: one step from check to entry.
            if key in by_hash and by_hash[key] is bucket:
                bucket[entry] = None
                return

    def discard(self, entry: Entry) -> None:
        key = entry._key
        if key is None:
            self._scanned.pop(entry, None)
            return
        bucket = self._by_hash.get(key)
        if bucket is None:
            return
        bucket.pop(entry, None)
        # One step.
        if not bucket and key in self._by_hash and self._by_hash[key] is bucket:
            del self._by_hash[key]

    def candidates(self, key: int | None) -> list[Entry]:
        """Whom a transition to a value with this hash may concern: without a hash, all."""
        if key is None:
            return self.all()
        bucket = self._by_hash.get(key)
        return [*bucket, *self._scanned] if bucket else list(self._scanned)

    def all(self) -> list[Entry]:
        found: list[Entry] = []
        for bucket in list(self._by_hash.values()):
            found.extend(list(bucket))
        found.extend(list(self._scanned))
        return found
