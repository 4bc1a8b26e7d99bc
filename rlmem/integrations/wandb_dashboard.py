"""The dashboard of a project in Weights & Biases: return, bytes, return against bytes, thresholds.

`python evaluate.py mode=dashboard` makes it where a key is, and writes it as a file elsewhere.
Every name on it is a column of metrics.csv, a field of summary.json or a key of the configuration.
A report, as a draft, has the same figures.
"""

import json
import shlex
from pathlib import Path
from typing import Any

from rlmem.errors import UserError, need, one_line

NAME = "rlmem"
# Keys that the W&B logger sends besides the rows.
MEMORY_TABLE = "memory_components"
THRESHOLD_TABLE = "thresholds"
THRESHOLD_COLUMNS = ("activation", "habituation", "eval_return_mean", "memory_bytes_peak", "seed")
VIDEO = "evaluation_video"
MAP = "map"

RETURNS = ("eval_return_mean", "train_return_mean")
MEMORY = ("memory_bytes", "memory_entries", "bytes_per_transition")
COMPONENTS = "^memory/component/"  # each memory has its own
COUNTERS = ("frames", "grad_steps", "episodes", "seconds")
SPEED = ("env_steps_per_second", "act_us", "env_us", "insert_us", "sample_us")
LEARNING = (
    "loss",
    "td_error_mean",
    "td_error_median",
    "td_error_max",
    "td_error_std",
    "correlation_count",
    "weight_min",
    "effective_sample_size",
    "sample_age_mean",
    "sample_age_max",
    "sampled_fraction",
    "batch_overlap",
    "epsilon",
)
THRESHOLDS = ("threshold.activation", "threshold.habituation")
SCORE, BYTES = "eval_return_mean", "memory_bytes_peak"
COLOURS = ((0, "#440154"), (50, "#21918c"), (100, "#fde725"))  # viridis, by per cent

AXIS = "env_steps"  # of all figures; in no section


def sent_name(column: str) -> str:
    """A column as W&B is sent it: with its section (return, memory, learning, speed) in front.

    >>> sent_name("loss"), sent_name("memory_bytes"), sent_name("memory/frames")
    ('learning/loss', 'memory/memory_bytes', 'memory/component/frames')
    """
    if column == AXIS:
        return column
    if column.startswith("memory/"):
        return column.replace("memory/", "memory/component/", 1)
    if column in MEMORY:
        return f"memory/{column}"
    if column in (*SPEED, *COUNTERS):
        return f"speed/{column}"
    return f"return/{column}" if column.startswith(("train_", "eval_")) else f"learning/{column}"


HEATMAP_NAME = "rlmem-thresholds"
HEATMAP = {
    "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
    "title": "Mean evaluation return by GWR's thresholds",
    "data": {"name": "wandb"},
    "mark": {"type": "rect", "tooltip": True},
    "encoding": {
        "x": {"field": "${field:x}", "type": "ordinal", "title": "activation threshold"},
        "y": {
            "field": "${field:y}",
            "type": "ordinal",
            "sort": "descending",
            "title": "habituation threshold",
        },
        "color": {
            "field": "${field:color}",
            "type": "quantitative",
            "aggregate": "mean",
            "scale": {"scheme": "viridis"},
            "title": "return",
        },
    },
}


def has_key(wandb: Any) -> bool:
    """Whether W&B has credentials: in the environment, its settings or ~/.netrc; asks nobody.

    Raises:
        UserError: what is there is no key.
    """
    try:
        return bool(wandb.login(prompt=False, verify=False))
    except wandb.errors.Error as error:
        raise UserError(
            f"W&B: {one_line(error)}; run `wandb login`, or take WANDB_API_KEY away"
        ) from None


def panels(wr: Any, entity: str) -> dict[str, list[Any]]:
    """The figures by section, of the workspace and of the report."""
    return {
        "Return": [_lines(wr, name) for name in RETURNS],
        "Return against bytes": [_scatter(wr, SCORE), _scatter(wr, "human_normalized_score")],
        "Memory": [_lines(wr, name) for name in MEMORY] + _components(wr),
        "Thresholds": _thresholds(wr, entity),
        "Speed": [_lines(wr, name) for name in SPEED],
        "Learning": [_lines(wr, name) for name in LEARNING],
        "Videos": [wr.MediaBrowser(title="First episode of each evaluation", media_keys=[VIDEO])],
        "Map": [wr.MediaBrowser(title="The memory, with log.map_every", media_keys=[MAP])],
    }


def report(entity: str, project: str) -> Any:
    """The same figures as a `wandb_workspaces.reports.v2.Report`; W&B is asked when it is saved."""
    _, wr = _library()
    runs = wr.Runset(entity=entity, project=project, groupby=["Group"])
    blocks: list[Any] = [wr.P("Mean and deviation over the seeds of each group.")]
    for name, drawn in panels(wr, entity).items():
        blocks += [wr.H2(name), wr.PanelGrid(runsets=[runs], panels=drawn)]
    return wr.Report(
        entity=entity, project=project, title=f"{NAME}: return and bytes", blocks=blocks
    )


def dashboard(entity: str, project: str) -> Any:
    """The `wandb_workspaces.workspaces.Workspace`; needs neither key nor network.

    Args:
        entity: W&B user or team; it owns the chart that the heatmap is drawn by.
        project: W&B project.

    Raises:
        UserError: wandb-workspaces is not installed.
    """
    ws, wr = _library()
    sections = panels(wr, entity)
    return ws.Workspace(
        entity=entity,
        project=project,
        name=NAME,
        sections=[
            ws.Section(
                name=name,
                panels=panels,
                is_open=name not in ("Learning", "Videos", "Map"),
                panel_settings=ws.SectionPanelSettings(x_axis=AXIS),
            )
            for name, panels in sections.items()
        ],
        settings=ws.WorkspaceSettings(x_axis=AXIS, max_runs=100),
        runset_settings=ws.RunsetSettings(
            pinned_columns=[
                "run:displayName",
                "run:state",
                f"summary:{SCORE}",
                f"summary:{BYTES}",
                "config:run.value.id",
                "config:run.value.segment",
            ]
        ),
    )


def definition(entity: str | None, project: str) -> dict[str, Any]:
    """What W&B would be sent, as plain containers."""
    view = dashboard(entity or "", project)._to_model()
    return {
        "entity": entity,
        "project": project,
        "name": NAME,
        "custom_charts": {HEATMAP_NAME: HEATMAP},
        "spec": view.spec.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


def write_dashboard(entity: str | None, project: str, out: Path) -> str:
    """Make the dashboard at W&B where there is a key, else write its definition to a file.

    Args:
        entity: W&B user or team; None: the account's default.
        project: W&B project; a run must have been sent to it.
        out: the JSON file that is written without a key.

    Returns:
        The dashboard's address, or a sentence that says where the file is and what to do next.

    Raises:
        UserError: wandb-workspaces is not installed, or W&B refused.
    """
    if not project:
        raise UserError("project=: name the W&B project that runs are sent to, as project=rlmem")
    _library()
    import wandb

    if has_key(wandb):
        return _create(wandb, entity, project)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(definition(entity, project), indent=2) + "\n")
    except OSError as error:
        raise UserError(f"out={out}: cannot write there ({error.strerror})") from None
    keys = [f"project={project}", *([f"entity={entity}"] if entity else [])]
    again = f"python evaluate.py mode=dashboard {shlex.join(keys)}"
    return f"no W&B key here: the dashboard is written to {out}; after `wandb login`, run: {again}"


def _create(wandb: Any, entity: str | None, project: str) -> str:
    try:
        api = wandb.Api()
        owner = entity or api.default_entity
        try:
            api.create_custom_chart(
                entity=owner,
                name=HEATMAP_NAME,
                display_name="rlmem thresholds",
                spec_type="vega2",
                access="private",
                spec=HEATMAP,
            )
        except Exception as error:  # it is there already, or the server knows no custom charts
            print(f"W&B made no new heatmap chart ({_first_line(error)})", flush=True)
        view = dashboard(owner, project).save().url
        return f"{view}\nreport, a draft: {report(owner, project).save(draft=True).url}"
    except Exception as error:  # wandb and its transport raise several kinds
        raise UserError(
            f"project={project}: W&B did not make the dashboard ({_first_line(error)}); "
            "it needs a project that runs were sent to, and an entity that you may write to"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _library() -> tuple[Any, Any]:
    names = ("wandb_workspaces.workspaces", "wandb_workspaces.reports.v2")
    ws, wr = (need(name, "mode=dashboard", "wandb") for name in names)
    return ws, wr


def _lines(wr: Any, metric: str, **more: Any) -> Any:
    """Mean and deviation over each W&B group: over the seeds."""
    return wr.LinePlot(
        title=metric,
        x=AXIS,
        **(more or {"y": [sent_name(metric)]}),
        groupby="Group",
        groupby_aggfunc="mean",
        groupby_rangefunc="stddev",
        max_runs_to_show=100,
    )


def _components(wr: Any) -> list[Any]:
    stacked = wr.LinePlot(
        title="memory by component, of the first run in the list",
        x=AXIS,
        metric_regex=COMPONENTS,
        plot_type="stacked-area",
        max_runs_to_show=1,
    )
    table = wr.WeavePanelSummaryTable(table_name=MEMORY_TABLE)
    return [stacked, table, _lines(wr, "memory by component", metric_regex=COMPONENTS)]


def _scatter(wr: Any, score: str) -> Any:
    return wr.ScatterPlot(
        title=f"{score} against {BYTES}",
        x=wr.SummaryMetric(BYTES),
        y=wr.SummaryMetric(score),
        log_x=True,
    )


def _thresholds(wr: Any, entity: str) -> list[Any]:
    """The heatmap, and two panels of W&B's own that show the same without a chart of ours."""
    activation, habituation = THRESHOLDS
    gradient = [wr.GradientPoint(color=colour, offset=offset) for offset, colour in COLOURS]
    heatmap = wr.CustomChart(
        # The same query as wandb.plot_table's.
        query={"id": {}, "name": {}, "summaryTable": {"tableKey": THRESHOLD_TABLE}},
        chart_name=f"{entity}/{HEATMAP_NAME}",
        chart_fields={"x": "activation", "y": "habituation", "color": SCORE},
    )
    scatter = wr.ScatterPlot(
        title=f"{SCORE} by thresholds",
        x=wr.Config(activation),
        y=wr.Config(habituation),
        z=wr.SummaryMetric(SCORE),
        gradient=gradient,
    )
    columns = [wr.Config(activation), wr.Config(habituation)]
    columns += [wr.SummaryMetric(BYTES), wr.SummaryMetric(SCORE)]
    parallel = wr.ParallelCoordinatesPlot(
        title="thresholds, bytes and return",
        columns=[wr.ParallelCoordinatesPlotColumn(metric=column) for column in columns],
        gradient=gradient,
    )
    return [heatmap, scatter, parallel]
