"""The page in a real browser: charts drawn, filters and sorting work, nothing on the console."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from rlmem.analysis.show.report import write_report
from tests.analysis.helpers import make_run

webdriver = pytest.importorskip("selenium.webdriver")
Select = pytest.importorskip("selenium.webdriver.support.ui").Select
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --window-size=1280,2000"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
    folder = tmp_path_factory.mktemp("sweep")
    for env_id in ("CartPole-v1", "Acrobot-v1"):
        for seed in range(3):
            for k, memory in enumerate(("per", "uniform", "cer")):
                make_run(
                    folder / f"{env_id}-{memory}-{seed}",
                    memory,
                    seed,
                    env_id=env_id,
                    final=(30, 4, 200)[k] + seed,
                    size=10**5 * (k + 1),
                )
    write_report([folder], folder / "report")
    driver.get(f"file://{folder}/report/index.html")
    yield driver
    driver.quit()


def shown(browser: Any, css: str) -> list[str]:
    """Texts of the visible elements."""
    return [e.text for e in browser.find_elements("css selector", css) if e.is_displayed()]


def type_filter(browser: Any, text: str) -> None:
    field = browser.find_element("id", "filter")
    field.clear()
    field.send_keys(text or " ")


def test_every_figure_is_drawn(browser: Any) -> None:
    type_filter(browser, "")
    drawings = browser.find_elements("css selector", "figure svg")
    assert len(drawings) == 7
    for drawing in drawings:
        assert drawing.size["width"] > 300
        assert drawing.size["height"] > 100
    lines = browser.find_elements("css selector", "#curves-CartPole-v1 svg [id*=line]")
    boxes = [line.rect for line in lines if line.get_attribute("data-setting")]
    assert len(boxes) == 9  # three settings, three panels
    assert all(box["width"] > 100 for box in boxes)


def test_the_filter_hides_rows_and_dims_their_curves(browser: Any) -> None:
    type_filter(browser, "per cart")
    (row,) = shown(browser, "#settings tbody tr")
    assert row.startswith("CartPole-v1 per")
    assert shown(browser, "#count") == ["1 of 6"]
    dimmed = browser.find_elements("css selector", "#curves-CartPole-v1 svg .dim")
    bright = browser.find_elements(
        "css selector", "#curves-CartPole-v1 svg [data-setting]:not(.dim)"
    )
    assert len({e.get_attribute("data-setting") for e in dimmed}) == 2
    assert len({e.get_attribute("data-setting") for e in bright}) == 1
    assert shown(browser, "section[data-env] h2") == ["CartPole-v1"]
    type_filter(browser, "")
    assert len(shown(browser, "#settings tbody tr")) == 6


def test_an_environment_can_be_chosen(browser: Any) -> None:
    type_filter(browser, "")
    choice = Select(browser.find_element("id", "environment"))
    choice.select_by_visible_text("Acrobot-v1")
    assert [row.split()[0] for row in shown(browser, "#settings tbody tr")] == ["Acrobot-v1"] * 3
    choice.select_by_visible_text("all environments")
    assert len(shown(browser, "#settings tbody tr")) == 6


def test_a_click_sorts_by_number_and_a_second_one_turns_it(browser: Any) -> None:
    type_filter(browser, "cart")
    head = browser.find_elements("css selector", "#settings thead button")[3]
    orders = []
    for _ in range(2):
        head.click()
        orders.append([row.split()[1] for row in shown(browser, "#settings tbody tr")])
    assert orders == [["uniform", "per", "cer"], ["cer", "per", "uniform"]]


def test_a_setting_opens_with_its_command(browser: Any) -> None:
    type_filter(browser, "")
    browser.find_element("css selector", "#settings tbody a").click()
    (command,) = shown(browser, "details[open] pre")
    assert command.startswith("python train.py -m memory=")
    assert command.endswith("seed=0,1,2")


def test_the_console_stays_empty(browser: Any) -> None:
    assert browser.get_log("browser") == []
