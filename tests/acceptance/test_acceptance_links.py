"""Every link inside the documentation leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from acceptance_pages import DOCS, ROOT, anchors, links, written


@pytest.mark.parametrize("page", written(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
        assert target.is_relative_to(ROOT), f"{link} leads out of the repository"
    assert not broken


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md", DOCS / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        todo += [
            (page.parent / link.partition("#")[0]).resolve()
            for link in links(page)
            if "://" not in link and link.partition("#")[0]
        ]
    assert {page for page in written() if page not in seen} == set()
