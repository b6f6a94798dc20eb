from typing import get_type_hints

import pytest

from dupt_swarm.node.record import EvaluationRecord, PeerRecord, SampleRecord
from dupt_swarm.node.record_fields import (
    CostFields,
    EvaluationFields,
    RecordFields,
    RoundFields,
    SampleFields,
    Whereabouts,
)

NOT_OURS = ("time", "credential")


def test_every_field_of_a_record_may_be_changed_but_two() -> None:
    """What mypy lets one publish is what a record has, with its types; two are its membership's to say."""
    of_record = get_type_hints(PeerRecord)
    fields = {name: of_record[name] for name in PeerRecord.model_fields if name not in NOT_OURS}
    assert get_type_hints(RecordFields) == fields | {"evaluation": EvaluationFields | None}
    evaluation = get_type_hints(EvaluationRecord)
    fields = {name: evaluation[name] for name in EvaluationRecord.model_fields}
    assert get_type_hints(EvaluationFields) == fields | {"sample": SampleFields | None}
    sample = get_type_hints(SampleRecord)
    assert get_type_hints(SampleFields) == {name: sample[name] for name in SampleRecord.model_fields}


@pytest.mark.parametrize("some", [RoundFields, CostFields, Whereabouts])
def test_some_fields(some: type) -> None:
    """The smaller sets have the same types as the whole."""
    assert get_type_hints(some).items() <= get_type_hints(RecordFields).items()
