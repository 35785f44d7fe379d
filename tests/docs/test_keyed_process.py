"""docs/keyed-process.md: its example is run as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "keyed-process.md"


def test_the_example_tells_who_has_been_away(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "app.py").write_text(example)
    (tmp_path / "in").mkdir()
    rows = [("ann", 5, 0), ("ann", 6, 9), ("bob", 1, 1), ("zed", 0, 50)]
    lines = [
        json.dumps({"user": user, "cents": cents, "at": f"2026-01-01T00:00:{second:02}Z"})
        for user, cents, second in rows
    ]
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    run = subprocess.run(
        [sys.executable, str(tmp_path / "app.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found = [
        tuple(json.loads(line).values())
        for path in (tmp_path / "out").rglob("*.json")
        for line in path.read_text().splitlines()
    ]
    assert sorted(found) == [("ann", 11), ("bob", 1)]
