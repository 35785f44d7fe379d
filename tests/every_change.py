"""Sinks of the tests that keep every change of a result, one behind another, in update mode."""

from __future__ import annotations

import seamark as sm


class SQLiteChanges(sm.SQLiteSink):
    """A table with a row for each change."""

    output_modes = ("append", "update")


class FileChanges(sm.FileSink):
    """Files with a row for each change."""

    output_modes = ("append", "update")
