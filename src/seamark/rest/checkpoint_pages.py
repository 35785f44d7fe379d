"""The checkpoint history as sent: a thousand checkpoints, perhaps asked for every second.

An ended checkpoint is made into JSON once. The whole page is made again only after a change, and is
not sent to a client with the newest version (``If-None-Match``).
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request, Response

from seamark.model.checkpoint_series import series
from seamark.model.checkpoint_statistics import CheckpointStatistics, CheckpointStatus
from seamark.rest.live_job import LiveJob

PAGES_KEPT = 8


class CheckpointPages:
    """The pages of one job's history; asked from several threads."""

    def __init__(self, job: LiveJob, hide: Callable[[Any], Any]) -> None:
        self._job = job
        self._hide = hide
        self._lock = threading.Lock()
        self._pages: OrderedDict[tuple[str, int], tuple[str, bytes]] = OrderedDict()
        self._texts: dict[tuple[int, int], tuple[CheckpointStatistics, str]] = {}

    def checkpoints(self, request: Request) -> Response:
        """Answer ``/jobs/:id/checkpoints``."""
        return self._answer(request, ("checkpoints", 0), self._page)

    def series(self, request: Request, since: int) -> Response:
        """Answer ``/jobs/:id/series``."""
        return self._answer(
            request,
            ("series", since),
            lambda: _text(series(self._job.checkpoints().history, since)),
        )

    def _answer(self, request: Request, page: tuple[str, int], make: Callable[[], str]) -> Response:
        tag = f'"{self._job.checkpoints_version()}"'
        if tag in _tags(request):
            return Response(status_code=304, headers={"ETag": tag})
        with self._lock:  # requests meanwhile wait for this page
            kept, body = self._pages.pop(page, ("", b""))
            if kept != tag:
                body = make().encode()
            self._pages[page] = (tag, body)
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        return Response(body, media_type="application/json", headers={"ETag": tag})

    def _page(self) -> str:
        found = self._job.checkpoints()
        texts = {}
        for checkpoint in found.history:
            key = (checkpoint.id, checkpoint.trigger_timestamp)
            kept = self._texts.get(key)
            # Equal, not only of the same id: sizes come late, and files are deleted.
            if kept is None or kept[0] != checkpoint:
                kept = (checkpoint, _text(self._hide(checkpoint.to_json())))
            texts[key] = kept
        self._texts = {
            key: kept
            for key, kept in texts.items()
            if kept[0].status is not CheckpointStatus.IN_PROGRESS
        }
        head = _text(self._hide(found.to_json(history=False)))
        return f'{head[:-1]},"history":[{",".join(text for _, text in texts.values())}]}}'


def _tags(request: Request) -> list[str]:
    return [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
