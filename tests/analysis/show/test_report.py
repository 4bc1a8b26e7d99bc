"""The report: its files, its page, and runs that are not as they should be."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlmem.analysis.show.page import MOST_ROWS
from rlmem.analysis.show.report import write_report
from rlmem.errors import UserError
from rlmem.runs.evaluate import evaluate
from tests.analysis.helpers import make_run
from tests.runs.helpers import rows_of
from tests.settings import evaluate_settings

LR = "agent.lr"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two memories and a map at four threshold pairs on two games, three seeds."""
    folder = tmp_path_factory.mktemp("sweep")
    for env_id in ("ALE/Pong", "ALE/Qbert"):
        for seed in range(3):
            for k, memory in enumerate(("per", "uniform")):
                name = f"{env_id[4:]}-{memory}-{seed}"
                score = 10.0 * k + seed
                make_run(
                    folder / name,
                    memory,
                    seed,
                    env_id=env_id,
                    final=score,
                    size=1_000_000 * (k + 1),
                    human_normalized_score=score / 20,
                )
            for activation in (0.7, 0.9):
                for habituation in (0.45, 0.85):
                    thresholds = {
                        "threshold.activation": activation,
                        "threshold.habituation": habituation,
                    }
                    make_run(
                        folder / f"{env_id[4:]}-gwr-{activation}-{habituation}-{seed}",
                        "gwr",
                        seed,
                        env_id=env_id,
                        final=30 * activation + habituation + seed,
                        size=int(3_000_000 * activation),
                        config=thresholds,
                    )
    return folder


@pytest.fixture(scope="module")
def report(sweep: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "report"
    write_report([sweep], out)
    return out


def test_each_run_and_each_cell_has_a_row(report: Path) -> None:
    runs, settings = rows_of(report / "results.csv"), rows_of(report / "summary.csv")
    assert len(runs) == 36
    assert len(settings) == 12
    (setting,) = [c for c in settings if c["env_id"] == "ALE/Pong" and c["label"] == "uniform"]
    assert (setting["n"], setting["return_mean"], setting["return_iqm"]) == ("3", "11", "11")
    assert (setting["return_mean_low95"], setting["return_mean_high95"]) == ("", "")
    assert setting["return_over_run"] == "5.5"  # the curves climb evenly
    assert float(runs[-1]["return_over_run"]) == pytest.approx(6)
    assert setting["memory_bytes_peak"] == "2000000"
    assert setting["insert_us"] == "5"


def test_the_figures_are_there_as_png_and_svg(report: Path) -> None:
    names = {path.name for path in (report / "figures").iterdir()}
    kinds = ["bytes-ALE-Pong", "curves-ALE-Pong", "thresholds-gwr-ALE-Pong", "insert-ALE-Qbert"]
    for name in [*kinds, "improvement", "profiles"]:
        assert {f"{name}.png", f"{name}.svg"} <= names
        ElementTree.parse(report / "figures" / f"{name}.svg")


def test_evaluations_are_drawn_where_there_are_several(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / f"sweep/a{seed}", seed=seed, evaluated=4)
        make_run(tmp_path / f"sweep/b{seed}", "per", seed, final=90.0, evaluated=4)
        make_run(tmp_path / f"sweep/c{seed}", seed=seed, env_id="Acrobot-v1", evaluated=1)
        make_run(tmp_path / f"sweep/d{seed}", "cer", seed, evaluated=4 * seed)
    write_report([tmp_path / "sweep"], tmp_path / "out")
    drawn = {path.stem for path in (tmp_path / "out/figures").glob("evaluated-*.svg")}
    assert drawn == {"evaluated-CartPole-v1"}
    page = (tmp_path / "out/index.html").read_text()
    assert ">env steps, evaluated</label>" in page
    assert "Mean of an evaluation&#39;s episodes; thin: each seed." in page
    assert "Not drawn, as not all seeds were evaluated often: cer." in page


def test_success_is_shown_where_an_environment_has_goals(report: Path, tmp_path: Path) -> None:
    for seed, reached in enumerate((0.2, 1.0, 0.9)):
        folder = tmp_path / f"her-{seed}"
        make_run(folder, "her", seed, env_id="FetchReach-v4", eval_success_rate=reached)
    make_run(tmp_path / "other", "uniform", 0)
    write_report([tmp_path], tmp_path / "out")
    runs, settings = (rows_of(tmp_path / "out" / f"{name}.csv") for name in ("results", "summary"))
    assert {run["eval_success_rate"] for run in runs} == {"0.2", "1", "0.9", ""}
    (her,) = [setting for setting in settings if setting["memory"] == "her"]
    assert (her["success_rate"], her["success_rate_high95"]) == ("0.7", "")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "success [95 %]" in page
    assert re.search(r'data-value="0.7\d*">0.7 <small>\(0.2, 1, 0.9\)', page)
    assert '<td data-value="">-</td>' in page  # of the environment without goals
    assert "success_rate" not in (report / "results.csv").read_text()


class Checker(HTMLParser):
    """Collects ids and whatever would be fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag in ("script", "img", "iframe", "link") and (given.get("src") or given.get("href")):
            self.fetched.append(str(given.get("src") or given.get("href")))


def test_the_page_needs_no_network_and_has_each_id_once(report: Path) -> None:
    page = (report / "index.html").read_text()
    checker = Checker()
    checker.feed(page)
    assert checker.fetched == ["data:,"]
    assert len(checker.ids) == len(set(checker.ids))
    assert "36 runs of 12 settings on 2 environments" in page
    assert "python train.py -m" in page


def test_the_same_runs_give_the_same_page(sweep: Path, report: Path, tmp_path: Path) -> None:
    write_report([sweep], tmp_path / "again")
    assert (tmp_path / "again/index.html").read_text() == (report / "index.html").read_text()


def test_one_run_is_enough_and_gets_no_interval(tmp_path: Path) -> None:
    make_run(tmp_path / "run")
    write_report([tmp_path / "run"], tmp_path / "report")
    (setting,) = rows_of(tmp_path / "report/summary.csv")
    assert (setting["return_mean"], setting["return_mean_low95"]) == ("100", "")
    assert "do not tell which is better" in (tmp_path / "report/index.html").read_text()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/a")
    (tmp_path / "own/figures").mkdir(parents=True)
    (tmp_path / "own/figures/mine.png").touch()
    write_report([tmp_path / "sweep"], tmp_path / "own")
    assert (tmp_path / "own/figures/mine.png").exists()
    (tmp_path / "own/index.html").write_text("<title>my page</title>")
    with pytest.raises(UserError, match="that is no report"):
        write_report([tmp_path / "sweep"], tmp_path / "own")


def test_a_table_that_is_of_no_report_is_not_written_over(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/a")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/results.csv").write_text("mine")
    with pytest.raises(UserError, match=r"own: holds a results\.csv that is of no report"):
        write_report([tmp_path / "sweep"], tmp_path / "own")
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["results.csv"]
    assert (tmp_path / "own/results.csv").read_text() == "mine"


def test_a_report_goes_through_no_link_that_nobody_named(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/a")
    (tmp_path / "victim").mkdir()
    (tmp_path / "sweep/report").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="report is a link"):
        evaluate(evaluate_settings("mode=report", f"sweep={tmp_path}/sweep"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/figures").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="its figures/ is a link"):
        write_report([tmp_path / "sweep"], tmp_path / "out")
    assert not list((tmp_path / "victim").iterdir())


def test_what_does_not_count_is_said(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/a", seed=0)
    make_run(tmp_path / "sweep/again", seed=0)
    make_run(tmp_path / "sweep/none", seed=1, eval_return_mean=None)
    report = write_report([tmp_path / "sweep"], tmp_path / "report")
    (setting,) = rows_of(tmp_path / "report/summary.csv")
    assert setting["n"] == "2"
    assert report.collection.notes == [
        "CartPole-v1, uniform: 2 of 3 runs have a final return (eval_return_mean); not seed 1",
        "CartPole-v1, uniform: seed 0 more than once",
    ]
    assert report.collection.left_out == []


def test_a_label_over_several_settings_shows_each_command(tmp_path: Path) -> None:
    for seed, memory in enumerate(("per", "uniform")):
        make_run(tmp_path / f"sweep/{memory}", memory, seed, config={"label": "mine"})
    write_report([tmp_path / "sweep"], tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    for seed, memory in enumerate(("per", "uniform")):
        assert f"python train.py memory={memory} env=cartpole seed={seed}" in page


def test_other_settings_have_heatmaps_of_their_own(tmp_path: Path) -> None:
    for lr in (0.1, 0.2):
        for activation in (0.7, 0.9):
            for habituation in (0.4, 0.8):
                config = {
                    "agent.lr": lr,
                    "threshold.activation": activation,
                    "threshold.habituation": habituation,
                }
                name = f"sweep/{lr}-{activation}-{habituation}"
                make_run(tmp_path / name, "gwr", config=config)
    write_report([tmp_path / "sweep"], tmp_path / "report")
    assert len(list((tmp_path / "report/figures").glob("thresholds-*.png"))) == 2


def test_an_older_report_is_replaced(tmp_path: Path) -> None:
    make_run(tmp_path / "sweep/a", env_id="Old")
    write_report([tmp_path / "sweep"], tmp_path / "sweep/report")
    make_run(tmp_path / "sweep/b", seed=1, env_id="Old")
    write_report([tmp_path / "sweep"], tmp_path / "sweep/report")
    assert len(rows_of(tmp_path / "sweep/report/results.csv")) == 2
    names = {path.name for path in (tmp_path / "sweep/report").iterdir()}
    assert names == {"figures", "index.html", "results.csv", "summary.csv"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "sweep=.*nothing to look at"),
        (["sweep=nowhere"], "sweep=nowhere: there is no such folder"),
        (["sweep={tmp}"], "no run there"),
        (["sweep=3"], "sweep=3: must be a path"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluate(evaluate_settings("mode=report", *(o.format(tmp=tmp_path) for o in overrides)))


def test_the_command_writes_into_the_sweep(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_run(tmp_path / "sweep/a")
    (tmp_path / "sb3.csv").write_text("env_steps,return,bytes,seed,label\n1000,5,10,0,SB3\n")
    overrides = ["mode=report", f"sweep={tmp_path}/sweep", f"external={tmp_path}/sb3.csv"]
    evaluate(evaluate_settings(*overrides))
    assert [row["label"] for row in rows_of(tmp_path / "sweep/report/summary.csv")] == [
        "uniform",
        "SB3",
    ]
    assert f"written: {tmp_path}/sweep/report/index.html" in capsys.readouterr().out


def test_the_finding_stands_first_with_how_sure_it_is(tmp_path: Path) -> None:
    for seed in range(5):
        make_run(tmp_path / f"per{seed}", "per", seed, final=100.0 + seed * seed)
        make_run(tmp_path / f"uniform{seed}", "uniform", seed, final=80.0)
    write_report([tmp_path], tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    head = page[page.index("<div class=claim>") : page.index("<svg")]
    assert (
        "On CartPole-v1, per returned most over the run: 53. Next: uniform, lower by 13 (95 %"
        in head
    )
    assert "5 seeds a setting, paired by seed." in head
    spoken = page[page.index('aria-label="On CartPole') :][:400]
    assert "per 53 with 1000 B; uniform 40" in spoken


def test_settings_that_returned_as_much_are_named_together(tmp_path: Path) -> None:
    for seed in range(5):
        for memory, final in (("per", 100.0), ("cer", 100.0), ("uniform", 80.0)):
            make_run(tmp_path / f"{memory}{seed}", memory, seed, final=final)
    write_report([tmp_path], tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert re.search(
        r"On CartPole-v1, (cer and per|per and cer) returned most over the run: 50 each\. "
        "Next: uniform, lower by 10",
        page,
    )


def test_few_seeds_name_no_second_best(tmp_path: Path) -> None:
    """Also where each seed says the same, as of two alike every second pair does."""
    for seed in range(4):
        make_run(tmp_path / f"per{seed}", "per", seed, final=100.0 + seed)
        make_run(tmp_path / f"uniform{seed}", "uniform", seed, final=80.0)
    write_report([tmp_path], tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert "Perhaps as good: uniform, lower by" in page
    assert "Next: uniform" not in page


def test_a_page_of_many_settings_stays_small(tmp_path: Path) -> None:
    for k in range(60):
        make_run(tmp_path / f"r{k}", env_id=f"E{k % 6}", config={"agent.lr": 0.1 * (1 + k // 6)})
    write_report([tmp_path], tmp_path / "report")
    assert (tmp_path / "report/index.html").stat().st_size <= 500_000


def test_a_page_of_more_settings_than_its_table_holds_names_those_that_returned_most(
    tmp_path: Path,
) -> None:
    for k in range(MOST_ROWS + 20):
        make_run(tmp_path / f"r{k}", final=k, config={"agent.lr": 0.001 * (1 + k)})
    write_report([tmp_path], tmp_path / "report")
    page = (tmp_path / "report/index.html").read_text()
    assert len(page.encode()) <= 500_000
    assert f"The {MOST_ROWS} of {MOST_ROWS + 20} settings that returned most" in page
    listed = re.findall(r'<a href="#setting-\d+">uniform, lr ([\d.]+)</a>', page)
    assert sorted(round(float(lr), 3) for lr in listed) == [
        round(0.001 * (1 + k), 3) for k in range(20, MOST_ROWS + 20)
    ]
    assert "<svg" in page[: page.index("id=settings")]
