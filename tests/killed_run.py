"""One run that may be killed: ``python killed_run.py STORE [EVENT]`` dies by SIGKILL at the given progress event.

Sizes are small, so that the run has several parts, blocks and panels, and saves its state at every sweep.
"""

import json
import os
import signal
import sys

import scalable_gpe as gpe
from scalable_gpe.execution import memory_plan
from scalable_gpe.execution.block_sizes import block_sizes

memory_plan.PART_ROWS = 1300
POINTS = 3000


def points():
    X = gpe.datasets.patches(POINTS, 12, dimension=3, random_state=5)
    X[40:60] = X[7]
    return X


def run(store, progress=False):
    with block_sizes(block_rows=512, panel_columns=4, save_seconds=0.0):
        return gpe.embed(
            points(),
            n_neighbors=10,
            n_components=10,
            power=[3, 40],
            method="cells",
            recall=0.9,
            store=store,
            progress=progress,
        )


if __name__ == "__main__":
    last = int(sys.argv[2]) if len(sys.argv) > 2 else -1
    seen = []

    def count(stage, done, total):
        seen.append(stage)
        if len(seen) == last:
            os.killpg(0, signal.SIGKILL)

    run(sys.argv[1], count)
    print(json.dumps(seen))
