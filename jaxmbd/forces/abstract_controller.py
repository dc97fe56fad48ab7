"""Controllers: laws from sensor readings to forces on joints and wrenches on frames."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..errors import ModelError
from ..model.frame import Frame, JointReference, Reference, is_reference
from .abstract import AbstractElement, Time


class OutputReference(Reference):
    """A reference, by name, to the joint or the frame on which a controller acts."""

    name: str = eqx.field(static=True)

    def anonymous(self) -> "OutputReference":
        return OutputReference("")


class AbstractController(AbstractElement):
    """A law from readings of kinematic sensors to forces on joints and wrenches on frames.

    - `sensors`: one of `jaxmbd.sensors`, or a sequence or dict of them. Readings have the same
      structure.
    - `outputs`: a `Reference`, or a tuple or dict of them. Commands have the same structure.
    - `sample_time`: time between samples [s]; None for a continuous law.

    z contains the memory of the controller, and if the controller is sampled, its held commands.
    """

    sensors: eqx.AbstractVar[Any]
    outputs: eqx.AbstractVar[Any]
    sample_time: eqx.AbstractVar[Float[Array, ""] | None]

    @abstractmethod
    def initial_memory(self) -> PyTree:
        """The initial memory: a pytree of float arrays, or None."""

    @abstractmethod
    def evaluate(self, t: Time, readings: PyTree, memory: PyTree) -> tuple[PyTree, PyTree]:
        """Commands, with the time derivative of the memory, or the next memory of a sampled law."""

    @property
    def period(self) -> Float[Array, "*n"] | None:  # Stacked controllers have one each.
        return self.sample_time

    @property
    def n_memory(self) -> int:
        """Number of floats in the memory."""
        return sum(jnp.size(x) for x in jax.tree.leaves(self.initial_memory()))

    def initial_states(self) -> Float[Array, "n_memory"]:
        """The initial memory as a vector. Held commands, which follow in z, are zero initially."""
        return _flat(self.initial_memory(), jnp.result_type(float))

    def readings(self, motion: Any) -> PyTree:
        """Readings of the sensors in an `AbstractNamedMotion`."""
        return jax.tree.map(lambda sensor: sensor.read(motion), self.sensors, is_leaf=is_part)

    def load(self, t: Time, readings: PyTree, z: Float[Array, "n"]) -> Float[Array, "n_commands"]:
        """Commands of all outputs, concatenated."""
        if self.sample_time is not None:
            return z[self.n_memory :]
        return _flat(self._evaluated(t, readings, z)[0], t.dtype)

    def state_rates(self, t: Time, readings: PyTree, z: Float[Array, "n"]) -> Float[Array, "n"]:
        """ż; zero between samples."""
        if self.sample_time is not None:
            return jnp.zeros_like(z)
        return _flat(self._evaluated(t, readings, z)[1], z.dtype)

    def update(self, t: Time, readings: PyTree, z: Float[Array, "n"]) -> Float[Array, "n"]:
        """z after a sample."""
        commands, memory = self._evaluated(t, readings, z)
        return jnp.concatenate([_flat(memory, z.dtype), _flat(commands, z.dtype)])

    def _evaluated(self, t: Time, readings: PyTree, z: Float[Array, "n"]) -> tuple[PyTree, PyTree]:
        return self.evaluate(t, readings, self._memory(z))

    def _memory(self, z: Float[Array, "n"]) -> PyTree:
        leaves, structure = jax.tree.flatten(self.initial_memory())
        parts, start = [], 0
        for x in leaves:
            parts.append(z[start : start + jnp.size(x)].reshape(jnp.shape(x)))
            start += jnp.size(x)
        return jax.tree.unflatten(structure, parts)

    def references(self) -> list[Reference]:
        """Outputs in the order of their commands."""
        return jax.tree.leaves(self.outputs, is_leaf=is_reference)

    def check(
        self, t: Any, readings: PyTree, dtype: Any, names: list[str], sizes: list[int]
    ) -> None:
        """Check the shapes of commands and memory, given those of the time and the readings.

        `names` and `sizes` are the names of the outputs and their numbers of commands.

        **Raises** `ModelError` if the law does not accept the readings, if the commands do not
        match the outputs, and if the structure of the memory changes.
        """
        memory = jax.eval_shape(lambda: self._memory(jnp.zeros(self.n_memory, dtype)))
        try:
            commands, after = jax.eval_shape(self.evaluate, t, readings, memory)
        except (TypeError, ValueError) as error:
            raise ModelError(f"its law does not accept its readings: {error}") from error
        for problem in _mismatches(commands, self.outputs, names, sizes):
            raise ModelError(f"its law returns {problem}")
        if _shapes(after) != _shapes(memory):
            returned = "rates of the memory" if self.sample_time is None else "the next memory"
            raise ModelError(
                f"its law returns {returned} of shapes {_shapes(after)[1]} where the memory has "
                f"{_shapes(memory)[1]}; return the same structure of arrays"
            )


def is_part(x: Any) -> bool:
    """True if `x` is a module; for use as `is_leaf` in containers of sensors."""
    return isinstance(x, eqx.Module)


def as_output(value: Any, caller: str) -> Reference:
    """Convert the name of a joint or frame, or a `Frame`, to a reference."""
    if isinstance(value, Frame | JointReference | OutputReference):
        return value
    if isinstance(value, str):
        return OutputReference(value)
    raise ModelError(
        f"{caller}: an output must be the name of a joint or frame, or a Frame, got {value!r}"
    )


def as_outputs(value: Any, caller: str) -> Any:
    """Convert outputs in a dict or a tuple, or a single output, to references."""
    if isinstance(value, dict):
        return {key: as_output(x, caller) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_output(x, caller) for x in value)
    return as_output(value, caller)


def _flat(tree: PyTree, dtype: Any) -> Float[Array, "n"]:
    leaves = [jnp.ravel(jnp.asarray(x)).astype(dtype) for x in jax.tree.leaves(tree)]
    return jnp.concatenate([jnp.zeros(0, dtype), *leaves])


def _shapes(tree: PyTree) -> tuple[Any, list[tuple[int, ...]]]:
    return jax.tree.structure(tree), [jnp.shape(x) for x in jax.tree.leaves(tree)]


def _mismatches(commands: Any, outputs: Any, names: list[str], sizes: list[int]) -> Iterator[str]:
    """Messages about commands whose structure or shapes do not match the outputs."""
    total, leaves = sum(sizes), jax.tree.leaves(commands)
    if len(sizes) != 1 and not isinstance(commands, dict | list | tuple):
        if jnp.shape(commands) != (total,):
            yield (
                f"one array of shape {jnp.shape(commands)} where {(total,)} is needed, the "
                f"commands of {', '.join(map(repr, names))} one after another"
            )
        return
    keys, required = (sorted(x) if isinstance(x, dict) else None for x in (commands, outputs))
    if keys != required:
        needed = "no dict" if required is None else f"a dict of {', '.join(map(repr, required))}"
        yield f"commands {commands!r} where {needed} is needed, as the outputs are"
        return
    if len(leaves) != len(sizes):
        yield f"{len(leaves)} commands where {len(sizes)} are needed, one for each output"
        return
    for leaf, name, size in zip(leaves, names, sizes, strict=True):
        if jnp.shape(leaf) != (size,) and not (size == 1 and jnp.shape(leaf) == ()):
            yield f"a command of shape {jnp.shape(leaf)} for {name!r} where {(size,)} is needed"
