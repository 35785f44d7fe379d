"""The documentation site: `make docs` builds it from the repository's Markdown into build/docs.

The pages stay where a reader of the repository finds them, and their links are the repository's:
the source directory is its root. `navigation.md` puts them into sections; `api.py` and `llms.py`
write the pages that no file has. The build asks nothing of the network.
"""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
REPO = HERE.parents[1]
sys.path[:0] = [str(HERE), str(REPO / "src")]

project = "Seamark"
author = "Seamark's authors"
version = release = metadata.version("pyspark-seamark")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "api", "llms", "navigation"]
root_doc = "README"
source_suffix = {".md": "markdown"}
include_patterns = [
    "*.md",
    "docs/**",
    "examples/README.md",
    "examples/*/README.md",
    "tests/README.md",
]
exclude_patterns = [
    "docs/site/navigation.md",
    ".*",
    "build",
    "dist",
    "src",
    "benchmarks",
    "tests/[a-z_]*",
]

nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # of signatures: types that are not public
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
# Fences that Pygments has no lexer for are text, not a mistake of the page.
# A section may be empty for a while.
suppress_warnings = ["misc.highlighting_failure", "toc.empty_glob"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
add_module_names = False
python_maximum_signature_line_length = 80

html_theme = "pydata_sphinx_theme"
html_title = f"Seamark {version}"
html_static_path = ["static"]
html_css_files = ["seamark.css"]
html_theme_options = {
    "logo": {"text": project},
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
copyright = "Seamark's authors. Apache 2.0"  # noqa: A001
