"""What a driver says of its job that does not change while it runs: settings, and guarantees.

`routes.py` answers with these pages. They are also stored when an execution begins (`kept_pages`,
``executions/<n>/started.json``), for those who look when the driver no longer answers.
"""

from __future__ import annotations

from typing import Any

from seamark.api.config import CheckpointMode, ExternalizedCheckpointRetention
from seamark.rest import models
from seamark.rest.views import JobView


def kept_pages(job: JobView) -> dict[str, Any]:
    """Return the pages by their paths below ``/jobs/:id/``, as they are answered: without secrets.
    Called once, when the job's id is known."""
    pages = {
        "config": config_page(job),
        "checkpoints/config": checkpointing_page(job),
        "guarantees": guarantees_page(job),
    }
    return {
        path: job.redactor.everywhere(page.model_dump(by_alias=True, mode="json"))
        for path, page in pages.items()
    }


def config_page(job: JobView) -> models.JobConfig:
    """Return ``/jobs/:id/config``."""
    return models.JobConfig(
        jid=job.job_id(),
        name=job.name,
        execution_config=models.ExecutionConfig(
            restart_strategy=str(job.checkpoint.restart_strategy),
            user_config={
                key: models.Setting(value=str(setting.value), origin=setting.origin)
                for key, setting in sorted(job.settings.items())
            },
        ),
    )


def guarantees_page(job: JobView) -> models.Guarantees:
    """Return ``/jobs/:id/guarantees``."""
    report = job.guarantees
    return models.Guarantees(
        guarantee=report.guarantee.value,
        weakest=report.weakest,
        remedy=report.remedy,
        parts=[
            models.PartGuarantee(**{**vars(part), "guarantee": part.guarantee.value})
            for part in report.parts
        ],
        sinks=[
            models.SinkGuarantee(**{**vars(sink), "guarantee": sink.guarantee.value})
            for sink in report.sinks
        ],
    )


def checkpointing_page(job: JobView) -> models.CheckpointingConfig:
    """Return ``/jobs/:id/checkpoints/config``."""

    def ms(seconds: float) -> int:
        return min(round(seconds * 1000), 2**63 - 1)

    checkpoint = job.checkpoint
    return models.CheckpointingConfig(
        mode=CheckpointMode(checkpoint.mode).value.replace("-", "_"),
        interval=ms(checkpoint.interval_s),
        timeout=ms(checkpoint.timeout_s),
        min_pause=ms(checkpoint.min_pause_s),
        max_concurrent=checkpoint.max_concurrent_checkpoints,
        externalization=models.Externalization(
            enabled=True,
            delete_on_cancellation=checkpoint.externalized_retention
            is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION,
        ),
        state_backend=str(getattr(checkpoint.state_backend, "value", checkpoint.state_backend)),
        checkpoint_storage=str(checkpoint.storage),
        unaligned_checkpoints=False,
        tolerable_failed_checkpoints=checkpoint.tolerable_failed_checkpoints,
        checkpoints_after_tasks_finish=checkpoint.checkpoints_after_tasks_finish,
        state_changelog_enabled=bool(checkpoint.changelog),
        num_retained=checkpoint.num_retained,
    )
