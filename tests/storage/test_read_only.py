"""A store on a read-only mount: what only reads needs no lock."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import scalable_gpe as gpe

pytestmark = pytest.mark.filterwarnings("ignore::scalable_gpe.errors.GPEWarning")
OPTIONS = {"n_neighbors": 7, "n_components": 3, "power": 8, "progress": False}
MOUNT = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
SCRIPT = f"""
import sys, warnings, json
import pandas as pd, scalable_gpe as gpe
from scalable_gpe.cli import main
from scalable_gpe.errors import StoreError
warnings.simplefilter("ignore")
store, X, options = sys.argv[1], pd.read_pickle(sys.argv[2]), {OPTIONS!r}
found = {{}}
for name, more in (("finished", {{}}), ("other power", {{"power": 9}}), ("over", {{"resume": False}})):
    try:
        found[name] = gpe.embed(X, store=store, **(options | more)).points[:].tolist()
    except Exception as error:
        found[name] = f"{{type(error).__name__}}: {{error}}"
found["verify"] = main(["info", "--verify", store, "--json"])
print(json.dumps(found))
"""


def on_read_only_mount(store, *command):
    """Run a command to which the folder of a store is read-only: root needs a mount of its own, others do not."""
    if os.geteuid():
        subprocess.run(["chmod", "-R", "a-w", store], check=True)
        return subprocess.run(command, capture_output=True, text=True)
    return subprocess.run(["unshare", "-m", "sh", "-c", MOUNT, store, *command], capture_output=True, text=True)


@pytest.mark.some(1)
@pytest.mark.parametrize("damaged", [False, True])
def test_a_finished_run_and_verify_need_no_lock(tmp_path, damaged):
    store, frame = tmp_path / "run.zarr", tmp_path / "X.pickle"
    X = pd.DataFrame(gpe.datasets.torus(300, random_state=0), index=[f"row {i}" for i in range(300)])
    X.to_pickle(frame)
    points = gpe.embed(X, store=store, **OPTIONS).points[:]
    if damaged:
        next(store.glob("heat/*/scale/c/0")).write_bytes(b"nothing")
    (store / ".lock").unlink()
    before = sorted(store.rglob("*"))
    if not os.geteuid() and (shutil.which("unshare") is None or on_read_only_mount(store, "true").returncode):
        pytest.skip("no mounts here")
    done = on_read_only_mount(store, sys.executable, "-c", SCRIPT, str(store), str(frame))
    subprocess.run(["chmod", "-R", "u+w", store], check=True)
    assert done.returncode == 0, done.stderr
    *report, last = done.stdout.splitlines()
    found = json.loads(last)
    assert json.loads("\n".join(report))["sound"] is not damaged and found["verify"] == int(damaged)
    if damaged:
        assert found["finished"].startswith("DamageError: array 'heat/")
    else:
        np.testing.assert_array_equal(np.array(found["finished"], np.float32), points)
    for name in ("other power", "over"):
        assert found[name].startswith("StoreError: store ") and "cannot be written to" in found[name]
    assert sorted(store.rglob("*")) == before
