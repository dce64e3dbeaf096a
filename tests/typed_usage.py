"""What type checkers infer; mypy checks it with the rest of the tests, nothing here is run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock import Subscription, Transition, ValueWatcher

if TYPE_CHECKING:
    from typing_extensions import assert_type


async def infers(name: ValueWatcher[str | None]) -> None:
    assert_type(ValueWatcher(0), ValueWatcher[int])
    assert_type(name.value, str | None)
    assert_type(await name.wait_for("a"), str | None)
    assert_type(await name.wait_for_not_none(timeout=1), str)
    assert_type(name.sync.wait_for_not_none(), str)
    assert_type(name.update(lambda old: old), str | None)
    with name.watch(maxlen=1, overflow="latest") as transitions:
        assert_type(transitions, Subscription[str | None])
        assert_type(await transitions.get(), Transition[str | None])
        async for old, new in transitions:
            assert_type((old, new), tuple[str | None, str | None])
    for transition in name.sync.watch():
        assert_type(transition.new, str | None)
