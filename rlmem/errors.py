"""Errors that are a user's to mend."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(ValueError):
    """A mistake in the user's input.

    Its text is one line: the config key, the value that was given, and what would work. The
    command line prints it without a traceback and exits with code 2.
    """


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean X?` for the name nearest to `word`, or nothing if none is near."""
    near = get_close_matches(word, list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def choose_from(word: str, names: Iterable[str]) -> str:
    """`; did you mean X? Available: X, Y, Z`: the ending of a message about an unknown name."""
    names = sorted(names)
    near = did_you_mean(word, names)
    return f"{near or ';'} {'Available' if near else 'available'}: {', '.join(names)}"
