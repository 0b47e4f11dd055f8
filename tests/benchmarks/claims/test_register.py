"""What a claim must say."""

import pytest
from pydantic import ValidationError

from benchmarks.claims.__main__ import CLAIMS, ROOT
from benchmarks.claims.register import TOPICS, Claim, counted, load

WHOLE = {"topic": "speed", "claim": "it is quick", "published": "20 times", "source": "D", "agrees": "yes",
         "ours": "21 times", "how": ["simulated"], "again": "diloco-chaos fleet wan"}


def test_a_claim_has_a_number_of_ours_how_it_was_found_and_the_command():
    assert Claim.model_validate(WHOLE).agrees == "yes"
    for key in ("ours", "how", "again"):
        with pytest.raises(ValidationError, match="must say what is ours"):
            Claim.model_validate({name: value for name, value in WHOLE.items() if name != key})


@pytest.mark.parametrize("agrees", ["partly", "no"])
def test_where_the_two_differ_a_remark_says_so(agrees):
    with pytest.raises(ValidationError, match="a remark must say where"):
        Claim.model_validate(WHOLE | {"agrees": agrees})


@pytest.mark.parametrize("given", [{"ours": "21 times", "remark": "why"}, {"ours": "", "remark": ""}])
def test_what_is_not_shown_says_why_and_has_nothing_of_ours(given):
    with pytest.raises(ValidationError, match="is not shown"):
        Claim.model_validate(WHOLE | {"agrees": "not shown"} | given)


def test_every_topic_has_claims_and_some_are_not_flattering():
    claims = load(ROOT / CLAIMS)
    assert [topic for topic in TOPICS if any(claim.topic == topic for claim in claims)] == list(TOPICS)
    assert all(count > 0 for count in counted(claims).values())


def test_a_topic_of_which_nothing_is_said_is_missed(tmp_path):
    (tmp_path / "claims.yaml").write_text("- {topic: speed, claim: a, published: b, source: D, agrees: not shown, "
                                          "remark: c}\n")
    with pytest.raises(ValueError, match="nothing is said about bandwidth, experts"):
        load(tmp_path / "claims.yaml")
