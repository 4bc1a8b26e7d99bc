"""Overrides as Hydra's grammar takes them: quotes around what it would not read, such as paths."""

import re
import shlex
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

# What no unquoted value of Hydra's holds, but for the brackets of its lists and functions.
_UNREAD = re.compile(r"[^\w\s/.:+%$*@?|\\,\[\]-]", re.ASCII)


def quote_paths(override: str) -> str:
    """Quote the parts of a value that Hydra would not read as they stand: those with `=`, as the
    folders of a sweep's jobs have, and those with é, &, # or (2), as a path may.

    Hydra refuses `run=multirun/x/seed=1`; quoted by hand it would be 'run="multirun/x/seed=1"'.
    What Hydra reads by itself, and what it does not read with quotes either, stays as it is.
    """
    key, _, value = override.partition("=")
    plain = re.sub(r"\$\{[^{}]*\}", "", value)  # interpolations stay such within quotes
    # A brace, a quote at either end, a second = or a ~ is something else that went wrong.
    other = re.search(r"[{}]|^[=~]|^\[?[\"']|[\"']$", plain)
    if not _UNREAD.search(plain) or other or _is_read(override):
        return override
    call = re.fullmatch(r"(\w+\()(.*)(\))", value, re.DOTALL)
    head, inner, end = call.groups() if call else ("", value, "")
    # A part ends at a comma: one within a further function or an interpolation is none of these.
    if re.search(r"\$\{[^{}]*,", value) or (head and re.search(r"\w\(", inner)):
        return override
    quoted = f"{key}={head}" + re.sub(r"[^,\[\]]+", lambda part: _quoted(part[0]), inner) + end
    return quoted if _is_read(quoted) else override


def override_key(override: str) -> str:
    """The key or group that an override is about."""
    return override.partition("=")[0].lstrip("+~")


def override_of(key: str, text: str) -> str:
    """An override that Hydra reads as this very text, such as a folder's name with a comma."""
    plain = f"{key}={text}"
    if _value_of(quote_paths(plain)) == text:
        return plain
    escaped = re.sub(r'(\\*)("|$)', lambda m: m[1] * 2 + ('\\"' if m[2] else ""), text)
    return f'{key}="{escaped}"'


def shell_override(key: str, text: str) -> str:
    """The same as part of a command that is printed: a shell takes it as one argument."""
    return shlex.quote(override_of(key, text))


def _value_of(override: str) -> Any:
    """What Hydra reads; None where it does not."""
    try:
        return OverridesParser.create().parse_override(override).value()
    except (HydraException, ValueError, RecursionError):
        return None


def _quoted(part: str) -> str:
    """A part of a value in quotes, if it is one of a path or holds what only text does."""
    if not (_UNREAD.search(re.sub(r"[()]", "", part)) or ("(" in part and "/" in part)):
        return part
    text = re.sub(r'(\\*)"', r'\1\1\\"', part)
    return f'"{text}"'


def _is_read(override: str) -> bool:
    """Whether Hydra's parser takes an override."""
    try:
        OverridesParser.create().parse_override(override)
    except (HydraException, ValueError, RecursionError):  # a huge number, deep nesting
        return False
    return True
