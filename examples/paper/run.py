"""Run all experiments of "Sketching the Heat Kernel" (Gilbert, O'Neill) and check the claims of the paper.

    python examples/paper/run.py --out paper-results

It writes the figures (PNG), results.csv (mean and standard deviation of log L) and verdicts.md.
"""

import argparse
import csv
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from claims import verdicts
from experiments import EXPERIMENTS, run_trial
from figures import draw_all

Results = dict[str, dict[str, np.ndarray]]


def main() -> None:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    results = run(options.trials, options.jobs)
    write_table(results, options.out / "results.csv")
    draw_all(results, options.out)
    lines = [str(verdict) for verdict in verdicts(results)]
    (options.out / "verdicts.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    print(f"\n{options.out}: figures, results.csv, verdicts.md after {time.perf_counter() - start:.0f} s")


def run(trials: int | None = None, jobs: int = 2) -> Results:
    """Measure log L by experiment and method: arrays of trials x values of the axis."""
    tasks = [
        (name, trial)
        for name, experiment in EXPERIMENTS.items()
        for trial in range(min(trials or experiment.n_trials, experiment.n_trials))
    ]
    # spawn, not fork: BLAS threads do not survive a fork
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_one_thread) as pool:
        done = list(tqdm(pool.map(_task, tasks, chunksize=2), total=len(tasks), unit="trial"))
    return {
        name: {
            method: np.array(
                [measured[method] for (task, _), measured in zip(tasks, done, strict=True) if task == name]
            )
            for method in experiment.methods
        }
        for name, experiment in EXPERIMENTS.items()
    }


def write_table(results: Results, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["experiment", "method", "axis", "value", "n_trials", "mean_log_L", "std_log_L"])
        for name, by_method in results.items():
            experiment = EXPERIMENTS[name]
            for method, logs in by_method.items():
                for column, value in enumerate(experiment.values):
                    mean, std = logs[:, column].mean(), logs[:, column].std()
                    table.writerow([name, method, experiment.axis, value, len(logs), f"{mean:.4f}", f"{std:.4f}"])


def _task(task: tuple[str, int]) -> dict[str, list[float]]:
    return run_trial(*task)


def _one_thread() -> None:
    threadpool_limits(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("paper-results"), help="folder for figures and numbers")
    parser.add_argument("--trials", type=int, help="at most so many trials per experiment (the paper: 100 or 200)")
    parser.add_argument("--quick", dest="trials", action="store_const", const=5, help="five trials: a look")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
