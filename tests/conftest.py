"""What every test leaves behind is cleared away."""

import sys

import pytest


@pytest.fixture(autouse=True)
def figures():
    """Figures stay open in a process that has pyplot, until matplotlib complains."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
