"""The numbers of the README and of findings, reckoned again from the result files behind them."""

import re
from collections.abc import Callable

import pytest

from tests.claims import learners, memories, road_runner
from tests.claims.files import ROOT, Claim

CLAIMS = ROOT / "docs/claims.md"
SOURCES = [*memories.SOURCES, *road_runner.SOURCES, *learners.SOURCES]


def plain(page: str) -> str:
    """The text of a page without the breaks of its lines."""
    return " ".join((ROOT / page).read_text().replace("**", "").split())


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_a_claim_is_what_its_result_file_says(source: Callable[[], list[Claim]]) -> None:
    for page, said in source():
        assert said in plain(page), f"{page} does not say what the results say: {said}"


def test_every_row_of_the_evidence_has_a_claim_that_is_checked() -> None:
    said = [text for source in SOURCES for page, text in source() if page == "README.md"]
    evidence = (ROOT / "README.md").read_text().split("## Evidence")[1].split("\n## ")[0]
    rows = [row for row in evidence.splitlines() if row.startswith("| ")][1:]
    assert len(rows) > 5
    for row in rows:
        assert any(text in row for text in said), f"no check for: {row}"


def test_the_list_of_claims_names_files_that_are_there() -> None:
    rows = re.findall(r"^\| (?!what|page \||---)(.*) \|$", CLAIMS.read_text(), re.M)
    assert len(rows) >= len(SOURCES)
    for row in rows:
        *_, files, commands, commit = row.split(" | ")
        named = re.findall(r"\]\(([^)#]+)\)", files)
        assert named, f"no result file: {row}"
        assert all((CLAIMS.parent / file).exists() for file in named), row
        assert re.search(r"`(make|python) [^`]+`", commands), row
        assert re.fullmatch(r"[0-9a-f]{7}(, [0-9a-f]{7})*", commit), row


def test_the_commands_of_the_list_name_studies_and_scripts_that_are_there() -> None:
    for command in re.findall(r"`((?:make|python) [^`]+)`", CLAIMS.read_text()):
        for study in re.findall(r"NAME=(\w+)", command):
            assert (ROOT / "studies" / study / "study.yaml").exists(), command
        for script in re.findall(r"python (\S+\.py)", command):
            assert (ROOT / script).exists(), command
