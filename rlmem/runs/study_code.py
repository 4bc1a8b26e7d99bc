"""A study's own code: its folder as a package, if it has an `__init__.py`.

    run(folder, only, workers)      in place of the runs and the report of a study.yaml
    section(settings) -> Section    a part of the report's page, with figures and files

It is loaded for a study that the user names on the command line, from that folder alone.
"""

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def load_code(folder: Path) -> ModuleType | None:
    """The folder's package, None if it is none. Loading it runs it."""
    file = (folder / "__init__.py").resolve()
    if not file.is_file():
        return None
    name = "study_" + re.sub(r"\W", "_", str(file.parent))  # no two folders share a name
    if name not in sys.modules:
        found = importlib.util.spec_from_file_location(
            name, file, submodule_search_locations=[str(file.parent)]
        )
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[name] = module  # before it is run: its own parts import it
        try:
            found.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def call_in(folder: Path, function: str, *args: Any) -> Any:
    """Call a function of a folder's package, for processes that have not loaded it."""
    return getattr(load_code(folder), function)(*args)
