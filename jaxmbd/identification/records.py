"""Records other than motions: what a fit requires of a kind of record, and stacks of records.

A record of such a kind contains numbers with known standard deviations, which the model predicts
without a motion in time. `bound` joins a record to a model before a fit, with all checks and all
choices that depend on values. The result has no name, so that bound records of equal structure are
evaluated together.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import AssemblyError, DataError, EquilibriumError, ModelError
from ..mechanism.groups import group_by
from ..model import Model
from ..model.values import described, is_concrete
from .experiment import Experiment
from .prediction import Simulator


class AbstractBoundRecord(eqx.Module):
    """A checked record, as a function of simulator and model; it can be traced and stacked."""

    measured: eqx.AbstractVar[Float[Array, "*batch m"]]
    deviations: eqx.AbstractVar[Float[Array, "*batch m"]]

    @abstractmethod
    def predicted(
        self, simulator: Simulator, model: Model
    ) -> tuple[Float[Array, "m"], Bool[Array, ""]]:
        """Predictions of the measured numbers, and whether they exist.

        Of equivalent predictions the one nearest to the measured number is returned.
        """


class AbstractRecord(eqx.Module):
    """A kind of record other than a motion, for `identify`; `name` occurs in messages."""

    name: eqx.AbstractVar[str]

    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """A label for each measured number, shape `(m,)`."""

    @abstractmethod
    def sensors(self) -> tuple[str, ...]:
        """Names of the sensors whose standard deviation `noise` may contain."""

    @abstractmethod
    def bound(
        self, simulator: Simulator, model: Model, noise: Mapping[str, float]
    ) -> AbstractBoundRecord:
        """The record for models like `model`, after checks.

        **Raises** `DataError` if the record does not fit the model.
        """


class Stack(eqx.Module):
    """Bound records of equal structure along a leading axis; `rows` are their numbers."""

    records: AbstractBoundRecord
    rows: tuple[int, ...] = eqx.field(static=True)

    def predicted(
        self, simulator: Simulator, model: Model
    ) -> tuple[Float[Array, "w m"], Bool[Array, "w"]]:
        """See `AbstractBoundRecord.predicted`."""
        return jax.vmap(lambda record: record.predicted(simulator, model))(self.records)

    def residuals(self, simulator: Simulator, model: Model) -> Float[Array, "n"]:
        """Residuals in deviations, record by record; infinite if predictions do not exist."""
        predicted, exists = self.predicted(simulator, model)
        r = (predicted - self.records.measured) / self.records.deviations
        return jnp.where(exists[:, None], r, jnp.inf).ravel()


class Comparison(NamedTuple):
    """Measured and predicted numbers of a record that is not a motion.

    - `name`: of the record; `labels`: of the numbers.
    - `measured`, `predicted`, `deviations`: shape `(m,)`.
    """

    name: str
    labels: tuple[str, ...]
    measured: np.ndarray
    predicted: np.ndarray
    deviations: np.ndarray

    @property
    def rms(self) -> float:
        """Root mean square residual, in deviations."""
        return float(np.sqrt(np.mean(((self.predicted - self.measured) / self.deviations) ** 2)))


AnyRecord = Experiment | AbstractRecord


def split_experiments(
    experiments: Any, caller: str
) -> tuple[list[Experiment], list[AbstractRecord]]:
    """Motions, and records of other kinds.

    **Raises** `DataError` for anything else, and if there are none.
    """
    single = isinstance(experiments, (Experiment, AbstractRecord))
    if not single and not isinstance(experiments, Iterable):
        raise DataError(
            f"{caller}: experiments must be an Experiment, a StaticExperiment or a "
            f"ModalExperiment, or a list of them, got {described(experiments)}"
        )
    given = [experiments] if single else list(experiments)
    for i, x in enumerate(given):
        if not isinstance(x, (Experiment, AbstractRecord)):
            raise DataError(
                f"{caller}: experiment {i} is a {type(x).__name__}; pass an Experiment, a "
                "StaticExperiment or a ModalExperiment"
            )
    if not given:
        raise DataError(f"{caller}: there are no experiments")
    motions = [x for x in given if isinstance(x, Experiment)]
    return motions, [x for x in given if isinstance(x, AbstractRecord)]


def stack_records(
    records: Sequence[AbstractRecord],
    simulator: Simulator,
    model: Model,
    noise: Mapping[str, float],
) -> tuple[Stack, ...]:
    """Bind records to a model, and stack those of equal structure.

    **Raises** `DataError`, `AssemblyError` and `EquilibriumError` with the name of the record.
    """
    members = []
    for i, record in enumerate(records):
        with errors_named(record.name):
            members.append((i, record.bound(simulator, model, noise)))

    def kind(entry: tuple[int, AbstractBoundRecord]) -> Any:
        leaves, structure = jax.tree.flatten(entry[1])
        return structure, tuple(jnp.shape(x) for x in leaves)

    return tuple(
        Stack(
            jax.tree.map(lambda *x: jnp.stack(x), *[record for _, record in alike]),
            tuple(i for i, _ in alike),
        )
        for alike in group_by(members, key=kind)
    )


@contextmanager
def errors_named(name: str) -> Iterator[None]:
    """Errors of a record that names it."""
    try:
        yield
    except ModelError as error:
        raise DataError(f"{name}: {error}") from error
    except (AssemblyError, EquilibriumError) as error:
        raise type(error)(
            f"{name}: {error}; start the record nearer by its `guess`, or correct its `load` or "
            "the starting model"
        ) from error


def numbers(
    value: Any, name: str, shape: tuple[int, ...] | None = None, positive: bool = False
) -> Float[Array, "..."]:
    """Finite numbers in JAX's default float type, broadcast to `shape` if that is given.

    **Raises** `DataError`, with `name`, for other values.
    """
    try:
        if isinstance(value, str | bytes):  # NumPy converts the text of a number.
            raise TypeError
        array = value if isinstance(value, jax.Array) else np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} is not numeric") from error
    if not is_concrete(array):
        raise DataError(f"{name} is traced; pass concrete numbers")
    array = np.asarray(array, dtype=float)
    if not np.all(np.isfinite(array)):
        raise DataError(
            f"{name} is not finite: {array.tolist()}; omit numbers that were not measured"
        )
    if positive and not np.all(array > 0):
        raise DataError(f"{name} must be positive, got {array.tolist()}")
    if shape is not None:
        if array.shape not in ((), shape):
            raise DataError(f"{name} has shape {array.shape}, expected {shape} or one number")
        array = np.broadcast_to(array, shape)
    return jnp.asarray(array, dtype=jnp.result_type(float))
