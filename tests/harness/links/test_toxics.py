"""Settings of toxics: validated, changed and shown."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.links.fields import BadRequestError
from diloco_chaos.harness.links.toxics import (
    REGISTRY,
    BandwidthAttributes,
    CorruptAttributes,
    LatencyAttributes,
    LimitDataAttributes,
    NoopAttributes,
    ResetPeerAttributes,
    SlicerAttributes,
    SlowCloseAttributes,
    TimeoutAttributes,
    new_toxic,
    updated_toxic,
)

WHOLE = st.integers(min_value=0, max_value=10**6)
ATTRIBUTES = {"latency": st.builds(LatencyAttributes, WHOLE, WHOLE), "bandwidth": st.builds(BandwidthAttributes, WHOLE),
              "timeout": st.builds(TimeoutAttributes, WHOLE), "reset_peer": st.builds(ResetPeerAttributes, WHOLE),
              "slow_close": st.builds(SlowCloseAttributes, WHOLE),
              "slicer": st.builds(SlicerAttributes, WHOLE, WHOLE, WHOLE),
              "limit_data": st.builds(LimitDataAttributes, WHOLE), "noop": st.builds(NoopAttributes),
              "corrupt": st.builds(CorruptAttributes, WHOLE, WHOLE, WHOLE, WHOLE)}
SHORT = st.text("aZ0 /\x00é", max_size=4)
ANYTHING = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | SHORT,
                        lambda inner: st.lists(inner) | st.dictionaries(SHORT, inner), max_leaves=5)


def test_every_registered_type_is_tested_here() -> None:
    assert set(ATTRIBUTES) == set(REGISTRY)


@given(st.dictionaries(st.sampled_from(["name", "stream", "toxicity", "attributes", "other"]), ANYTHING),
       st.sampled_from([*REGISTRY, "noise"]))
def test_any_json_object_is_a_toxic_or_a_bad_request(body: dict[str, Any], kind: str) -> None:
    try:
        toxic = new_toxic({"type": kind, **body})
    except BadRequestError:
        return
    assert new_toxic(toxic.as_json()) == toxic


@given(st.sampled_from(sorted(REGISTRY)), st.data(), st.floats(0, 1))
def test_a_toxic_reads_back_as_written(kind: str, data: st.DataObject, toxicity: float) -> None:
    attributes = vars(data.draw(ATTRIBUTES[kind]))
    shown = new_toxic({"type": kind, "attributes": attributes, "toxicity": toxicity}).as_json()
    assert shown == {"name": f"{kind}_downstream", "type": kind, "stream": "downstream", "toxicity": toxicity,
                     "attributes": attributes}


def test_an_update_changes_only_what_it_names() -> None:
    toxic = new_toxic({"type": "latency", "stream": "upstream", "attributes": {"latency": 10, "jitter": 3}})
    assert updated_toxic(toxic, {}) == toxic
    changed = updated_toxic(toxic, {"attributes": {"latency": 20}, "type": "timeout", "name": "other"})
    assert changed.attributes == LatencyAttributes(20, 3)
    assert (changed.name, changed.type, changed.stream) == (toxic.name, toxic.type, toxic.stream)


@pytest.mark.parametrize("wrong", [-1, 1.5, 100.0, True, "100", [], 2**63])
def test_an_attribute_is_a_whole_number_from_0(wrong: Any) -> None:
    with pytest.raises(BadRequestError, match="latency"):
        new_toxic({"type": "latency", "attributes": {"latency": wrong}})


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "1", True, math.inf])
def test_toxicity_is_a_probability(wrong: Any) -> None:
    with pytest.raises(BadRequestError, match="toxicity"):
        new_toxic({"type": "timeout", "toxicity": wrong})
