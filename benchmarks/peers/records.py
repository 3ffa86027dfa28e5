"""Runs as lines of a JSON file."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

STOPPED = ("time", "memory")


@dataclass(frozen=True, order=True)
class Key:
    """What makes a run: data, number of rows, method and seed."""

    data: str
    n_rows: int
    method: str
    seed: int


@dataclass(frozen=True)
class Record:
    """One run: how it ended, its seconds by part, its peak memory in bytes, and its figures.

    `status` is "done", "time" or "memory" (stopped by that limit), or "failed" with a `reason`. `process` is the time
    of the whole process. `figures` are by time of the diffusion, "" where a method has none.
    """

    key: Key
    status: str
    peak: int
    process: float
    machine: dict[str, Any]
    limits: dict[str, float]
    reason: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    figures: dict[str, dict[str, float]] = field(default_factory=dict)
    distances: list[float] = field(default_factory=list)

    @property
    def compiled(self) -> float:
        """Seconds of the call when everything is compiled."""
        return self.seconds["call"]

    @property
    def first(self) -> float:
        """Seconds of the first call of a process: import and compilation included."""
        compilation = self.seconds.get("first", 0.0) - self.seconds.get("second", 0.0)
        return self.seconds["import"] + max(compilation, 0.0) + self.seconds["call"]

    def stopped_below(self, limits: dict[str, float]) -> bool:
        """Whether the run was stopped by a limit that is higher now."""
        return self.status in STOPPED and self.limits[self.status] < limits[self.status]

    def rules_out(self, key: Key, limits: dict[str, float]) -> bool:
        """Whether this run shows that one with more rows cannot succeed."""
        smaller = (self.key.data, self.key.method) == (key.data, key.method) and (
            self.key.n_rows < key.n_rows or (self.key.n_rows == key.n_rows and self.key.seed < key.seed)
        )
        return smaller and self.status in STOPPED and not self.stopped_below(limits)

    def __str__(self) -> str:
        what = f"{self.key.data}, {self.key.n_rows:,} rows, {self.key.method}, seed {self.key.seed}: "
        if self.status == "failed":
            return what + f"failed, {self.reason}"
        if self.status != "done":
            return what + f"stopped by the limit of {self.status}"
        return what + f"{self.compiled:.1f} s (first call {self.first:.1f} s), {self.peak / 1e9:.2f} GB"


@dataclass(frozen=True)
class Results:
    """All runs of a file; a later line replaces an earlier one of the same run."""

    path: Path
    records: dict[Key, Record]

    @classmethod
    def read(cls, path: Path) -> "Results":
        found = cls(path, {})
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
            content = json.loads(line)
            record = Record(**{**content, "key": Key(**content["key"])})
            found.records[record.key] = record
        return found

    def add(self, record: Record) -> None:
        self.records[record.key] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(record)) + "\n")
