"""The site has the folders of the repository, so links between files are the same here and there.

mkdocs.yml names the pages that somebody wrote. Added here: the reference of keys and of the Python
API, made when the site is built; the findings of each study; and each file that a page links to.
A link to `conf/memory` or to a module of the API, which a reader of the repository sees, leads here
to the page that is made of it.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from website import api, keys, links

ROOT = Path(__file__).resolve().parents[1]
# Sections of the navigation that are filled when the site is built.
CONFIGURATION, PYTHON = "Configuration keys", "Python API"
STUDIES, BENCHMARKS = "Findings", "What was measured"


def on_config(config: Any) -> Any:
    """Fill the sections of the navigation that nobody writes."""
    generated = keys.pages() | api.pages()
    config.extra["generated"] = generated
    filled = {
        CONFIGURATION: [path for path in generated if path.startswith(keys.FOLDER)],
        PYTHON: [path for path in generated if path.startswith(api.FOLDER)],
        STUDIES: [path.relative_to(ROOT).as_posix() for path in links.findings()],
        BENCHMARKS: [path.relative_to(ROOT).as_posix() for path in links.results()],
    }
    for section in config.nav:
        for pages in section.values():
            for entry in pages if isinstance(pages, list) else []:
                for title in filled.keys() & (entry.keys() if isinstance(entry, dict) else ()):
                    entry[title] = filled[title]
    return config


def on_files(files: Files, config: Any) -> Files:
    """All pages by their paths in the repository, and what they link to."""
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    made = [
        File.generated(config, path, content=text)
        for path, text in config.extra["generated"].items()
    ]
    paths = [path.relative_to(ROOT).as_posix() for path in [*links.pages(), *_linked()]]
    paths += [p for p in (*config.extra_css, *config.extra["polyfills"]) if (ROOT / p).is_file()]
    kept = [
        File(path, str(ROOT), config.site_dir, config.use_directory_urls)
        for path in dict.fromkeys(paths)
    ]
    return Files([*of_theme, *made, *kept])


def _linked() -> Iterator[Path]:
    """Files other than pages that a page links to: figures, tables, sources."""
    for page in links.pages():
        for link in links.links(page):
            target = links.target(page, link)
            if target and target.is_file() and target.suffix != ".md" and not _stands_for(target):
                yield target


def _stands_for(target: Path) -> str | None:
    """The page of the reference that is made of a file or folder."""
    if not target.is_relative_to(ROOT):
        return None
    path = target.relative_to(ROOT).as_posix()
    return keys.page_of(path) or api.page_of(path)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to what the reference is made of lead to the reference."""
    here = ROOT / page.file.src_uri

    def led(link: re.Match[str]) -> str:
        target = links.target(here, link[1])
        made = _stands_for(target) if target else None
        return f"]({os.path.relpath(ROOT / made, here.parent)})" if made else link[0]

    return re.sub(r"\]\(([^)\s]+)\)", led, markdown)
