"""A binary heap that is searched without a lock and changed in one step."""

from __future__ import annotations

from typing import Any, NamedTuple

from interlock._pure.lock import lock

# Key, serial number, item.
Entry = tuple[Any, int, Any]


class Change(NamedTuple):
    """What adding or removing an entry does to the heap of that version."""

    version: int
    places: dict[int, Entry]


class Heap:
    """Entries by their keys. Of two of which neither is less, the older one is first.

    Comparing is the user's code, and may do anything: use the queue, take long, raise.
    So a search changes nothing, and what it has found holds while the version stands.
    The entries are in a dictionary, by their positions, because its `update` changes any
    number of them in one call, which nothing can interrupt.
    """

    __slots__ = ("entries", "version")

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}
        self.version = 0

    def adding(self, key: Any, item: Any) -> Change | None:
        """How to add this; None if others have changed the heap meanwhile."""
        version, entries = self._now()
        places: dict[int, Entry] = {}
        hole = len(entries)
        while hole:
            parent = (hole - 1) // 2
            above = entries.get(parent)
            if above is None:
                return None
            # It is the newest.
            if not key < above[0]:
                break
            places[hole] = above
            hole = parent
        # No version has two additions.
        places[hole] = (key, version, item)
        return Change(version, places)

    def removing(self) -> Change | None:
        """How to remove the first entry, when that in the last place is out; None as above."""
        version, entries = self._now()
        end = len(entries) - 1
        # Down to a leaf along the smaller children. The last entry comes from the leaves and
        # mostly goes back there, so comparing it on the way would be waste.
        path: list[tuple[int, Entry]] = []
        child = 1
        while child < end:
            smaller, other = entries.get(child), entries.get(child + 1)
            if smaller is None or other is None:
                return None
            if child + 1 < end and not _before(smaller, other):
                child, smaller = child + 1, other
            path.append((child, smaller))
            child = 2 * child + 1
        last = entries.get(end)
        if last is None:
            return None
        while path and _before(last, path[-1][1]):
            path.pop()
        places: dict[int, Entry] = {}
        hole = 0
        for position, entry in path:
            places[hole] = entry
            hole = position
        if end:
            places[hole] = last
        return Change(version, places)

    def copy(self) -> Heap:
        """The same heap, for the caller alone."""
        copied = Heap()
        with lock:
            # One step.
            copied.version = self.version
            copied.entries = self.entries.copy()
        return copied

    def _now(self) -> tuple[int, dict[int, Entry]]:
        # With the lock, or where threads run in parallel it might be in the middle of a change.
        with lock:
            return self.version, self.entries

    def drain(self) -> list[Any]:
        """The items of a heap that nobody else has, in order; in that of insertion if they cannot be compared."""
        entries, items = self.entries, []
        inserted = sorted(entries.values(), key=lambda entry: entry[1])
        try:
            while entries:
                change = self.removing()
                assert change is not None
                items.append(entries[0][2])
                del entries[len(entries) - 1]
                entries.update(change.places)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            items = [entry[2] for entry in inserted]
        return items


def _before(one: Entry, other: Entry) -> bool:
    """Whether one goes before the other: a single comparison tells, the older one being first unless it is greater."""
    if one[1] < other[1]:
        return not other[0] < one[0]
    return bool(one[0] < other[0])
