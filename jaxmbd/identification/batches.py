"""Records stacked into batches, which are simulated together."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..mechanism.groups import group_by
from ..model.values import as_jax, library_of, on_host
from ..signals import Samples
from .experiment import Experiment, RecordName


class Batch(eqx.Module):
    """Records of one kind, stacked along a leading axis; `rows` are their numbers, `labels` their
    names.

    Shorter records are padded with their last time and readings, and sampled inputs with their last
    value, so that one program serves all lengths. `valid` has all sensors, so that it serves all
    choices of samples, too; it is False for padding.
    """

    experiments: Experiment
    rows: tuple[int, ...] = eqx.field(static=True)
    labels: tuple[RecordName, ...] = eqx.field(static=True)

    def called(self, i: int) -> str:
        """One of the records in messages: its number, and its name if it has one."""
        return self.labels[i].called(self.rows[i])

    def record(self, i: int) -> Experiment:
        """One of the records, padded."""
        return row(self.experiments, i)


def batch_experiments(experiments: Sequence[Experiment]) -> tuple[Batch, ...]:
    """Group records of equal structure into batches."""
    length = max((e.ts.shape[0] for e in experiments), default=0)
    sampled = [x for e in experiments for x in jax.tree.leaves(_given(e), is_leaf=_is_samples)]
    longest = max((x.ts.shape[0] for x in sampled if _is_samples(x)), default=0)
    padded = [(i, _pad(e, length, longest)) for i, e in enumerate(experiments)]

    def kind(entry: tuple[int, Experiment]) -> Any:
        leaves, structure = jax.tree.flatten(entry[1])
        return structure, tuple(jnp.shape(x) for x in leaves)

    return tuple(
        Batch(
            jax.tree.map(_stacked, *[e for _, e in members]),
            tuple(i for i, _ in members),
            tuple(e.label for _, e in members),
        )
        for members in group_by(padded, key=kind)
    )


def row(tree: Any, i: int) -> Any:
    """One row of all arrays."""
    return jax.tree.map(lambda x: as_jax(on_host(x)[i]), tree)


def as_one(tree: Any) -> Any:
    """All arrays with a leading axis of length one."""
    return jax.tree.map(lambda x: as_jax(on_host(x)[None]), tree)


def _stacked(*arrays: Any) -> Array:
    return as_jax(library_of(*arrays).stack(arrays))


def _given(experiment: Experiment) -> tuple[Any, Any]:
    """Parts of a record that may contain samples of functions of time."""
    return experiment.forces, experiment.inputs


def _is_samples(x: Any) -> bool:
    return isinstance(x, Samples)


def _pad(experiment: Experiment, length: int, longest: int) -> Experiment:
    """A record of a number of readings, with a number of samples of each sampled signal."""
    n = experiment.ts.shape[0]
    readings = experiment.measurements
    valid = {k: experiment.valid.get(k, np.ones(x.shape, bool)) for k, x in readings.items()}

    def extend(x: Array) -> Array:
        more = [(0, length - n), *[(0, 0)] * (x.ndim - 1)]
        library = library_of(x)
        return library.pad(x, more) if x.dtype == bool else library.pad(x, more, mode="edge")

    def sampled(x: Any) -> Any:
        return x.extended(longest) if _is_samples(x) and x.ts.shape[0] < longest else x

    return eqx.tree_at(
        lambda e: (e.ts, e.measurements, e.valid, *_given(e)),
        experiment,
        (
            *jax.tree.map(extend, (experiment.ts, readings, valid)),
            *jax.tree.map(sampled, _given(experiment), is_leaf=_is_samples),
        ),
    )
