"""Stages of the pipeline: each finds its result in the store, or makes it.

The graph, the kernel, the heat kernel and the sketch are stages. `embed` runs them one after the other; the functions
for single stages (`neighbor_graph`, `gaussian_kernel`, `heat_kernel`, `gp_embedding`) run the same stages, so that each
finds the results of the others.
"""

import time
from typing import Any, Protocol, TypeVar

from scalable_gpe.errors import GPEWarning, warn
from scalable_gpe.execution.allocator import release_freed_memory
from scalable_gpe.execution.context import Context

Result = TypeVar("Result", covariant=True)
Warned = TypeVar("Warned", bound=Any)  # keeps the warning that was given when it was made


class Stage(Protocol[Result]):
    """A step of the pipeline: its inputs, its parameters, and the name of its result.

    ``find`` returns the complete result of that name, or None; ``make`` computes and commits it.
    """

    @property
    def name(self) -> str: ...
    def find(self, context: Context) -> Result | None: ...
    def make(self, context: Context) -> Result: ...


def complete(stage: Stage[Result], context: Context) -> Result:
    """Find or make the result of a stage; the caller holds the lock of the store."""
    limited = context.plan.resources.limit is not None
    if limited:  # what the stage before has freed would count against the limit
        release_freed_memory()
        context.tune_memory()
    result = stage.find(context)
    if result is None:
        began = time.perf_counter()
        result = stage.make(context)
        context.seconds[stage.name] = time.perf_counter() - began
        if limited:
            release_freed_memory()
    return result


def complete_alone(stage: Stage[Warned], context: Context, category: type[GPEWarning]) -> Warned:
    """Find or make the result of a stage outside of a run; the store is locked only to make it."""
    result = stage.find(context)
    if result is not None:
        if result.warning is not None:  # as when it was made
            warn(result.warning, category)
        return result
    with context.store.exclusive():
        return complete(stage, context)
