"""The directive `api`: documents public names of `seamark`, from their docstrings.

Docstrings are plain text with backticks and paragraphs of ``name: text`` lines; `as_rest` makes
reStructuredText of one. A public name that no `api` directive has is a warning.
"""

import re
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from inspect import formatannotation
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import switch_source_input

import seamark

logger = logging.getLogger(__name__)
ITEM = re.compile(r"(?P<names>`{0,2}\w+`{0,2}(?:(?:, | and )`{0,2}\w+`{0,2})*):(?: (?=\S)|$)")
CHOICE = re.compile(r"\s+``\"[\w-]+\"``: ")
QUALIFIED = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z]|timedelta|datetime)")
SPAN = re.compile(r"(``.+?``|`[^`]+`|\*[^*\s][^*]*\*)", re.DOTALL)
PAGE = re.compile(r"docs/([\w/-]+)\.md")
PUBLIC = frozenset(seamark.__all__)


def inline(text: str) -> str:
    """Return a docstring's text as reStructuredText: single backticks are code, too."""
    parts = SPAN.split(text)
    for place, part in enumerate(parts):
        if not place % 2:
            parts[place] = PAGE.sub(_link, re.sub(r"([\\*_|<>])", r"\\\1", part))
        elif part.startswith("`"):
            code = part.strip("`")
            parts[place] = f":py:obj:`{code} <seamark.{code}>`" if code in PUBLIC else f"``{code}``"
            before = "".join(parts[:place])[-1:]
            after = "".join(parts[place + 1 :])[:1]
            parts[place] = ("\\ " if before.isalnum() else "") + parts[place]
            parts[place] += "\\ " if after.isalnum() else ""
    return "".join(parts)


def _link(page: re.Match[str]) -> str:
    return f":doc:`{page[1]} </docs/{page[1]}>`"


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Yield the runs of lines between blank lines."""
    found: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            found.append(line)
        elif found:
            yield found
            found = []


def as_rest(lines: list[str]) -> list[str]:
    """Return a docstring's lines as reStructuredText.

    A paragraph that begins with ``name: `` is a list of such items; one that is indented, or holds
    Python's prompt, is code.
    """
    made: list[str] = []
    for paragraph in paragraphs(lines):
        if paragraph[0].startswith("    ") or paragraph[0].startswith(">>>"):
            made += ["::", "", *(f"    {line}" for line in paragraph), ""]
            continue
        if not ITEM.match(paragraph[0]) and not paragraph[0].startswith("- "):
            made += [inline(" ".join(line.strip() for line in paragraph)), ""]
            continue
        items: list[str] = []
        for line in paragraph:
            if not line.startswith(" ") and (ITEM.match(line) or line.startswith("- ")):
                items.append(line)
            else:
                items[-1] += ("\n" if CHOICE.match(line) else " ") + line.strip()
        for item in items:
            text, *choices = item.split("\n")
            if begin := ITEM.match(text):
                names = re.sub(r"\w+", r"``\g<0>``", begin["names"].replace("`", ""))
                names = names.replace("``and``", "and")
                made.append(f"- {names}: {inline(text[begin.end() :])}")
            else:
                made.append(f"- {inline(text.removeprefix('- '))}")
            made += ["", *(f"  - {inline(choice)}" for choice in choices), ""] if choices else []
        made.append("")
    return made


class Api(Directive):
    """``{api}``: each name of its content. ``:members:`` are those to show: all unless given,
    ``none``, or a list; ``:bases:`` shows what a class derives from."""

    has_content = True
    option_spec = {"members": str, "bases": lambda _: True}

    def run(self) -> list[nodes.Node]:
        """Have autodoc write each name."""
        environment = self.state.document.settings.env
        lines = ["```{eval-rst}"]
        for name in " ".join(self.content).split():
            value = getattr(seamark, name)
            _written(environment).setdefault(environment.docname, set()).add(name)
            kind = "autoclass" if isinstance(value, type) else "autofunction"
            lines += [f".. {kind}:: seamark.{name}"]
            if kind == "autoclass":
                members = self.options.get("members", "")
                lines += [] if members == "none" else [f"   :members: {members}".rstrip()]
                lines += ["   :undoc-members:"] if issubclass(value, Enum) else []
                lines += ["   :show-inheritance:"] if "bases" in self.options else []
            lines.append("")
        lines.append("```")
        node = nodes.section()
        node.document = self.state.document
        content = StringList(lines, source="<api>")
        with switch_source_input(self.state, content):
            self.state.nested_parse(content, 0, node, match_titles=1)
        return node.children


def _written(environment: Any) -> dict[str, set[str]]:
    if not hasattr(environment, "seamark_names"):
        environment.seamark_names = {}
    found: dict[str, set[str]] = environment.seamark_names
    return found


def process(app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Turn a docstring, in place."""
    lines[:] = as_rest(lines)


def signature(
    app: Sphinx, what: str, name: str, value: Any, options: Any, given: str, returns: str
) -> tuple[str, str] | None:
    """Return the parameters of a dataclass: its fields, whatever its constructor takes."""
    if what != "class" or not is_dataclass(value) or issubclass(value, BaseException):
        return None
    shown = []
    for each in fields(value):
        if each.init and not each.name.startswith("_"):
            text = each.type if isinstance(each.type, str) else formatannotation(each.type)
            text = QUALIFIED.sub("", text)
            default = each.default
            if each.default_factory is not MISSING:
                default = each.default_factory()
            if isinstance(default, Enum):
                default = default.value
            simple = isinstance(default, str | bool | int | float | tuple | dict | type(None))
            value_ = f" = {default!r}" if simple else "" if default is MISSING else " = ..."
            shown.append(f"{each.name}: {text}{value_}")
    keyword_only = all(each.kw_only for each in fields(value))
    return f"({', '.join([*(['*'] if keyword_only and shown else []), *shown])})", ""


def complain(app: Sphinx, environment: Any) -> None:
    """Warn of public names that no page has."""
    written = set().union(*_written(environment).values(), set())
    for name in sorted(PUBLIC - written):
        logger.warning("seamark.%s is public and not in the API reference", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("api", Api)
    app.connect("autodoc-process-docstring", process)
    app.connect("autodoc-process-signature", signature)
    app.connect("env-check-consistency", complain)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
