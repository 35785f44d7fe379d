"""Puts navigation.md behind README.md, the site's first page, and opens the site with it.

A repository's page shows no toctree, so README.md has none.
"""

import shutil
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent


def add(app: Sphinx, docname: str, source: list[str]) -> None:
    """Called as each page is read."""
    if docname == app.config.root_doc:
        source[0] += "\n\n" + (HERE / "navigation.md").read_text()


def open_with(app: Sphinx, exception: Exception | None) -> None:
    """Make index.html, in the same directory as the page that it is a copy of."""
    if exception is None and app.builder.format == "html":
        shutil.copy(Path(app.outdir, f"{app.config.root_doc}.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", add)
    app.connect("build-finished", open_with)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
