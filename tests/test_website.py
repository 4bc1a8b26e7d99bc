"""The documentation site: links, navigation, the reference of keys, and how it is built."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import pytest
import yaml
from omegaconf import OmegaConf

from rlmem import registry
from rlmem.config import CONF_DIR, compose
from website import api, conf_files, keys, links, takes

ROOT = Path(__file__).parents[1]
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
--disable-background-networking --disable-component-update --window-size=1400,1000"""


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site name them."""
    headings = re.findall(
        r"^#+ (.*)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M
    )
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", links.pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in links.links(page):
        target = links.target(page, link)
        if target is None:
            continue
        assert target.exists(), f"{link}: no such file"
        anchor = link.partition("#")[2]
        assert not anchor or anchor in anchors(target), f"{link}: no such heading"


def named(entry: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    for below in entry if isinstance(entry, list) else ():
        yield from named(below)
    for below in entry.values() if isinstance(entry, dict) else ():
        yield from named(below)


def test_every_page_is_in_the_navigation() -> None:
    nav = list(named(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    added = [*links.findings(), *links.results()]
    pages = {page.relative_to(ROOT).as_posix() for page in links.pages() if page not in added}
    assert sorted(nav) == sorted(set(nav))
    assert set(nav) == pages, "mkdocs.yml: nav and the pages in docs/ differ"


# The reference of keys


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The reference's pages by name."""
    return {Path(path).stem: text for path, text in keys.pages().items()}


def leaves(values: Any, above: str = "") -> Iterator[str]:
    """Dotted keys of a yaml, without defaults lists and Hydra's own."""
    for name, value in values.items():
        if above or name not in ("defaults", "hydra"):
            if isinstance(value, dict) and value:
                yield from leaves(value, f"{above}{name}.")
            else:
                yield f"{above}{name}"


def of_conf() -> Iterator[tuple[str, str]]:
    """Page and key of each key in conf/."""
    for file in sorted(CONF_DIR.rglob("*.yaml")):
        group = file.parent.relative_to(CONF_DIR).as_posix()
        if group.startswith("hydra"):
            continue
        text = file.read_text()
        whole = "@package _global_" in text or group == "."
        if group == "." and file.stem not in ("train", "evaluate"):
            group, whole = file.stem, False  # what a group's options begin with
        for key in leaves(yaml.safe_load(text) or {}):
            page = {"train": "run"}.get(file.stem, file.stem) if group == "." else group
            page = "run" if page == "trainer" else keys.page_name(page)
            yield page, key if whole else f"{group.replace('/', '.')}.{key}"


def test_every_key_of_conf_is_in_the_reference(pages: dict[str, str]) -> None:
    for page, key in of_conf():
        if key.split(".")[-1] in keys.NAMED_BY_OPTION and key.count(".") <= page.count("_") + 1:
            continue
        if key == "logger.csv":  # it has no keys
            continue
        assert f"`{key}`" in pages[page] or f"`{key}=" in pages[page], f"{key} is not on {page}.md"


def declared(settings: Any, above: str = "") -> Iterator[str]:
    """Dotted keys of a part's settings; of parts below, none."""
    for field in fields(settings) if settings else ():
        hint = get_type_hints(settings)[field.name]
        if is_dataclass(hint):
            yield from declared(hint, f"{above}{field.name}.")
        elif not field.metadata.get("group") and get_origin(hint) is not dict and field.init:
            yield f"{above}{field.name}"


@pytest.mark.parametrize("group", ["agent", "memory", "memory/sampler", "memory/storage", "env"])
def test_every_key_that_a_part_declares_is_in_the_reference(
    pages: dict[str, str], group: str
) -> None:
    for part in registry.parts(group).values():
        if not part.module.startswith("rlmem."):
            continue  # of another test's plugin
        for name in set(declared(part.settings)) - set(keys.NAMED_BY_OPTION):
            above = f"{group}/{name.split('.')[0]}"  # of env.protocol.sticky: a group of its own
            page = above if above in conf_files.groups() else group
            key = f"{group.replace('/', '.')}.{name}"
            assert name.endswith(".name") or f"`{key}`" in pages[keys.page_name(page)], key


def test_every_key_has_a_meaning(pages: dict[str, str]) -> None:
    rows = [row for text in pages.values() for row in text.splitlines() if row.startswith("| `")]
    assert len(rows) > 300
    assert not [row for row in rows if row.split("|")[-2].strip() == ""]


@pytest.mark.parametrize(
    ("group", "name"),
    [("memory", "gwr"), ("memory", "per_rainbow"), ("env", "pong"), ("agent", "td3")],
)
def test_defaults_are_those_that_hydra_composes(group: str, name: str) -> None:
    composed = OmegaConf.to_container(compose("train", [f"{group}={name}"])[group], resolve=False)
    option = conf_files.option(group, name)
    below = [f"{g}." for g in option.chosen]
    found = {key for key in leaves(composed) if not key.startswith(tuple(below))}
    assert set(option.keys) == found
    for key in found:
        value: Any = composed
        for step in key.split("."):
            value = value[step]
        assert option.keys[key].value == value, key


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("trainer.max_env_steps", "whole number, at least 1"),
        ("trainer.rounds", "auto or a whole number from 1 to 1000000"),
        ("trainer.precision", "`32-true`, `bf16-mixed`"),
        ("evaluation.epsilon", "number, at least 0 and at most 1"),
        ("log.map_every", "whole number, at least 1, or null"),
        ("plugins", "list of texts"),
    ],
)
def test_what_a_key_takes_is_said_in_words(key: str, words: str) -> None:
    assert takes.takes(takes.of_run(key), None) == words


def test_a_default_that_follows_another_key_says_which(pages: dict[str, str]) -> None:
    row = next(
        r
        for r in pages["memory_sampler"].splitlines()
        if r.startswith("| `memory.sampler.beta_steps")
    )
    assert "*as* `trainer.max_env_steps`" in row
    row = next(r for r in pages["agent"].splitlines() if "`agent.gamma`" in r)
    assert "by env" in row


def test_the_api_has_the_public_names() -> None:
    found = api.pages()
    for name in ("train", "evaluate", "load_run"):
        assert f"::: rlmem.{name}\n" in found[f"{api.FOLDER}/rlmem.md"]
    for name in ("DND", "CompressedFrameStorage", "ReplayMemory"):
        assert f"::: rlmem.memories.{name}\n" in found[f"{api.FOLDER}/memories.md"]


# The built site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` builds it."""
    pytest.importorskip("mkdocs", reason="the extra [docs] is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Chromium, where it is installed."""
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    profile = tmp_path_factory.mktemp("chromium")
    for flag in f"{FLAGS} --user-data-dir={profile}".split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield opened
    opened.quit()


@pytest.mark.slow
def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    for page in pages:
        loaded = re.findall(
            r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]*)", page.read_text()
        )
        loaded += re.findall(r"<link\b[^>]*\bhref=\"([^\"]*)", page.read_text())
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page


@pytest.mark.slow
def test_a_link_to_the_configuration_leads_to_its_reference(site: Path) -> None:
    page = (site / "docs" / "howto" / "choose.html").read_text()
    assert "../reference/keys/memory.html" in page


@pytest.mark.slow
def test_every_page_fits_its_window_and_says_nothing_on_the_console(
    site: Path, browser: Any
) -> None:
    """A wide window and that of a telephone, to which a loaded page adapts."""

    def show(width: int) -> None:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    browser.get_log("browser")
    for page in sorted(site.rglob("*.html")):
        if page.name == "404.html":  # its links begin at a server's root
            continue
        show(1400)
        browser.get(page.as_uri())
        for width in (1400, 400):
            show(width)
            inner, wide = browser.execute_script(
                "return [window.innerWidth, document.documentElement.scrollWidth]"
            )
            assert wide <= width, f"{page.relative_to(site)} is {wide} pixels wide"
            assert inner == width
        assert browser.get_log("browser") == [], page.relative_to(site)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.slow
def test_search_works_from_the_file_system(site: Path, browser: Any) -> None:
    browser.get((site / "index.html").as_uri())
    browser.find_element("css selector", "[data-md-component=search-query]").send_keys(
        "habituation"
    )
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait(browser, 30)
    found = wait.until(lambda b: b.find_elements("css selector", ".md-search-result__link"))
    assert any("threshold" in link.get_attribute("href") for link in found)
