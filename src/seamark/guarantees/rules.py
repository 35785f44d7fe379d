"""The rules on a declared job: for each code a pure function from the facts to its findings.

`explain` prints the findings, `Job.run` refuses errors. Rules on real systems are beside the code
that asks them: the `preflight.py` of each sink, `sources/kafka_admin.py`.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

from seamark.contracts.places import LONGEST_PREFIX, TRANSACTIONS, prefix_of
from seamark.guarantees.facts import JobFacts, SinkPart
from seamark.model.findings import Finding, FindingCode, Severity, heaviest_first
from seamark.model.guarantee import Guarantee, SinkWay

_REPEATING = (SinkWay.NONE, SinkWay.WRITE_AHEAD_LOG)
Told = tuple[str, str, str] | tuple[str, str, str, Severity | None]
"""Subject, what was found and remedy of a finding, and its weight if it is not the code's."""


def not_replayable(job: JobFacts) -> Iterator[Told]:
    """A failed epoch's rows cannot be read again."""
    for source in job.sources:
        if not source.replayable:
            yield (
                f"source `{source.uid}`",
                f"{source.description} gives its rows once: those of a failed epoch are gone",
                f"read {source.uid} from a source that keeps its rows, e.g. put them into Kafka "
                "first and use KafkaSource",
            )


def reads_uncommitted(job: JobFacts) -> Iterator[Told]:
    """Rows withdrawn by their producer are read, and then their repetition."""
    for source in job.sources:
        if source.isolation == "read_uncommitted":
            yield (
                f"source `{source.uid}`",
                "isolation level is read_uncommitted: rows of aborted transactions are read, and "
                "then their repetition",
                'give KafkaSource isolation_level="read_committed", or a plain stream of Spark\'s '
                "the option kafka.isolation.level=read_committed",
            )


def skips_lost_rows(job: JobFacts) -> Iterator[Told]:
    """Rows that cannot be read are skipped in silence."""
    for source in job.sources:
        if not source.fails_on_data_loss:
            yield (
                f"source `{source.uid}`",
                "failOnDataLoss is false: rows deleted by Kafka before they were read are skipped "
                "in silence",
                "leave failOnDataLoss out: the job then stops and names them",
            )
        for option in source.skips:
            if option == "cleanSource":
                found = (
                    "cleanSource is on: files are removed once read, and a restore of a savepoint "
                    "or an earlier checkpoint goes on in silence without the rows read since"
                )
                remedy = (
                    "leave cleanSource out, or archive the files, and put those read since back "
                    "before such a restore"
                )
            else:
                found = (
                    f"{option} is true: the rows of files that are damaged or gone are skipped in "
                    "silence, and the files count as read"
                )
                remedy = (
                    f"leave {option} out, also of Spark's settings: the epoch then fails and names "
                    "the file"
                )
            yield f"source `{source.uid}`", found, remedy


def option_unknown(job: JobFacts) -> Iterator[Told]:
    """Spark passes over an option that it does not know."""
    for source in job.sources:
        for name, question in source.unknown_options:
            yield (
                f"source `{source.uid}`",
                f"{source.description} has no option {name!r}: it is passed over in silence",
                f"{question}correct the name, or leave it out",
            )


def operator_without_uid(job: JobFacts) -> Iterator[Told]:
    """A changed program cannot find the operator's state."""
    for operator in job.operators:
        if not operator.named:
            yield (
                f"operator `{operator.uid}`",
                f"{operator.description} has no uid: a restore into a changed program cannot find "
                "its state",
                "name it with job.uid(dataframe, 'a-name') of an sm.Job",
            )


def replay_changes_rows(job: JobFacts) -> Iterator[Told]:
    """An idempotent sink keeps both rows if a replay makes another key."""
    for sink in _idempotent(job):
        for function in sink.varying:
            yield (
                f"sink `{sink.uid}`",
                f"{function} may give another value in a replay, and {sink.description} overwrites "
                "only rows of the same key",
                f"make {function.column} deterministic, or use a sink with two-phase commit",
            )


def python_function_unproved(job: JobFacts) -> Iterator[Told]:
    """Spark takes every Python function for deterministic."""
    for sink in _idempotent(job):
        for function in sink.python:
            yield (
                f"sink `{sink.uid}`",
                f"{function} is Python, taken for deterministic by Spark: a replay must give the "
                f"same values to {sink.description}",
                "see that it uses no time, random number or outside state; else mark it with "
                "asNondeterministic()",
            )


def checkpoints_ephemeral(job: JobFacts) -> Iterator[Told]:
    """Checkpoints vanish with the program, the machine's start or a clean-up."""
    if reason := "storage is sm.EphemeralStorage" if not job.durable else job.ephemeral:
        yield (
            "checkpoint storage",
            f"{reason}: after a crash the job may have to begin anew, with rows missing or written "
            "again",
            "give CheckpointConfig a storage that outlives program and machine, e.g. a directory "
            "on a disk, hdfs:, s3a: or gs:",
        )


def checkpoints_on_one_machine(job: JobFacts) -> Iterator[Told]:
    """Executors elsewhere would write their state to their own disks."""
    if job.on_cluster and job.durable and job.storage.startswith("file:"):
        yield (
            "checkpoint storage",
            f"{job.storage} is a local path, and executors run on other machines: each would keep "
            "its part of the state on its own disk",
            "give hdfs:, s3a: or gs:, or mount one shared file system there on every machine",
        )


def storage_not_tested(job: JobFacts) -> Iterator[Told]:
    """Only the check at each start has looked at this kind of store."""
    scheme = job.storage.partition(":")[0]
    if job.durable and scheme not in ("", "file", "hdfs", "s3a", "gs"):
        yield (
            "checkpoint storage",
            f"{job.storage}: no test of Seamark's has run on {scheme}:. Each start tries whether "
            "one of eight creators of a file wins, and that is no proof",
            "give hdfs:, s3a: or gs:, or see that this store renames in one step and never over "
            "a file",
        )


def too_few_retained(job: JobFacts) -> Iterator[Told]:
    """A damaged newest checkpoint needs an older one to go back to."""
    needed = job.max_concurrent_checkpoints + 2
    if job.num_retained < needed:
        yield (
            "checkpoint num_retained",
            f"it is {job.num_retained}, with max_concurrent_checkpoints "
            f"{job.max_concurrent_checkpoints}: if the newest checkpoint is damaged, none may be "
            "left to go back to",
            f"give at least {needed}; checkpoints share most of their files",
        )


def mode_below_sinks(job: JobFacts) -> Iterator[Told]:
    """The checkpoint mode gives away what a sink can do."""
    able = [s.uid for s in job.sinks if s.way not in _REPEATING]
    mode = Guarantee(job.mode)
    if able and mode is not Guarantee.EXACTLY_ONCE:
        yield (
            "checkpoint mode",
            f"it is {mode.value}, and {', '.join(f'`{uid}`' for uid in able)} could be written "
            "exactly once",
            'set CheckpointConfig mode to "exactly-once"',
        )


def sink_repeats_rows(job: JobFacts) -> Iterator[Told]:
    """The sink writes a replayed epoch's rows again."""
    if Guarantee(job.mode) is not Guarantee.EXACTLY_ONCE:
        return
    for sink in job.sinks:
        if sink.way in _REPEATING:
            yield (
                f"sink `{sink.uid}`",
                f"{sink.description} ({sink.way.value}) writes the rows of a replayed epoch again",
                repeated_remedy(sink),
            )


def repeated_remedy(sink: SinkPart) -> str:
    """Return the way to raise a sink that writes rows again."""
    remedy = f"give {sink.uid} a sink with two-phase commit"
    if sink.way is SinkWay.WRITE_AHEAD_LOG:
        return remedy + ", or make its send idempotent by the token it is given"
    if any(place.startswith("kafka:") for place in sink.places):
        return remedy + ': KafkaSink delivery_guarantee="exactly-once"'
    return remedy


def output_mode_not_taken(job: JobFacts) -> Iterator[Told]:
    """The sink adds a row that it should replace, or replaces rows that it should keep."""
    for sink in job.sinks:
        mode = job.output_mode if job.repeats_into(sink) else "append"
        if mode in sink.output_modes:
            continue
        would = "delete the rows of the epochs before"
        remedy = (
            "put {epoch} or {token} into an option that says where an epoch's rows go, such as the "
            "path; or give 'complete', where each epoch has all rows"
        )
        if "append" in sink.output_modes:
            would = "get each row again as a further one"
            remedy = (
                "give 'append' (behind an aggregation that needs a watermark), a sink that "
                "replaces rows by 'keys', Kafka, or foreach_batch; a sink of your own that can "
                "take them says so with output_modes"
            )
        fault = f"output mode is {job.output_mode!r}, and {sink.description} would {would}"
        yield f"sink `{sink.uid}`", fault, remedy


def target_shared(job: JobFacts) -> Iterator[Told]:
    """Two jobs write one target; or two sinks of one job, rows of which replace others."""
    for sink in job.sinks:
        for other in job.others:
            for place in _targets(sink):
                if place in other.writes:
                    yield _shared(sink, place, f"job {other.name!r}, which has not ended,")
    for one, two in combinations(job.sinks, 2):
        for place in _targets(one) if one.overwrites or two.overwrites else ():
            if place in two.places:
                yield _shared(one, place, f"sink `{two.uid}`")


def _shared(sink: SinkPart, place: str, who: str) -> Told:
    return (
        f"sink `{sink.uid}`",
        f"{who} also writes {place}: a reader cannot tell their rows apart, and rows of one key "
        "overwrite each other",
        "give each a target of its own, or end the other job",
    )


def sink_feeds_its_source(job: JobFacts) -> Iterator[Told]:
    """A sink writes where its own source reads."""
    for sink in job.sinks:
        for source in job.sources_of(sink):
            files = source.uid in sink.read_by
            for place in _targets(sink):
                if files or place in source.places:
                    yield (
                        f"sink `{sink.uid}`",
                        f"source `{source.uid}` reads {', '.join(source.places)}, and this sink "
                        f"writes {place}: each epoch's rows come back as input, without an end",
                        "write to a directory that the source does not read"
                        if files
                        else "write to another place, unless the program filters its own rows out",
                        Severity.ERROR if files else None,
                    )


def sink_in_checkpoint(job: JobFacts) -> Iterator[Told]:
    """A sink's directory is the job's checkpoint, or shows it to readers."""
    for sink in job.sinks:
        if sink.in_checkpoint:
            yield (
                f"sink `{sink.uid}`",
                f"it writes {', '.join(_targets(sink))}, where the job's checkpoint is: readers "
                "take the checkpoint's files for rows, and who tidies up the one deletes the other",
                "give the sink a directory of its own, e.g. beside the checkpoint's, or put the "
                "checkpoint below a name that readers pass over, such as _checkpoints",
            )


def target_read_uncommitted(job: JobFacts) -> Iterator[Told]:
    """A known reader of the target sees rows before they are committed."""
    own = {
        place: f"source `{source.uid}` of this job"
        for source in job.sources
        if source.isolation == "read_uncommitted"
        for place in source.places
    }
    for sink in job.sinks:
        if sink.way is not SinkWay.TWO_PHASE_COMMIT:
            continue
        for place in _targets(sink):
            readers = [f"job {o.name!r}" for o in job.others if place in o.reads_uncommitted]
            readers += [own[place]] if place in own else []
            if readers:
                yield (
                    f"sink `{sink.uid}`",
                    f"{', '.join(readers)} reads {place} with read_uncommitted: it gets rows of "
                    "aborted transactions, and then their repetition",
                    "have it read with isolation level read_committed",
                )


def prefix_shared(job: JobFacts) -> Iterator[Told]:
    """Nobody can tell from an open transaction's id whose it is."""
    for sink in job.sinks:
        for place in _prefixes(sink):
            for other in job.others:
                if place in other.writes:
                    who = f"job {other.name!r}, which has not ended,"
                    yield _prefix_shared(sink, place, who, Severity.WARNING)
    for one, two in combinations(job.sinks, 2):
        for place in _prefixes(one):
            if place in two.places:
                yield _prefix_shared(one, place, f"sink `{two.uid}` of this job", Severity.NOTE)


def _prefix_shared(sink: SinkPart, place: str, who: str, severity: Severity) -> Told:
    return (
        f"sink `{sink.uid}`",
        f"{who} has the same transactional_id_prefix ({place}): the ids differ, but nobody can "
        "tell from the prefix whose transaction is open",
        "give each a prefix of its own",
        severity,
    )


def prefix_too_long(job: JobFacts) -> Iterator[Told]:
    """People see a hash instead of the prefix's end."""
    for sink in job.sinks:
        for prefix in map(prefix_of, _prefixes(sink)):
            if len(prefix) > LONGEST_PREFIX:
                yield (
                    f"sink `{sink.uid}`",
                    f"transactional_id_prefix has {len(prefix)} characters: ids hold its first 40 "
                    "and a hash, so permissions by its end do not match",
                    f"give at most {LONGEST_PREFIX} characters",
                )


def _idempotent(job: JobFacts) -> list[SinkPart]:
    return [sink for sink in job.sinks if sink.way is SinkWay.IDEMPOTENT]


def _targets(sink: SinkPart) -> list[str]:
    return [place for place in sink.places if not place.startswith(TRANSACTIONS)]


def _prefixes(sink: SinkPart) -> list[str]:
    return [place for place in sink.places if place.startswith(TRANSACTIONS)]


RULES: dict[FindingCode, Callable[[JobFacts], Iterator[Told]]] = {
    FindingCode.SC001: not_replayable,
    FindingCode.SC002: reads_uncommitted,
    FindingCode.SC003: skips_lost_rows,
    FindingCode.SC006: option_unknown,
    FindingCode.ST001: operator_without_uid,
    FindingCode.ST002: replay_changes_rows,
    FindingCode.ST003: python_function_unproved,
    FindingCode.CP001: checkpoints_ephemeral,
    FindingCode.CP002: checkpoints_on_one_machine,
    FindingCode.CP006: storage_not_tested,
    FindingCode.CP004: too_few_retained,
    FindingCode.CP005: mode_below_sinks,
    FindingCode.SK001: sink_repeats_rows,
    FindingCode.SK006: output_mode_not_taken,
    FindingCode.SK002: target_shared,
    FindingCode.SK007: sink_feeds_its_source,
    FindingCode.SK008: sink_in_checkpoint,
    FindingCode.SK003: target_read_uncommitted,
    FindingCode.KF002: prefix_shared,
    FindingCode.KF003: prefix_too_long,
}


def declared_findings(job: JobFacts) -> tuple[Finding, ...]:
    """Return the findings of all rules, heaviest first."""
    return heaviest_first(
        Finding(code, *told) for code, rule in RULES.items() for told in rule(job)
    )
