"""Records a command in a terminal, and draws it as an animated picture (SVG) that plays in a page.

    pip install pyte
    python docs/record.py docs/demo.svg --seconds 15 -- seamark demo

What it shows is a real run, quicker: all waits are shortened alike, and so that the whole takes
`--seconds`. Two frames are never further apart than a second and a half.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import select
import struct
import termios
import time
from html import escape
from itertools import pairwise
from pathlib import Path

import pyte

COLUMNS, LINES = 100, 20
CHARACTER, LINE, MARGIN = 8.4, 19, 14
COLOURS = {
    "default": "#d5dde1", "red": "#ff8f87", "green": "#74d59d", "yellow": "#f0bd62",
    "brown": "#f0bd62", "blue": "#7fb5ff", "magenta": "#c79bea", "cyan": "#63c7dd",
}  # fmt: skip
GAP_S = 0.5
"""Screens nearer to each other than this are one frame."""
LONGEST_S = 1.5

Frame = tuple[float, list[list[tuple[str, str, bool]]]]
"""When it appears, and its lines: pieces of text with colour and boldness."""


def record(command: list[str]) -> tuple[list[Frame], int]:
    """Run the command in a terminal; return its frames and its exit code."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {' '.join(command)}\r\n".encode())
    begun, frames = time.monotonic(), [(0.0, lines_of(screen))]
    child, terminal = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    open_ = True
    while open_:
        if select.select([terminal], [], [], GAP_S)[0]:
            try:
                data = os.read(terminal, 65536)
            except OSError:  # the command has ended
                data = b""
            open_ = bool(data)
            stream.feed(data)
        at, lines = time.monotonic() - begun, lines_of(screen)
        if lines != frames[-1][1] and (at - frames[-1][0] >= GAP_S or not open_):
            frames.append((at, lines))
    return frames, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def lines_of(screen: pyte.Screen) -> list[list[tuple[str, str, bool]]]:
    """Return the screen's lines as pieces of one colour each."""
    found = []
    for row in range(LINES):
        pieces: list[tuple[str, str, bool]] = []
        for column in range(COLUMNS):
            character = screen.buffer[row][column]
            name = character.fg.removeprefix("bright")
            colour = COLOURS.get(name) or f"#{name}"  # one of 256, in hex
            if pieces and pieces[-1][1:] == (colour, character.bold):
                pieces[-1] = (pieces[-1][0] + character.data, colour, character.bold)
            else:
                pieces.append((character.data, colour, character.bold))
        found.append([piece for piece in pieces if piece[0].strip() or piece is not pieces[-1]])
    return found


def at_times(frames: list[Frame], seconds: float) -> list[float]:
    """Return when each frame appears, of a whole that takes `seconds` less the last frame's."""
    waits = [b[0] - a[0] for a, b in pairwise(frames)]
    scale = (seconds - 3) / max(sum(waits), 0.1)
    times = [0.0]
    for wait in waits:
        times.append(times[-1] + min(wait * scale, LONGEST_S))
    return times


def drawn(frames: list[Frame], seconds: float) -> str:
    """Return the picture."""
    times = at_times(frames, seconds)
    whole = times[-1] + 3
    width, height = COLUMNS * CHARACTER + 2 * MARGIN, LINES * LINE + 2 * MARGIN + 16
    shown, style = [], []
    for number, (_, lines) in enumerate(frames):
        begin = 100 * times[number] / whole
        end = 100 * (times[number + 1] if number + 1 < len(times) else whole) / whole
        before = "0%{opacity:0}" if number else ""
        after = "" if end > 99.99 else f"{end:.2f}%{{opacity:0}}"
        style.append(
            f"@keyframes f{number}{{{before}{begin:.2f}%{{opacity:1}}{after}}}"
            f"#f{number}{{animation-name:f{number}}}"
        )
        texts = []
        for row, pieces in enumerate(lines):
            weight = {True: ' font-weight="700"', False: ""}
            spans = "".join(
                f'<tspan fill="{colour}"{weight[bold]}>{escape(text)}</tspan>'
                for text, colour, bold in pieces
            )
            if spans:
                y = MARGIN + 16 + (row + 1) * LINE
                texts.append(f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{spans}</text>')
        shown.append(f'<g class="f" id="f{number}">{"".join(texts)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">'
        "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
        f".f{{opacity:0;animation:{whole:.2f}s step-end infinite}}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}.f:last-of-type{opacity:1}}"
        f"{''.join(style)}</style>"
        '<rect width="100%" height="100%" rx="10" fill="#131a1e"/>'
        + "".join(f'<circle cx="{x}" cy="16" r="5" fill="#4a565c"/>' for x in (20, 38, 56))
        + "".join(shown)
        + "</svg>\n"
    )


def main() -> None:
    """Record, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("command", nargs="+")
    asked = parser.parse_args()
    frames, code = record(asked.command)
    if code:
        raise SystemExit(f"{asked.command[0]} has ended with {code}: nothing is drawn")
    asked.picture.write_text(drawn(frames, asked.seconds))


if __name__ == "__main__":
    main()
