"""What `make examples` reads in the READMEs."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))
from versions import expected, requirements  # noqa: E402

EXAMPLES = sorted(path.parents[1] for path in HERE.glob("*/scenarios/base.yaml"))


def test_what_is_installed_beside_this_repository_is_told_from_it():
    readme = "text\n\npip install '../..[trainer]' one==1.2 'two[more]'   # ../..: us\n"
    assert requirements(readme) == ["one==1.2", "two[more]"]
    assert requirements("pip install ../..\n") == requirements("nothing to install\n") == []


def test_a_result_is_the_first_verdict_in_a_row():
    assert expected("| `a.yaml` | killed. PASSED: as FAILED as any |\n| `b-c.yaml` | paused | FAILED: see |\n"
                    "| `d.yaml` | depends |\n| PASSED | `e.yaml` |\n") == {"a": "PASSED", "b-c": "FAILED"}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_each_scenario_has_a_row_in_its_readme(example):
    readme = (example / "README.md").read_text()
    assert not [path.name for path in example.glob("scenarios/*.yaml")
                if path.name != "base.yaml" and f"| `{path.name}` |" not in readme]
