"""The embedding in a scikit-learn pipeline under a grid search: the example of the documentation."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "pipeline.py"


@pytest.mark.slow
@pytest.mark.skipif(not EXAMPLE.exists(), reason="examples/ is not beside the tests")
@pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
def test_the_example(capsys):
    runpy.run_path(str(EXAMPLE))["main"](["--rows", "500", "--folds", "2"])
    assert float(re.search(r"other digits ([\d.]+)", capsys.readouterr().out).group(1)) > 0.85
