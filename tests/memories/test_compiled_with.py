"""numba's cache is renewed when the file of a function changes, and then only.

A compiled function holds the constants and the functions that its file imports from other files:
were one of these to change alone, code of before would go on running (with arrays of another size,
perhaps). So such a file names in COMPILED_WITH what those others are.
"""

import ast
import hashlib
from pathlib import Path

import pytest

import rlmem

ROOT = Path(rlmem.__file__).parent


def compiled(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions that numba compiles."""
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("njit" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def compiled_in(tree: ast.Module) -> set[str]:
    """Modules of rlmem of which something is used in a function that numba compiles."""
    used = {
        name.id
        for function in compiled(tree)
        for statement in function.body
        for name in ast.walk(statement)
        if isinstance(name, ast.Name)
    }
    return {
        str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("rlmem.")
        if used & {alias.asname or alias.name for alias in node.names}
    }


def stamp(module: str) -> str:
    path = ROOT.parent / Path(*module.split(".")).with_suffix(".py")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


KERNELS = {
    path: tree for path in ROOT.rglob("*.py") if compiled(tree := ast.parse(path.read_text()))
}


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_file_of_kernels_names_what_is_compiled_in(path: Path) -> None:
    wanted = {module.rsplit(".", 1)[1]: stamp(module) for module in compiled_in(KERNELS[path])}
    given = [
        ast.literal_eval(node.value)
        for node in KERNELS[path].body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMPILED_WITH"
    ]
    assert given == ([wanted] if wanted else []), (
        f"{path}: COMPILED_WITH = {dict(sorted(wanted.items()))}"
    )


def test_some_kernels_are_found() -> None:
    names = {path.stem: compiled_in(tree) for path, tree in KERNELS.items()}
    assert len(names["step"]) == 4
    assert names["write_kernels"] == {"rlmem.memories.ring.records"}
    assert names["records"] == set()
