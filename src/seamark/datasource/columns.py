"""A sink's columns made of the DataFrame's in Arrow: within a data source nobody can plan SQL.

A sink says by SQL expressions which columns it takes (`select_expressions`). Most pass a column on,
name it anew, or cast it in a way that Arrow does alike. For any other one the user is shown the
`selectExpr` to write.
"""

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from seamark.contracts.sink import TwoPhaseCommitSink
from seamark.contracts.text_forms import as_text
from seamark.model.errors import ConfigurationError
from seamark.model.schema import Schema

_NAME = r"`((?:[^`]|``)*)`"
_ALIAS = rf"(?: AS (?:{_NAME}|(\w+)))?"
_TEXT = rf"(?:CAST\({_NAME} AS STRING\)|replace\(format_number\({_NAME}, \d+\), ','\))"
_FORMS = (
    ("as it is", re.compile(_NAME + _ALIAS)),
    ("text", re.compile(_TEXT + _ALIAS)),
    ("binary", re.compile(rf"CAST\({_NAME} AS BINARY\){_ALIAS}")),
    ("binary text", re.compile(rf"CAST\({_TEXT} AS BINARY\){_ALIAS}")),
    ("null", re.compile(rf"CAST\(NULL AS BINARY\){_ALIAS}")),
)
_LAST_NAME = re.compile(rf"(?: AS |^)(?:{_NAME}|(\w+))$")
_ALIKE = ("string", "boolean", "tinyint", "smallint", "int", "bigint", "decimal", "date")
"""Types whose text is the same in Arrow as in Spark."""


@dataclass(frozen=True)
class _Part:
    how: str
    source: int
    name: str


@dataclass(frozen=True)
class Projection:
    """Makes a sink's columns of a batch's."""

    parts: tuple[_Part, ...]

    @staticmethod
    def of(
        sink: TwoPhaseCommitSink[Any], schema: Schema, *, selected: bool = False
    ) -> "Projection":
        """Return the columns that `sink` takes of a DataFrame. Raises ConfigurationError, with the
        expressions to select, for those that need SQL. `selected`: the DataFrame has the columns of
        these expressions already."""
        if selected:
            _require_own_columns(sink, schema)
            parts = enumerate(column.name for column in schema)
            return Projection(tuple(_Part("as it is", number, name) for number, name in parts))
        expressions = sink.select_expressions(schema)
        made = [_part(expression, schema) for expression in expressions]
        if None in made:
            listed = ",\n    ".join(map(repr, expressions))
            raise ConfigurationError(
                f"{sink.describe()}: these columns have to be made in SQL before a data source "
                f'gets them; give the writer the option ("selected", "true"), and these rows:\n'
                f"df.selectExpr(\n    {listed},\n)"
            )
        return Projection(tuple(part for part in made if part is not None))

    def __call__(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the sink's columns of a batch."""
        columns = [_made(part, rows) for part in self.parts]
        return pa.RecordBatch.from_arrays(columns, [part.name for part in self.parts])


def _require_own_columns(sink: TwoPhaseCommitSink[Any], schema: Schema) -> None:
    """Raise ConfigurationError if the sink would make columns of other names of these: its writers
    take theirs by place, and would leave out the rest."""
    try:
        expressions = sink.select_expressions(schema)
    except ConfigurationError:  # they are not those that it makes its own of
        return
    found = [match for match in map(_LAST_NAME.search, expressions) if match is not None]
    own = [(m[1] or m[2] or "").replace("``", "`") for m in found]
    names = [column.name for column in schema]
    if len(found) == len(expressions) and {*names} - {*own}:
        raise ConfigurationError(
            f'{sink.describe()}: the option selected is "true", and the DataFrame has '
            f"{', '.join(names)}, where the sink takes {', '.join(own)}; leave the option out "
            "once, and select what the error then shows"
        )


def _part(expression: str, schema: Schema) -> _Part | None:
    for how, form in _FORMS:
        if (match := form.fullmatch(expression)) is None:
            continue
        *sources, quoted_alias, alias = match.groups()
        source = next((name.replace("``", "`") for name in sources if name), "")
        number = _number(source, schema)
        if number < 0 and how != "null":
            return None
        # The type's first word: an interval is no int.
        if how.endswith("text") and re.split(r"\W", schema[number].type)[0] not in _ALIKE:
            return None
        name = (quoted_alias or alias or "").replace("``", "`") or source
        return _Part(how, number, name)
    return None


def _number(name: str, schema: Schema) -> int:
    """Return the number of the column of this name, whatever its case if no other has it; -1 if
    there is none, or more than one."""
    exact = [n for n, column in enumerate(schema) if column.name == name]
    numbers = exact or [n for n, column in enumerate(schema) if column.name.lower() == name.lower()]
    return numbers[0] if len(numbers) == 1 else -1


def _made(part: _Part, rows: pa.RecordBatch) -> pa.Array:
    if part.how == "null":
        return pa.nulls(rows.num_rows, pa.binary())
    column = rows.column(part.source)
    if part.how.endswith("text"):
        column = as_text(column)
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            column = column.cast(pa.string())
    if part.how.startswith("binary"):
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        column = column.cast(pa.large_binary() if large else pa.binary())  # the same buffers
    return column
