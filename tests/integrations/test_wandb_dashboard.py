"""The dashboard for W&B: everything on it exists, and without a key it becomes a file."""

import csv
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from rlmem.callbacks.wandb_logger import plain_config
from rlmem.errors import UserError
from rlmem.integrations import wandb_dashboard
from rlmem.integrations.wandb_dashboard import THRESHOLD_TABLE, sent_name, write_dashboard
from tests.runs.helpers import TINY_GWR, run, summary_of
from tests.settings import settings

wandb = pytest.importorskip("wandb")
workspaces = pytest.importorskip("wandb_workspaces.workspaces")
reports = pytest.importorskip("wandb_workspaces.reports.v2")
HAS_KEY = wandb_dashboard.has_key


def test_a_key_that_is_none_is_one_line() -> None:
    def refuse(**_: Any) -> bool:
        raise wandb.errors.AuthenticationError("WANDB_API_KEY invalid: it has 3 characters.")

    with pytest.raises(UserError, match=r"^W&B: WANDB_API_KEY invalid.*; run `wandb login`"):
        HAS_KEY(SimpleNamespace(login=refuse, errors=wandb.errors))


def test_a_dashboard_of_no_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^project=: name the W&B project"):
        write_dashboard(None, "", tmp_path / "d.json")
    assert not list(tmp_path.iterdir())


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_dashboard, "has_key", lambda _: False)


@pytest.fixture
def panels() -> dict[str, list[dict[str, Any]]]:
    """Panels by section, as W&B would be sent them."""
    sections = wandb_dashboard.definition("me", "rlmem")["spec"]["section"]["panelBankConfig"]
    return {section["name"]: section["panels"] for section in sections["sections"]}


def columns_of(run_dir: Path) -> set[str]:
    with (run_dir / "metrics.csv").open(newline="") as file:
        return set(next(csv.reader(file)))


@pytest.fixture(scope="module")
def columns(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Columns of the rows of memories that have every component between them."""
    folder, found = tmp_path_factory.mktemp("columns"), columns_of(finished_run)
    memmap = ["memory/storage=memmap", f"memory.storage.directory={folder}", "memory.capacity=2000"]
    for name, overrides in {
        "gwr": TINY_GWR,
        "none": ["memory=none"],
        "compressed": ["memory/storage=compressed", "memory.capacity=2000"],
        "memmap": memmap,
    }.items():
        run(folder / name, *overrides)
        found |= columns_of(folder / name)
    return found


def lines_of(panels: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [p["config"] for s in panels.values() for p in s if "Line Plot" in p["viewType"]]


@pytest.mark.slow
def test_every_line_is_a_column_of_a_run(
    panels: dict[str, list[dict[str, Any]]], columns: set[str]
) -> None:
    lines = lines_of(panels)
    metrics = {metric for config in lines for metric in config["metrics"]}
    sent = {sent_name(column) for column in columns}
    assert metrics - sent == {"return/eval_return_mean"}  # in a row of its own
    assert {config["xAxis"] for config in lines} == {"env_steps"}


@pytest.mark.slow
def test_every_component_of_any_memory_has_its_line(
    panels: dict[str, list[dict[str, Any]]], columns: set[str]
) -> None:
    asked = [config["metricRegex"] for config in lines_of(panels) if "metricRegex" in config]
    assert len(asked) == 2
    for pattern in asked:
        found = {c for c in columns if re.search(pattern, sent_name(c))}
        assert found == {c for c in columns if "/" in c}


@pytest.mark.slow
def test_every_point_is_of_the_summary_or_the_config(
    panels: dict[str, list[dict[str, Any]]], finished_run: Path
) -> None:
    axes = {
        axis
        for section in panels.values()
        for panel in section
        if panel["viewType"] == "Scatter Plot"
        for key, axis in panel["config"].items()
        if key in ("xAxis", "yAxis", "zAxis")
    }
    axes |= {
        column["accessor"]
        for panel in panels["Thresholds"]
        for column in panel["config"].get("columns", [])
    }
    summary = summary_of(finished_run)
    config = plain_config(settings("memory=gwr"))
    for axis in axes:
        where, _, name = axis.partition(":")
        if where == "summary":
            assert name in summary
        else:
            group, key = name.split(".value.")
            assert key in config[group]
    assert {axis for axis in axes if axis.startswith("config")} == {
        "config:threshold.value.activation",
        "config:threshold.value.habituation",
    }


def test_the_heatmap_asks_for_the_table_that_a_map_sends(
    panels: dict[str, list[dict[str, Any]]],
) -> None:
    (heatmap,) = [p["config"] for p in panels["Thresholds"] if p["viewType"] == "Vega2"]
    (query,) = heatmap["userQuery"]["queryFields"]
    (table,) = [field for field in query["fields"] if field["name"] == "summaryTable"]
    assert table["args"] == [{"name": "tableKey", "value": THRESHOLD_TABLE}]
    assert heatmap["panelDefId"] == "me/rlmem-thresholds"
    assert set(heatmap["fieldSettings"].values()) <= set(wandb_dashboard.THRESHOLD_COLUMNS)
    assert all(
        f"${{field:{name}}}" in json.dumps(wandb_dashboard.HEATMAP)
        for name in heatmap["fieldSettings"]
    )


def test_without_a_key_the_definition_is_a_file(tmp_path: Path) -> None:
    out = tmp_path / "new" / "dashboard.json"
    said = write_dashboard("me", "mine", out)
    assert "python evaluate.py mode=dashboard project=mine entity=me" in said
    assert str(out) in said
    written = json.loads(out.read_text())
    names = [s["name"] for s in written["spec"]["section"]["panelBankConfig"]["sections"]]
    assert names[:4] == ["Return", "Return against bytes", "Memory", "Thresholds"]
    assert (written["entity"], written["project"]) == ("me", "mine")


def test_the_report_has_the_figures_of_the_dashboard(
    panels: dict[str, list[dict[str, Any]]],
) -> None:
    page = wandb_dashboard.report("me", "rlmem")
    titles = [block.text for block in page.blocks if isinstance(block, reports.H2)]
    grids = [block for block in page.blocks if isinstance(block, reports.PanelGrid)]
    assert titles == list(panels)
    assert [len(grid.panels) for grid in grids] == [len(drawn) for drawn in panels.values()]
    assert all(grid.runsets[0].groupby == ["Group"] for grid in grids)


class FakeApi:
    """W&B's public API, where the heatmap's chart may be there already."""

    default_entity = "somebody"
    charts: ClassVar[list[dict[str, Any]]] = []

    def create_custom_chart(self, **kwargs: Any) -> None:
        if self.charts:
            raise wandb.Error("exists")
        self.charts.append(kwargs)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Workspaces that were saved at a W&B that is not one."""
    saved: list[Any] = []

    def save(workspace: Any) -> Any:
        saved.append(workspace)
        return SimpleNamespace(url="https://example.org/view")

    monkeypatch.setattr(FakeApi, "charts", [])
    monkeypatch.setattr(wandb_dashboard, "has_key", lambda _: True)
    monkeypatch.setattr(wandb, "Api", FakeApi)
    monkeypatch.setattr(workspaces.Workspace, "save", save)
    monkeypatch.setattr(
        reports.Report, "save", lambda _, draft: SimpleNamespace(url="https://example.org/report")
    )
    return saved


def test_with_a_key_it_is_made_at_wandb(server: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "dashboard.json"
    said = "https://example.org/view\nreport, a draft: https://example.org/report"
    assert write_dashboard(None, "mine", out) == said
    assert write_dashboard(None, "mine", out) == said  # the chart is there
    assert [(w.entity, w.project) for w in server] == [("somebody", "mine")] * 2
    assert [chart["entity"] for chart in FakeApi.charts] == ["somebody"]
    assert not out.exists()


def test_what_wandb_refuses_is_one_line(
    server: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> Any:
        raise wandb.errors.CommError("no such project\nand more")

    monkeypatch.setattr(workspaces.Workspace, "save", refuse)
    with pytest.raises(UserError, match=r"project=mine: .*\(no such project\)") as error:
        write_dashboard(None, "mine", tmp_path / "dashboard.json")
    assert "\n" not in str(error.value)


def test_a_missing_package_is_a_user_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.delitem(sys.modules, "wandb_workspaces.workspaces", raising=False)
    with pytest.raises(UserError, match="needs wandb-workspaces: pip install"):
        write_dashboard(None, "mine", tmp_path / "dashboard.json")
