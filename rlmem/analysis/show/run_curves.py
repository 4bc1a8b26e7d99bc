"""`mode=plot`: return and memory bytes of single runs over env steps, side by side."""

from pathlib import Path

from rlmem.analysis.compare.settings import make_settings
from rlmem.analysis.read.curves import EVALUATED
from rlmem.analysis.read.runs import read_run
from rlmem.errors import UserError, need, one_line
from rlmem.units import readable_bytes

SIGNS = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))  # of the first ten runs, the next, ...


def plot_runs(run_dirs: list[Path], out: Path) -> list[str]:
    """Draw training return, evaluation return and memory bytes of runs into one figure; what of
    their files could not be read, a line each.

    Args:
        run_dirs: one curve each.
        out: image file; its ending chooses the format.

    Raises:
        UserError: a directory holds no run, the runs are of several environments, `out` is a
            folder or cannot be written, or matplotlib is missing.
    """
    need("matplotlib", "mode=plot", "plot")
    from matplotlib import rc_context

    from rlmem.analysis.show.panels import bytes_upward, short
    from rlmem.drawing import STYLE, figure

    if out.is_dir():
        raise UserError(f"out={out}: is a folder; use out={out / 'curves.png'}")
    runs = []
    for run_dir in run_dirs:
        try:
            runs.append(read_run(run_dir))
        except ValueError as error:
            there = (run_dir / "config.yaml").exists()
            why = f": {error}; put it back as it was, or leave the run out"
            raise UserError(
                f"runs: {run_dir}{why if there else ' is no run directory (it has no config.yaml)'}"
            ) from None
    if len(tasks := sorted({run.task for run in runs})) > 1:
        raise UserError(
            f"runs: of several environments ({', '.join(tasks)}), whose returns have no common "
            "scale; use mode=report with sweep=[...], which draws each apart"
        )
    names = {id(run): setting.label for setting in make_settings(runs) for run in setting.runs}
    with rc_context(STYLE):
        drawn, ((scores, size),) = figure(10, 3.6, 1, 2)
        for number, run in enumerate(runs):
            curves = run.curves
            line, dot = SIGNS[number // 10 % len(SIGNS)]  # there are ten colours
            look = {"color": f"C{number % 10}", "linestyle": line}
            name = short(names[id(run)])
            label = f"{name}, seed {run.seed}"
            alone = "." if len(curves["env_steps"]) == 1 else None  # no line has one point
            trained = curves["train_return_mean"]
            scores.plot(curves["env_steps"], trained, label=label, marker=alone, **look)
            played, means = (curves[name] for name in EVALUATED)
            scores.plot(played, means, dot, markersize=4, color=look["color"])
            held, ended = curves["memory_bytes"], run.number("memory_bytes")
            last = ended if ended == ended else held[-1] if len(held) else None
            label = name if last is None else f"{name}, {readable_bytes(last)}"
            size.plot(curves["env_steps"], held, label=label, marker=alone, **look)
        scores.set(xlabel="env steps", ylabel="return")
        about = "last 100 training episodes (line), evaluations (dots)"
        scores.set_title(f"{runs[0].config.get('env.name')}: {about}")
        size.set(xlabel="env steps", ylim=(0, None))
        bytes_upward(size)
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
    return [f"{run.folder}: {fault}" for run in runs for fault in run.faults]
