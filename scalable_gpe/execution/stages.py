"""Stages of the pipeline: each finds its result in the store, or makes it.

The graph, the kernel, the heat kernel and the sketch are stages. `embed` runs them one after the other; the functions
for single stages (`neighbor_graph`, `gaussian_kernel`, `heat_kernel`, `gp_embedding`) run the same ones, so that what
one of them has made another one finds.
"""

from typing import Protocol, TypeVar

from scalable_gpe.execution.context import Context

Result = TypeVar("Result", covariant=True)


class Stage(Protocol[Result]):
    """What is to be made, from what, and under which name.

    ``find`` returns the complete result of that name, or None; ``make`` computes and commits it.
    """

    @property
    def name(self) -> str: ...
    def find(self, context: Context) -> Result | None: ...
    def make(self, context: Context) -> Result: ...


def complete(stage: Stage[Result], context: Context) -> Result:
    """The result of a stage, while the store is locked for this process."""
    found = stage.find(context)
    return stage.make(context) if found is None else found


def complete_alone(stage: Stage[Result], context: Context) -> Result:
    """The result of a stage outside of a run: the store is locked only while something is written."""
    found = stage.find(context)
    if found is not None:
        return found
    with context.store.exclusive():
        return complete(stage, context)
