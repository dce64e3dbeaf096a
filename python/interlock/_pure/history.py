"""One log of transitions, shared by all consumers; each is a cursor into it."""

from __future__ import annotations

from typing import Any


class Node:
    """The value after one transition, and the way to the next.

    Who holds a node holds all later ones; who holds none lets them go. So the log
    trims itself behind its slowest cursor. A node does not know the value before
    it: the current node would keep it alive (X8). The cursor knows.
    """

    __slots__ = ("__weakref__", "next", "value", "version")

    def __init__(self, value: Any, version: int) -> None:
        self.value = value
        self.version = version
        self.next: Node | None = None


class Window:
    """Keeps the last `limit` transitions for the bounded subscriptions of that limit.

    Their cursors hold nodes only weakly, or a reader that fell behind would keep
    everything. The anchor follows the newest node at a distance of `limit`, and
    jumps to it when every member has caught up.
    """

    __slots__ = ("_at_tail", "_members", "_tail_version", "anchor", "limit")

    def __init__(self, limit: int, tail: Node) -> None:
        self.limit = limit
        self.anchor = tail
        self._members = 0
        self._at_tail = 0
        self._tail_version = tail.version

    def slide(self, tail: Node) -> Node:
        """Move the anchor to within `limit` of the newest node; return it."""
        anchor = self.anchor
        while tail.version - anchor.version > self.limit:
            assert anchor.next is not None
            anchor = anchor.next
        self.anchor = anchor
        return anchor

    def join(self, tail: Node) -> None:
        self._members += 1
        self.moved(tail, tail)

    def moved(self, node: Node, tail: Node) -> None:
        """A member has passed everything up to `node`."""
        if node is tail:
            if self._tail_version != tail.version:
                self._tail_version = tail.version
                self._at_tail = 0
            self._at_tail += 1
            if self._at_tail >= self._members:
                self.anchor = tail
        elif self._members == 1:
            self.anchor = node

    def leave(self, version: int, tail: Node) -> bool:
        """A member that had passed `version` is gone; return whether it was the last."""
        self._members -= 1
        if version == self._tail_version:
            self._at_tail -= 1
        if self._at_tail >= self._members and self._tail_version == tail.version:
            self.anchor = tail
        return self._members == 0
