"""What can take part: names, labels, versions; and what of it is installed here."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

RUST = "interlock-rust"
PURE = "interlock-pure"
ANYIO = "anyio"

# Of the watchers only.
INNGEST = "inngest"
QUEUES = "queues"
FUTURES = "futures"
FREQUENZ = "frequenz"

# Of the queues only.
ASYNCIO = "asyncio"
JANUS = "janus"
CULSANS = "culsans"
AIOLOGIC = "aiologic"
CALL_SOON = "call-soon"
QUEUE = "queue"
SIMPLE = "simple-queue"


class _Known(NamedTuple):
    label: str
    distribution: str | None = None  # None: the standard library or the source tree
    possessive: str | None = None


_KNOWN = {
    RUST: _Known("interlock (Rust)"),
    PURE: _Known("interlock (pure)"),
    INNGEST: _Known("Inngest's ValueWatcher", "inngest", "Inngest's"),
    QUEUES: _Known("queue per consumer"),
    FUTURES: _Known("bare futures"),
    ANYIO: _Known("anyio memory streams", "anyio"),
    FREQUENZ: _Known("frequenz-channels broadcast", "frequenz-channels"),
    ASYNCIO: _Known("asyncio"),
    JANUS: _Known("janus", "janus"),
    CULSANS: _Known("culsans", "culsans"),
    AIOLOGIC: _Known("aiologic", "aiologic"),
    CALL_SOON: _Known("call_soon_threadsafe per item"),
    QUEUE: _Known("queue.Queue"),
    SIMPLE: _Known("queue.SimpleQueue"),
}


def label(name: str) -> str:
    """What the tables call the implementation `name`."""
    return _KNOWN[name].label


def possessive(name: str) -> str:
    """What the head of a column of ratios calls it: whose time was divided."""
    return _KNOWN[name].possessive or label(name)


def version(distribution: str) -> str:
    """The version that is installed.

    Raises:
        ImportError: None is.
    """
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(f"{distribution} is not installed") from error


MadeT = TypeVar("MadeT")


@dataclasses.dataclass(frozen=True)
class Implementation(Generic[MadeT]):
    """A name, and how to make one of it (inside a running loop).

    Attributes:
        name: For the command line.
        label: For the tables.
        kind: What `make` returns: its base classes tell where it can take part.
        make: Makes one.
        version: Of its distribution; empty for the standard library and the source tree.
    """

    name: str
    label: str
    kind: type[MadeT]
    make: Callable[[], MadeT]
    version: str


#: Imports what is needed; what it returns makes the implementation, and its class.
Loader = Callable[[], tuple[type[MadeT], Callable[[], MadeT]]]


class Candidates(Generic[MadeT]):
    """The implementations of one group."""

    def __init__(self, loaders: Mapping[str, Loader[MadeT]]) -> None:
        self._loaders = loaders
        self.names = tuple(loaders)

    def find(self, name: str) -> Implementation[MadeT]:
        """The implementation `name`.

        Raises:
            ImportError: It is not installed.
        """
        distribution = _KNOWN[name].distribution
        installed = "" if distribution is None else version(distribution)
        kind, make = self._loaders[name]()
        return Implementation(name, label(name), kind, make, installed)

    def available(self, names: Iterable[str]) -> tuple[list[Implementation[MadeT]], dict[str, str]]:
        """Those of `names` that are of this group and installed, and for those not installed why not."""
        found: list[Implementation[MadeT]] = []
        missing: dict[str, str] = {}
        for name in names:
            if name not in self._loaders:
                continue
            try:
                found.append(self.find(name))
            except ImportError as error:
                missing[name] = str(error)
        return found, missing
