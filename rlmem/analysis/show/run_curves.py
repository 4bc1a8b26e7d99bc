"""`mode=plot`: return and memory bytes of single runs over env steps, side by side."""

from pathlib import Path
from typing import Any

from rlmem.analysis.read.runs import read_run, read_table
from rlmem.errors import UserError, need, one_line
from rlmem.units import readable_bytes


def plot_runs(run_dirs: list[Path], out: Path) -> None:
    """Draw training return, evaluation return and memory bytes of runs into one figure.

    Args:
        run_dirs: one curve each.
        out: image file; its ending chooses the format.

    Raises:
        UserError: a directory holds no run, or matplotlib is missing.
    """
    need("matplotlib", "mode=plot", "plot")
    from matplotlib import rc_context

    from rlmem.drawing import STYLE, figure

    runs = []
    for run_dir in run_dirs:
        try:
            runs.append(read_run(run_dir))
        except ValueError as error:
            raise UserError(f"runs: {run_dir} is no run directory ({error})") from None
    with rc_context(STYLE):
        drawn, ((scores, size),) = figure(10, 3.6, 1, 2)
        for number, run in enumerate(runs):
            colour, curves = f"C{number}", run.curves
            label = f"{run.memory}, seed {run.seed}"
            scores.plot(curves["env_steps"], curves["train_return_mean"], label=label, color=colour)
            played = read_table(run.folder / "evaluations.csv")
            if len(played) and "return" in played:
                means: Any = played.groupby("env_steps")["return"].mean()
                scores.plot(means.index, means, "o", markersize=4, color=colour)
            held = curves["memory_bytes"]
            last = f"{run.memory}, {readable_bytes(held[-1])}" if len(held) else run.memory
            size.plot(curves["env_steps"], held / 2**20, label=last, color=colour)
        scores.set(xlabel="env steps", ylabel="return")
        about = "last 100 training episodes (line), evaluations (dots)"
        scores.set_title(f"{runs[0].config.get('env.name')}: {about}")
        size.set(xlabel="env steps", ylabel="memory [MiB]", ylim=(0, None))
        size.set_title("bytes held by the memory")
        for axes in (scores, size):
            axes.legend()
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            drawn.savefig(out, dpi=150)
        except (OSError, ValueError) as error:  # ValueError: an ending that is no image's
            raise UserError(
                f"out={out}: cannot be written ({one_line(error)}); use out=curves.png"
            ) from None
