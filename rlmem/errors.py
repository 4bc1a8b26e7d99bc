"""Errors that are a user's to mend."""

import errno
import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class UserError(ValueError):
    """A mistake in the user's input.

    Its text is one line: the config key, the value that was given, and what would work. The
    command line prints it without a traceback and exits with code 2.
    """


class OccupiedError(UserError):
    """Another process trains in a run's directory."""


_SPENT = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk's quota is used up",
    errno.EFBIG: "a file has come to the largest size that is allowed (ulimit -f)",
    errno.EMFILE: "as many files are open as are allowed (ulimit -n)",
    errno.ENFILE: "as many files are open as the machine allows",
    errno.ENOMEM: "there is no memory left",
}


def shortage(error: BaseException) -> str | None:
    """What the machine has no more of, where an error or what it came from says so."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _SPENT:
            at = f" at {found.filename}" if isinstance(found.filename, str) else ""
            return f"{_SPENT[found.errno]}{at}"
        text = str(found)
        spent = ("can't allocate memory", "out of memory", "can't start new thread")
        spent += ("failed to map segment",)  # of a library that is loaded
        spent += ("Could not allocate memory",)  # MuJoCo's, a ValueError
        if "unable to allocate shared memory" in text:  # torch's; in a container it is small
            return "/dev/shm is full (docker run --shm-size=1g makes it larger)"
        if isinstance(found, RuntimeError) and "CUDA" in text and "out of memory" in text:
            wanted = text.partition("out of memory. ")[2].partition(". ")[0]
            more = f" ({one_line(wanted)})" if wanted else ""
            return (
                f"the GPU's memory is full{more}: a smaller agent.batch_size or network takes less"
            )
        if isinstance(found, MemoryError) or (
            isinstance(found, RuntimeError | ImportError | ValueError)
            and any(sign in text for sign in spent)
        ):
            return _SPENT[errno.ENOMEM]
        found = found.__cause__ or found.__context__
    return None


def file_error(error: OSError, place: object) -> str:
    """What went wrong with a file, or in a place where the error names none."""
    return f"{error.filename or place}: {shortage(error) or error.strerror or error}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """`; did you mean X?` for the name nearest to `word`, or nothing if none is near."""
    near = get_close_matches(word, list(names), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def choose_from(word: str, names: Iterable[str]) -> str:
    """`; did you mean X? Available: X, Y, Z`: the ending of a message about an unknown name."""
    names = sorted(names)
    near = did_you_mean(word, names)
    return f"{near or ';'} {'Available' if near else 'available'}: {', '.join(names)}"


def printable(text: str) -> str:
    """A text without what a terminal would act on: such marks are shown as they are written down.

    Texts of a run directory go through it before they are printed.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def one_line(thing: object, most: int = 120) -> str:
    """A text, such as an error's, in one line of at most so many characters."""
    text = " ".join(printable(str(thing)).split())
    return text if len(text) <= most else f"{text[: most - 3]}..."


def need(module: str, what: str, extra: str) -> Any:
    """A module of a package that only some installations have.

    Args:
        what: the part of the user's input that needs it, such as `mode=report`.
        extra: of rlmem that brings it.

    Raises:
        UserError: it is missing.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.split(".")[0].replace("_", "-")
        raise UserError(f"{what} needs {package}: pip install 'rlmem[{extra}]'") from None
