"""Asks the driver of one job over its REST interface, with a deadline for every request.

All verbs for a running job go through `DriverClient`. Every failure becomes one of three errors:
DriverUnreachableError (nobody answers), UserError (the request was refused: a wrong token, a
missing page), OperationFailedError (the job could not do it, or the answer is not from a driver
this Seamark understands).
"""

import json
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from seamark.jobs.driver import Answer, Driver, DriverSilentError, is_alive
from seamark.jobs.registry import RegisteredJob, find_job
from seamark.jobs.token import TOKEN_VARIABLE, token_in, token_path
from seamark.model.errors import DriverUnreachableError, OperationFailedError, UserError
from seamark.model.home import HOME_VARIABLE
from seamark.model.job_state import OUTSIDE

AGAIN = "start its program again, and it goes on after its last decided epoch: seamark run APP.PY"
REQUEST_S = 10.0
"""How long a driver may take to answer one request; a trigger is answered at once."""
POLL_S = 0.2
SILENT_TRIES = 3
"""How often a silent driver is asked during an operation before it is held to be gone."""
SHOWN = 200
"""Characters shown of an answer not understood."""
BUSY_TRIES = 20
"""How often a request is sent while the driver refuses it as busy."""
_BUSY = (429, 503)
T = TypeVar("T")
Tick = Callable[[int, int | None], None]


def find_running(job: str, uri: str, token_file: Path | None) -> "DriverClient":
    """Return the driver of a job of the storage at `uri`, found by name, id or the first digits of
    its id. Raises UserError if there is no such job, and DriverUnreachableError if no driver
    answers for it: the error says how the job ended, or where its driver should be. Raises OSError
    if the storage cannot be read."""
    registered = find_job(uri, job)
    if registered.state.is_terminal:
        reason = f" ({registered.reason})" if registered.reason else ""
        raise DriverUnreachableError(
            f"job {registered.name!r} does not run: it is {registered.state.value}{reason}; {AGAIN}"
        )
    if registered.state in OUTSIDE:
        raise DriverUnreachableError(f"job {registered.name!r}: {why_unreachable(registered)}")
    return DriverClient(registered, token_file)


def why_unreachable(job: RegisteredJob) -> str:
    """Return why the driver of an UNREACHABLE job may be silent, or that of an UNOBSERVED one is,
    and the remedy."""
    if not job.start.is_observed:
        return (
            'it is a query of format("seamark"), which Spark runs and nobody else can steer: end '
            "or start it in its own program; what it has done says "
            f"seamark explain --location {job.uri}"
        )
    host, pid, url = job.start.host, job.start.pid, job.start.rest_url
    if host != socket.gethostname():
        return (
            f"its driver (pid {pid} on {host}) does not answer here: its address, "
            f"{url or 'unknown'}, is of that machine alone. Run this command on {host}; if the "
            f"driver is dead, {AGAIN}"
        )
    if not is_alive(pid):
        return f"its driver (pid {pid}) is gone without a word: it was killed; {AGAIN}"
    return (
        f"its driver does not answer at {url or 'any address'}, though there is a process {pid}; "
        f"if it hangs, end it (kill -9 {pid}), then {AGAIN}"
    )


class DriverClient:
    """One running job. `token_file` holds its token; None takes the token given by the environment,
    or the token file made by the driver for its own user."""

    def __init__(self, job: RegisteredJob, token_file: Path | None = None) -> None:
        self.job = job
        self._driver = Driver(job.execution, job.name)
        self._token_file = token_file
        self._read_with: str | None = None

    def get(self, path: str = "") -> Any:
        """Return the answer to ``/jobs/<id><path>``."""
        return self._request("GET", path, token=self._read_with)

    def part(self, answer: Any, name: str, type_: type[T]) -> T:
        """Return a field of the driver's answer. Raises OperationFailedError if the answer has no
        such field of this type: the driver is of another version, or no driver answered."""
        value = answer.get(name) if isinstance(answer, dict) else None
        if isinstance(value, type_):
            return value
        raise OperationFailedError(
            f"job {self.job.name!r}: what answers at {self.job.start.rest_url} is no driver of "
            f"this version of Seamark: its answer has no {name} ({type_.__name__}): "
            f"{json.dumps(answer)[:SHOWN]}"
        )

    def poll(self, path: str) -> Any:
        """Return the answer, as `get`; a silent driver is asked SILENT_TRIES times, for it may be
        busy."""
        for _ in range(SILENT_TRIES - 1):
            try:
                return self.get(path)
            except DriverUnreachableError:
                time.sleep(POLL_S)
        return self.get(path)

    def change(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request to change the job, with its token; return the answer. Raises UserError if
        the driver's record is not signed with this token."""
        self._read_with = token = self._token()
        return self._request(method, path, body or {}, token)

    def perform(
        self,
        what: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout_s: float,
        answers_at: str | None = None,
        tick: Tick = lambda written, expected: None,
        ended: Callable[[], Any] = lambda: None,
    ) -> Any:
        """Start an asynchronous operation and poll until it is done; return its ``operation``.

        It is polled at `answers_at`, or at `path` where `answers_at` is None. Between two polls
        `tick` is called with the bytes done and expected, 0 and None if the driver does not tell
        them. When the driver no longer answers, `ended` is called: its result, unless
        None, is returned. Raises OperationFailedError with `what` the operation is, and the
        driver's reason; also after `timeout_s`: the operation then goes on.
        """
        deadline = time.monotonic() + timeout_s
        trigger = uuid.uuid4().hex
        try:
            begun = self.change("POST", path, {**(body or {}), "triggerId": trigger})
            trigger = self.part(begun, "request-id", str)
            while True:
                try:
                    answer = self.poll(f"{answers_at or path}/{trigger}")
                except DriverUnreachableError:
                    if (result := ended()) is not None:
                        return result
                    raise
                if self.part(self.part(answer, "status", dict), "id", str) == "COMPLETED":
                    done = self.part(answer, "operation", dict)
                    if "failure-cause" in done:
                        raise OperationFailedError(_reason(self.part(done, "failure-cause", dict)))
                    return done
                if time.monotonic() > deadline:
                    raise OperationFailedError(
                        f"not done after {timeout_s:g} s, and still under way (trigger id "
                        f"{trigger}); wait longer with --timeout, or look with: seamark info "
                        f"{self.job.name}"
                    )
                if known := answer.get("progress"):
                    tick(self.part(known, "bytes", int), self.part(known, "total", int))
                else:
                    tick(0, None)
                time.sleep(POLL_S)
        except OperationFailedError as error:
            raise OperationFailedError(f"{what} of job {self.job.name!r}: {error}") from None

    # --- one request

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        token: str | None = None,
    ) -> Any:
        data = b"" if body is None else json.dumps(body).encode()
        for left in reversed(range(BUSY_TRIES)):
            try:
                answer = self._driver.ask(path, method, data, token, REQUEST_S)
                if answer.status < 300:
                    return json.loads(answer.body or b"{}")
            except DriverSilentError as error:
                raise self._unreachable(error.__cause__) from None
            except (ValueError, RecursionError) as error:
                raise self._unreachable(error) from None
            if answer.status not in _BUSY or not left:
                raise self._refused(answer)
            time.sleep(POLL_S)
        raise AssertionError("the last try returns or raises")

    def _refused(self, answer: Answer) -> Exception:
        try:
            said = "; ".join(json.loads(answer.body)["errors"])
        except (ValueError, KeyError, TypeError, RecursionError):
            said = f"HTTP Error {answer.status}: {answer.reason}"
        what = f"job {self.job.name!r}: its driver answers {answer.status}: {said}"
        if answer.status in (401, 403):
            return UserError(f"{what}. {self._where_the_token_is()}")
        return OperationFailedError(what) if answer.status >= 500 else UserError(what)

    def _unreachable(self, error: BaseException | None) -> DriverUnreachableError:
        reason = getattr(error, "reason", None) or error
        return DriverUnreachableError(
            f"job {self.job.name!r}: its driver does not answer at {self.job.start.rest_url} "
            f"({reason}); look with: seamark info {self.job.name}"
        )

    # --- the token

    def _token(self) -> str:
        try:
            if self._token_file is None:
                token = self._driver.token()
            else:
                token = token_in(self._token_file, f"--token-file {self._token_file}")
                self._driver.require_signed(token)
        except UserError as error:
            raise UserError(f"{error}. {self._where_the_token_is()}") from None
        if not token:
            raise UserError(
                f"job {self.job.name!r} can be changed only with its token, and there is no "
                f"{token_path(self.job.start.job_id)}. {self._where_the_token_is()}"
            )
        return token

    def _where_the_token_is(self) -> str:
        return (
            f"Run this command on {self.job.start.host} as the user who runs the job's driver, "
            f"with the same {HOME_VARIABLE}, or give the token with --token-file or in "
            f"{TOKEN_VARIABLE}"
        )


def _reason(cause: Mapping[str, Any]) -> str:
    """Return why an operation failed; the text may begin with the error's class already."""
    text = str(cause.get("stack-trace") or "").strip()
    kind = str(cause.get("class") or "").rpartition(".")[2]
    return text if not kind or kind in text else f"{kind}: {text}"
