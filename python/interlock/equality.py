"""When is a set no transition? The default rule (W5)."""

from __future__ import annotations


def equal(old: object, new: object) -> bool:
    """Identity first, then `==`; in doubt, different.

    A comparison that raises, or whose result has no truth value (a NumPy
    array), counts as different: better one transition too many than one lost.

    >>> nan = float("nan")
    >>> equal(nan, nan), equal(1, 1.0), equal(1, 2)
    (True, True, False)
    """
    if old is new:
        return True
    try:
        return bool(old == new)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return False
