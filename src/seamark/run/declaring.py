"""Makes the parts of a declared job from the user's values: Seamark's sources and sinks, and
Spark's DataFrames. Raises ConfigurationError as soon as a value is wrong."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException, PySparkValueError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from seamark.api.checks import no_class, one_of
from seamark.api.declarations import ON_BAD_ROW, DeclaredSink, DeclaredSource, a_sink
from seamark.checkpoint.spark_files import SOURCE_EVOLUTION
from seamark.contracts.dead_letters import DEAD_LETTER_SCHEMA, SelectiveSink
from seamark.contracts.source import DecodedSource
from seamark.model.errors import ConfigurationError
from seamark.model.redaction import secrets_in
from seamark.model.schema import Column
from seamark.run.dead_letters import check_takes_dead_letters
from seamark.run.process import interruptible
from seamark.spark.connect import require_classic
from seamark.spark.decoded import decoded
from seamark.spark.java_calls import root_cause
from seamark.spark.session import require_format, require_stream, spark_schema, spark_session
from seamark.spark.source_options import refusal, refused_options, unknown_options
from seamark.spark.state_backend import session_setting


def declare_source(
    job: str, source: Any, uid: str, replayable: bool | None
) -> tuple[DeclaredSource, set[str]]:
    """Return the source with its streaming DataFrame, and the source's secrets."""
    require_classic(source, f"source {uid!r}")
    if isinstance(source, DataFrame):
        if not source.isStreaming:
            raise ConfigurationError(
                f"source {uid!r}: this DataFrame is not streaming; read it with "
                "spark.readStream, or join it to a stream without declaring it as a source"
            )
        if replayable is None:
            raise ConfigurationError(
                f"source {uid!r}: say whether the stream can be read again after a failure: "
                "replayable=True or replayable=False"
            )
        require_options(source, f"source {uid!r}")
        return DeclaredSource(
            uid, "Spark stream", replayable, bounded=False, dataframe=source
        ), set()
    no_class(source, f"source {uid!r}")
    if not hasattr(source, "reader"):
        raise ConfigurationError(
            f"source {uid!r} is {type(source).__name__}; give a sm.…Source or a streaming DataFrame"
        )
    if replayable is not None:
        raise ConfigurationError(
            f"source {uid!r}: replayable= is for plain DataFrames; "
            f"{type(source).__name__} knows it itself"
        )
    spark = spark_session(job)
    reader = source.reader()
    require_format(spark, reader.format)
    what = f"source {uid!r}: {source.describe()}"

    def load(options: Mapping[str, str]) -> DataFrame:
        stream = spark.readStream.format(reader.format).options(**options)
        if session_setting(spark, SOURCE_EVOLUTION, "false") == "true":
            stream = stream.name(uid)  # Spark refuses a source without one
        return (stream if reader.schema is None else stream.schema(reader.schema)).load()

    try:
        read = load(reader.options)
    except (ParseException, AnalysisException, PySparkValueError) as error:
        raise ConfigurationError(f"{what}: {str(error).strip().splitlines()[0]}") from None
    except PySparkException:
        raise ConfigurationError(f"{what}: {refusal(load, reader.options)}; correct it") from None
    except Py4JJavaError as error:  # of a file system
        raise ConfigurationError(f"{what}: {root_cause(error)}") from None
    require_options(read, what)
    for option, question in unknown_options(read):
        if "." not in option:  # a client's names may be those of a class that it is given
            raise ConfigurationError(
                f"{what}: Spark has no option {option!r} for it; {question or 'leave it out'}"
            )
    if isinstance(source, DecodedSource) and (decoder := source.create_decoder()) is not None:
        read = decoded(read, decoder)
    made = DeclaredSource(uid, source.describe(), source.replayable, source.bounded, read, source)
    return made, secrets_in([source, dict(reader.options)])


def require_options(frame: DataFrame, what: str) -> None:
    """Raise ConfigurationError if Spark would refuse the options of a source at its start."""
    if refusal := refused_options(frame):
        raise ConfigurationError(f"{what}: {refusal}; correct it")


def declare_sinks(
    dataframe: Any, sink: Any, uid: str, on_bad_row: str, dead_letters: Any
) -> list[DeclaredSink]:
    """Return the sink, followed by its dead-letter sink if it has one."""
    require_stream(dataframe, f"sink {uid!r}")
    require_sink(sink, f"sink {uid!r}", dataframe.sparkSession)
    if dead_letters is not None:
        require_sink(dead_letters, f"sink {uid!r}: dead_letters", dataframe.sparkSession)
    for field in dataframe.schema.fields:
        if twin := _twin(field.dataType):
            raise ConfigurationError(
                f"sink {uid!r}: column {field.name!r} has a struct with two fields {twin!r}, of "
                "which JSON's readers keep one; rename one of them"
            )
    schema = tuple(Column(name, type_) for name, type_ in spark_schema(dataframe))
    made = interruptible(
        DeclaredSink(uid, sink, dataframe, tuple(sink.select_expressions(schema)), schema)
    )
    one_of(on_bad_row, ON_BAD_ROW, f"sink {uid!r}: on_bad_row")
    if (on_bad_row == "dead_letter") != (dead_letters is not None):
        raise ConfigurationError(
            f"sink {uid!r}: on_bad_row is {on_bad_row!r} and dead_letters is {dead_letters!r}; "
            'on_bad_row="dead_letter" needs the sink that takes the refused rows in dead_letters='
        )
    if dead_letters is None:
        return [made]
    if not isinstance(sink, SelectiveSink):
        raise ConfigurationError(
            f'sink {uid!r}: on_bad_row is "dead_letter", but {sink.describe()} cannot tell a '
            "refused row from the others; leave on_bad_row out, or give its class the method "
            "create_selective_writer (docs/dead-letters.md)"
        )
    check_takes_dead_letters(dead_letters, uid)
    letters = DeclaredSink(
        f"{uid}.dead-letters", dead_letters, None, (), DEAD_LETTER_SCHEMA, dead_letters_of=uid
    )
    return [made, letters]


def _twin(type_: DataType) -> str | None:
    """Return a field's name that a struct has twice, at any depth."""
    within: list[DataType] = []
    if isinstance(type_, StructType):
        name, times = Counter(type_.names).most_common(1)[0] if type_.names else ("", 0)
        if times > 1:
            return str(name)
        within = [field.dataType for field in type_.fields]
    elif isinstance(type_, ArrayType):
        within = [type_.elementType]
    elif isinstance(type_, MapType):
        within = [type_.keyType, type_.valueType]
    return next(filter(None, map(_twin, within)), None)


def require_sink(sink: Any, what: str, spark: SparkSession) -> None:
    """Raise ConfigurationError for what is no sink, and for one that the session cannot write by.
    `what` names the argument."""
    a_sink(sink, what)
    for format_ in sink.spark_formats:
        require_format(spark, format_)
