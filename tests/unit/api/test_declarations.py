"""A job's declaration: uids."""

import pytest

import seamark as sm
from seamark.api.declarations import JobDeclaration
from seamark.model.errors import ConfigurationError


@pytest.mark.parametrize("kind", ["a source", "an operator", "a sink"])
def test_a_uid_given_twice_names_the_part_that_has_it(kind: str) -> None:
    job = JobDeclaration("shop", sm.CheckpointConfig(storage="file:///checkpoints"))
    getattr(job, f"{kind.split()[1]}s")["sessions"] = None
    with pytest.raises(ConfigurationError) as found:
        job.claim_uid("sessions", "a sink")
    assert f"uid 'sessions' is given to a sink, but {kind} has it already" in str(found.value)
