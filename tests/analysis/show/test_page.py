"""Pages in a real browser: figures drawn, filters and sorting work, nothing on the console."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlmem.analysis.show.report import StudyPage, write_report
from rlmem.cli import _study
from tests.analysis.helpers import make_run, unlike

webdriver = pytest.importorskip("selenium.webdriver")
Keys = pytest.importorskip("selenium.webdriver.common.keys").Keys
Select = pytest.importorskip("selenium.webdriver.support.ui").Select
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --window-size=1280,2000"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    """A browser, and the address of a report of a sweep."""
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
                    evaluated=4,
                )
    findings = folder / "findings.md"
    findings.write_text("**Found.**\n\nSee ![how they learn](figures/curves-CartPole-v1.png).\n")
    write_report([folder], folder / "report", study=StudyPage(findings=findings))
    yield driver, f"file://{folder}/report/index.html"
    driver.quit()


@pytest.fixture
def browser(chromium: tuple[Any, str]) -> Any:
    """A browser that has just opened the report, with all of its parts unfolded."""
    driver, address = chromium
    driver.set_window_size(1280, 2000)
    driver.get(address)
    driver.execute_script("for (const part of document.querySelectorAll('details')) part.open = 1")
    return driver


def shown(browser: Any, css: str) -> list[str]:
    """Texts of the visible elements."""
    return [e.text for e in browser.find_elements("css selector", css) if e.is_displayed()]


def type_filter(browser: Any, text: str) -> None:
    field = browser.find_element("id", "filter")
    field.clear()
    field.send_keys(text or " ")


VIEWS = ["bytes", "bytes, final", "env steps", "seconds", "env steps, evaluated"]


def test_each_view_of_a_panel_has_its_figure(browser: Any) -> None:
    type_filter(browser, "")
    panels = browser.find_elements("css selector", ".switch")
    assert len(panels) == 2
    for panel in panels:
        labels = panel.find_elements("css selector", ".views label")
        assert [label.text for label in labels] == VIEWS
        for label in labels:
            label.click()
            (drawing,) = [s for s in panel.find_elements("css selector", "svg") if s.is_displayed()]
            assert drawing.size["width"] > 300
            assert drawing.size["height"] > 100
            assert label.value_of_css_property("background-color") != "rgba(0, 0, 0, 0)"
        labels[VIEWS.index("seconds")].click()
    parts = browser.find_elements("css selector", "#seconds-CartPole-v1 svg [data-setting]")
    assert len({part.get_attribute("data-setting") for part in parts if part.rect["height"]}) == 3


def test_a_picture_that_the_findings_name_leads_to_its_view(browser: Any) -> None:
    type_filter(browser, "")
    figure = browser.find_element("id", "curves-CartPole-v1")
    browser.find_element("css selector", "label[for=bytes-CartPole-v1-view1]").click()
    assert not figure.is_displayed()
    browser.find_element("link text", "how they learn").click()
    assert figure.is_displayed()


def test_the_arrow_keys_switch_the_axis(browser: Any) -> None:
    first, second = browser.find_elements("css selector", ".head .switch > input")[:2]
    browser.execute_script("arguments[0].click(); arguments[0].focus()", first)
    first.send_keys(Keys.ARROW_RIGHT)
    assert second.is_selected()
    browser.execute_script("arguments[0].click()", first)


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
    assert shown(browser, "section[data-env] h3") == ["CartPole-v1"]
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
    command = browser.find_element("css selector", "details:target pre").text
    assert command.startswith("python train.py -m memory=")
    assert command.endswith("seed=0,1,2")


def test_the_console_stays_empty(browser: Any) -> None:
    assert browser.get_log("browser") == []


STUDIES = Path(__file__).parents[3] / "studies"
RECORDED = [path.parent.name for path in sorted(STUDIES.glob("*/results.csv"))]
SMALLEST = """const scale = (to) => Math.hypot(to.a, to.b);
return Math.min(...[...document.querySelectorAll("svg text")]
    .filter((text) => text.checkVisibility() && text.getBoundingClientRect().height)
    .map((text) => parseFloat(getComputedStyle(text).fontSize) * scale(text.getScreenCTM())))"""


@pytest.mark.parametrize("name", RECORDED)
def test_the_page_of_a_study_is_whole_on_a_desk_and_on_a_phone(
    browser: Any, tmp_path: Path, name: str
) -> None:
    """Nothing on the console, no page wider than its window, no text below 11 pixels."""
    folder = tmp_path / name
    shutil.copytree(STUDIES / name, folder, ignore=shutil.ignore_patterns("runs", "report"))
    assert _study(str(folder), "", 0) == 0
    for kept in sorted(folder.glob("figures/*.png")):
        if (drawn := folder / "report/figures" / kept.name).exists():  # its runs are recorded
            assert unlike(kept, drawn) < 1e-3, f"{kept.name}: copy it from the report again"
    page = folder / "report/index.html"
    assert page.stat().st_size <= 500_000
    names = re.findall(r'<figure id="([^"]*)">', page.read_text())
    assert len(names) == len(set(names))  # each figure once
    browser.get_log("browser")
    for width, height in ((1400, 900), (400, 820)):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(f"file://{page}")
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        claim = browser.find_element("css selector", ".claim")
        (figure, *_) = [
            drawn
            for drawn in browser.find_elements("css selector", ".head svg, .head img")
            if drawn.is_displayed()
        ] or [claim]
        assert claim.text
        assert claim.rect["y"] + claim.rect["height"] < height
        assert figure.rect["y"] + figure.rect["height"] / 2 < height
        assert browser.execute_script(SMALLEST) >= 10.9
        assert browser.get_log("browser") == []
