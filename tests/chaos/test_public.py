"""What `chaos` itself names is there, lazily, and nothing else is."""

import subprocess
import sys
from collections.abc import Callable
from typing import Literal, get_origin

import pytest

import diloco_chaos


@pytest.mark.parametrize("name", diloco_chaos.__all__)
def test_every_public_name_is_there(name):
    member = getattr(diloco_chaos, name)
    assert member.__doc__ or get_origin(member) in (Literal, Callable)


def test_another_name_is_not():
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        diloco_chaos.nothing_of_this_name  # noqa: B018


def test_importing_the_package_imports_nothing_heavy():
    code = "import diloco_chaos, sys; print(sorted({'torch', 'numpy', 'pydantic'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
