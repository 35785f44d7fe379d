"""Writes llms.txt and llms-full.txt: the site for a reader that is a language model.

llms.txt has a line for each page, by section: its title, address and first sentence. llms-full.txt
has the pages themselves, as their authors wrote them, without those for contributors.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx

FOR_CONTRIBUTORS = "docs/site/contributors"


def pages(app: Sphinx, section: str) -> Iterator[str]:
    """Yield the pages below a page, in the order of the toctrees."""
    for page in app.env.toctree_includes.get(section, ()):
        yield page
        yield from pages(app, page)


def title(app: Sphinx, page: str) -> str:
    """Return a page's title."""
    return app.env.titles[page].astext()


def first_sentence(app: Sphinx, page: str) -> str:
    """Return how a page begins; "" if it begins with no paragraph."""
    for paragraph in app.env.get_doctree(page).findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section):  # of no table or list
            text = " ".join(paragraph.astext().split())
            found = re.match(r".*?[.!?](?=\s|$)", text)
            return found[0] if found else text
    return ""


def content(app: Sphinx, page: str) -> str:
    """Return a page as its author wrote it; the API's as text, which no author wrote."""
    text = Path(app.env.doc2path(page)).read_text()
    return app.env.get_doctree(page).astext() if "```{api}" in text else text


def write(app: Sphinx, exception: Exception | None) -> None:
    """Called when the build has ended."""
    if exception is not None or app.builder.format != "html":
        return
    root = app.config.root_doc
    short = [f"# {app.config.project}", "", f"> {first_sentence(app, root)}", ""]
    full = [content(app, root)]
    for section in app.env.toctree_includes[root]:
        short += [f"## {title(app, section)}", ""]
        for page in pages(app, section):
            line = f"- [{title(app, page)}]({app.builder.get_target_uri(page)})"
            short.append(": ".join(part for part in (line, first_sentence(app, page)) if part))
            if section != FOR_CONTRIBUTORS:
                full.append(content(app, page))
        short.append("")
    Path(app.outdir, "llms.txt").write_text("\n".join(short))
    Path(app.outdir, "llms-full.txt").write_text("\n\n".join(text.strip() for text in full) + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
