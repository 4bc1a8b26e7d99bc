"""Overrides that Hydra's parser refuses, as one line that a user can act on."""

import re
from pathlib import Path

from hydra.core.override_parser.overrides_parser import OverridesParser

from rlmem.errors import did_you_mean


def unread(override: str) -> str:
    """One line for an override that Hydra's parser refuses."""
    key, equals, value = override.partition("=")
    if not equals and Path(override).is_dir():
        wanted = f"run={override} (evaluate.py) or resume={override} (train.py)"
        return f"{override}: is a folder; write {wanted}"
    if not equals:
        return f"{override}: not an override; write key=value, such as memory=gwr"
    if not re.fullmatch(r"[+~]{0,2}[\w./@:]+", key):
        return f"{override}: '{key}' is not the name of a key; write key=value, such as memory=gwr"
    if value.startswith("="):
        return f"{override}: there is one = too many; write {key}={value.lstrip('=')}"
    if closing := _not_closed(value):
        return f"{override}: a bracket is not closed; write '{override}{closing}'"
    if value.startswith("~"):
        return f"{override}: ~ means nothing here; write {key}=$HOME{value[1:]}"
    if re.search(r"(^|,|\[)\s*(,|\]|$)", value):
        return f"{override}: a value is missing beside a comma"
    call = re.match(r"(\w+)\(", value)
    known = OverridesParser.create().functions.functions
    if call and (near := did_you_mean(call[1], known)) and call[1] not in known:
        return f"{override}: no such function, {call[1]}{near}"
    return f"{override}: cannot read the value; quote it twice: '{key}=\"{value}\"'"


def _not_closed(value: str) -> str:
    """The brackets that are missing at a value's end; '' where none is, or where it is more."""
    closing = {"(": ")", "[": "]", "{": "}"}
    missing = ""
    for char in value:
        if char in closing:
            missing = closing[char] + missing
        elif missing[:1] == char:
            missing = missing[1:]
        elif char in closing.values() or char in "\"'":
            return ""
    return missing
