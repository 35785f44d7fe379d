"""Give the distribution the project's addresses: only the published one has them.

``python packaging/addresses.py https://forge.example/owner/seamark v0.1.0`` checks that the tag
names the version of the source, writes ``[project.urls]`` into pyproject.toml, and makes the
relative links of README.md absolute, as an index shows the page elsewhere. The release workflow
runs it before ``make dist``; its changes are not committed.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
URLS = """[project.urls]
Homepage = "{at}"
Documentation = "{at}/blob/{tag}/docs/README.md"
Changelog = "{at}/blob/{tag}/CHANGELOG.md"
Issues = "{at}/issues"

[project.scripts]"""
RELATIVE = re.compile(r"\]\((?!https?://|#)([^)#\s]+)")


def absolute(readme: str, at: str, tag: str) -> str:
    """Return a page with its relative links made absolute: pictures as files, others as pages."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1].endswith((".svg", ".png", ".gif")) else "blob"
        return f"]({at}/{kind}/{tag}/{found[1]}"

    return RELATIVE.sub(link, readme)


def give(root: Path, at: str, tag: str) -> None:
    """Change pyproject.toml and README.md in `root`; refuse a tag of another version."""
    source = (root / "src/seamark/model/packages.py").read_text()
    version = re.findall(r'^VERSION = "(.+)"$', source, re.MULTILINE)[0]
    if tag != f"v{version}":
        raise SystemExit(f"the tag {tag} is not v{version}, the version in model/packages.py")
    project, readme = root / "pyproject.toml", root / "README.md"
    urls = URLS.format(at=at.rstrip("/"), tag=tag)
    project.write_text(project.read_text().replace("[project.scripts]", urls, 1))
    readme.write_text(absolute(readme.read_text(), at.rstrip("/"), tag))


if __name__ == "__main__":
    give(ROOT, *sys.argv[1:])
