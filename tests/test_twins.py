"""The two backends are one library: same names, same signatures, same words, same results."""

from __future__ import annotations

import ast
import asyncio
import inspect
import pydoc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock as package
from helpers import Array, Unequal, ticks
from interlock.demo.backends import load

PUBLIC = [name for name in package.__all__ if name != "backend"]
STUB = Path(package.__file__).with_name("_core.pyi")


@pytest.fixture(scope="module")
def twins() -> tuple[Any, Any]:
    return load("rust"), load("pure")


def test_each_is_the_backend_that_it_says(twins: tuple[Any, Any]) -> None:
    assert [twin.backend for twin in twins] == ["rust", "pure"]
    assert twins[0].ValueWatcher is not twins[1].ValueWatcher


def test_they_export_the_same_names(twins: tuple[Any, Any]) -> None:
    rust, pure = twins
    assert rust.__all__ == pure.__all__
    for name in rust.__all__:
        assert hasattr(rust, name) and hasattr(pure, name)


def members(cls: type) -> dict[str, Any]:
    """Everything public that a class offers, the protocols included, wherever it comes from."""
    dunders = {"__aiter__", "__anext__", "__enter__", "__exit__", "__iter__", "__next__"}
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_") or name in dunders}


@pytest.mark.parametrize("name", PUBLIC)
def test_classes_have_the_same_members(twins: tuple[Any, Any], name: str) -> None:
    rust, pure = (getattr(twin, name) for twin in twins)
    # Slots of the pure backend are not part of the interface.
    assert sorted(members(rust)) == sorted(
        member for member, found in members(pure).items() if type(found).__name__ != "member_descriptor"
    )


def described(function: Any) -> tuple[Any, Any]:
    try:
        # Without `self`, which only a built-in method makes positional.
        signature = [
            (parameter.name, parameter.kind, repr(parameter.default))
            for parameter in list(inspect.signature(function).parameters.values())[1:]
        ]
    except ValueError:
        signature = None
    return signature, inspect.getdoc(function)


@pytest.mark.parametrize("name", PUBLIC)
def test_members_have_the_same_signatures_and_docstrings(twins: tuple[Any, Any], name: str) -> None:
    rust, pure = (getattr(twin, name) for twin in twins)
    assert inspect.getdoc(rust) == inspect.getdoc(pure)
    assert inspect.getdoc(rust)
    if rust is pure:
        return
    for member in members(rust):
        ours, theirs = (inspect.getattr_static(cls, member) for cls in (rust, pure))
        if callable(getattr(rust, member)):
            expected = described(getattr(pure, member))
            found = described(getattr(rust, member))
            if member.startswith("__"):
                # Of a slot wrapper, CPython writes these.
                continue
            assert found == expected, member
            assert found[1], f"{name}.{member} has no docstring"
        else:
            assert inspect.getdoc(ours) == inspect.getdoc(theirs), member
            assert inspect.getdoc(ours), f"{name}.{member} has no docstring"
    for cls in (rust, pure):
        assert pydoc.render_doc(cls)


@pytest.mark.parametrize("name", PUBLIC)
def test_classes_can_be_called_alike(twins: tuple[Any, Any], name: str) -> None:
    rust, pure = (getattr(twin, name) for twin in twins)
    if name == "CallbackHandle":
        for cls in (rust, pure):
            with pytest.raises(TypeError):
                cls()
    elif rust is not pure:
        assert inspect.signature(rust) == inspect.signature(pure)


def declared() -> Iterator[tuple[str, str]]:
    """Each member of each class in the stub."""
    for node in ast.parse(STUB.read_text()).body:
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                assert isinstance(member, ast.FunctionDef)
                yield node.name, member.name


@pytest.mark.parametrize(("cls", "member"), sorted(set(declared())))
def test_the_stub_s_members_exist_in_both(cls: str, member: str) -> None:
    import interlock._core as rust
    import interlock._pure as pure

    for backend in (rust, pure):
        assert callable(getattr(backend, cls))
        inspect.getattr_static(getattr(backend, cls), member)


def outcome(function: Callable[[], Any]) -> Any:
    """What a call gives, in a form in which the twins can be compared."""
    try:
        return function()
    except BaseException as error:
        return type(error).__name__, str(error), repr(error.__cause__)


Scenario = Callable[[Any], Any]
SCENARIOS: list[Scenario] = []


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


@scenario
def bad_arguments(twin: Any) -> Any:
    w = twin.ValueWatcher(0)
    calls: list[Callable[[], Any]] = [
        lambda: w.wait_for(1, timeout=-1),
        lambda: w.wait_for(1, timeout="1"),
        lambda: w.wait_for(1, timeout=float("nan")),
        lambda: w.watch().get(-0.5),
        lambda: w.watch().get([]),
        lambda: w.watch(maxlen=0),
        lambda: w.watch(maxlen="1"),
        lambda: w.watch(overflow="latest"),
        lambda: w.watch(maxlen=1, overflow="x"),
        lambda: w.wait_until(1),
        lambda: w.on_change(1),
        lambda: w.on_value(1, 1),
        lambda: w.close("x"),
        lambda: w.set_if(1, 1),
        lambda: w.update(1),
        lambda: twin.Subscription(1),
        lambda: twin.ValueWatcher(0, equals=1),
        lambda: w.watch().get_nowait(),
        lambda: w.sync.wait_for(1, timeout=0),
    ]
    return [outcome(call) for call in calls]


@scenario
def after_close(twin: Any) -> Any:
    w = twin.ValueWatcher(0)
    subscription = w.watch()
    w.value = 1
    w.close(OSError("gone"))
    calls: list[Callable[[], Any]] = [
        lambda: w.set(1),
        lambda: w.set_if(1, bool),
        lambda: w.update(bool),
        lambda: w.sync.wait_for(1),
        lambda: w.sync.wait_for(2),
        lambda: w.sync.wait_for_change(),
        lambda: tuple(subscription.get_nowait()),
        lambda: subscription.get_nowait(),
        lambda: w.watch(initial=True).pending,
        lambda: list(w.sync.watch()),
        lambda: w.on_value(1, lambda: None).cancelled,
        lambda: vars(w.statistics()),
        lambda: subscription.close(),
        lambda: subscription.get_nowait(),
    ]
    return [outcome(call) for call in calls]


@scenario
def representations(twin: Any) -> Any:
    w = twin.ValueWatcher("value")
    subscription = w.watch()
    found = [repr(w), repr(subscription), repr(w.sync), repr(w.sync.watch())]
    w.value = 1
    found += [repr(subscription), repr(subscription.get_nowait())]
    w.close()
    subscription.close()
    waits = [w.wait_for(5), w.wait_for_change(), w.watch().get(), anext(w.watch())]
    for wait in waits:
        found += [wait.__name__, wait.__qualname__, repr(wait).split(" at ")[0]]
        wait.close()
    # From 3.13 on a native coroutine that is closed before it began keeps what it was given.
    del wait, waits
    return [*found, repr(w), repr(subscription), repr(w.statistics())]


@scenario
def odd_values(twin: Any) -> Any:
    found: list[Any] = []
    for kind in (Unequal, Array, lambda: float("nan"), lambda: StopIteration(1)):
        values = [kind(), kind(), kind()]
        w = twin.ValueWatcher(values[0])
        wait = w.wait_for(values[2])
        for value in values:
            w.value = value
            w.set_if(value, lambda _: True)
        # None of them equals another, so it is the one it was made for.
        found.append((w.version, asyncio.run(wait) is values[2]))
    return found


@scenario
def errors_in_user_code(twin: Any) -> Any:
    found: list[Any] = []
    for error in (ValueError, StopIteration, GeneratorExit, KeyboardInterrupt, SystemExit, BaseException):

        def bad(*arguments: Any) -> Any:
            raise error("bad")  # noqa: B023

        w = twin.ValueWatcher(0, equals=bad)
        found.append(outcome(lambda: w.set(0)))  # noqa: B023
        w = twin.ValueWatcher(0)
        wait = outcome(lambda: w.wait_until(bad))  # noqa: B023
        found.append(wait if isinstance(wait, tuple) else outcome(lambda: asyncio.run(wait)))  # noqa: B023
        found.append(outcome(lambda: w.sync.wait_until(bad)))  # noqa: B023
        found.append(outcome(lambda: w.set_if(1, bad)))  # noqa: B023
        found.append((w.version, vars(w.statistics())))
    return found


@scenario
def bounded(twin: Any) -> Any:
    found: list[Any] = []
    for maxlen in (1, 2, 5):
        for overflow in ("error", "latest"):
            for initial in (False, True):
                w = twin.ValueWatcher(0)
                subscription = w.watch(initial=initial, maxlen=maxlen, overflow=overflow)
                for value in range(1, 20):
                    w.value = value
                    found.append(subscription.pending)
                    if value % 4 == 0:
                        found.append(outcome(lambda: tuple(subscription.get_nowait())))  # noqa: B023
    return found


@scenario
def closing_under_a_reader(twin: Any) -> Any:
    async def main() -> Any:
        w = twin.ValueWatcher(0)
        subscription = w.watch()
        reader = asyncio.create_task(subscription.get())
        await ticks(2)
        subscription.close()
        second = asyncio.create_task(subscription.get())
        found = await asyncio.gather(reader, second, return_exceptions=True)
        return [(type(error).__name__, str(error)) for error in found]

    return asyncio.run(main())


@scenario
def what_a_predicate_sees(twin: Any) -> Any:
    seen: list[Any] = []

    def sees(name: str, wanted: int) -> Callable[[int], bool]:
        def predicate(value: int) -> bool:
            seen.append((name, value))
            return value == wanted

        return predicate

    w = twin.ValueWatcher(0)
    waits = [w.wait_until(sees("a", 2))]
    waits.append(w.wait_until(sees("b", 3), immediate=False))
    for value in (1, 2, 3, 4):
        w.value = value
        seen.append(w.statistics().waiters)
    return seen, [asyncio.run(wait) for wait in waits]


@scenario
def flags(twin: Any) -> Any:
    w = twin.ValueWatcher(1)
    calls: list[Callable[[], Any]] = [
        lambda: asyncio.run(w.wait_for(1, immediate=1, timeout=0)),
        lambda: asyncio.run(w.wait_for(1, immediate=None, timeout=0)),
        lambda: asyncio.run(w.wait_for(1, immediate="", timeout=0)),
        lambda: w.watch(initial=1).pending,
        lambda: w.watch(maxlen=10**30).pending,
    ]
    return [outcome(call) for call in calls]


@scenario
def order_of_callbacks(twin: Any) -> Any:
    order: list[Any] = []
    w = twin.ValueWatcher(0)
    w.on_value(1, lambda: order.append("value"))
    w.on_change(lambda old, new: order.append(("first", old, new)))
    wait = w.wait_until(lambda value: order.append(("predicate", value)))
    w.on_change(lambda old, new: new < 3 and w.set(new + 1) and None)
    w.on_change(lambda old, new: order.append(("second", old, new, w.value)))
    w.value = 1
    w.close()
    wait.close()
    return order


@pytest.mark.parametrize("function", SCENARIOS, ids=lambda function: function.__name__)
def test_they_give_the_same_results(twins: tuple[Any, Any], function: Scenario) -> None:
    rust, pure = map(function, twins)
    assert rust == pure
