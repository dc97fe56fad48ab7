"""The functions of one motion that a stepper compiles, on flat arrays."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ...integrators.abstract import AbstractIntegrator
from ...linearization.inputs import Input
from ...system.abstract import AbstractSystem, State, Time
from .held_inputs import own_values, with_values


class StepProgram:
    """Start, step and readings of one motion.

    Between steps, a motion is `[t0, n]`, the time of its start and the number of steps, the state,
    and the memory of the integrator. `packing` converts them to flat arrays and back.
    """

    def __init__(
        self,
        system: AbstractSystem,
        integrator: AbstractIntegrator,
        dt: float,
        inputs: tuple[Input, ...],
        sensors: Mapping[str, Callable[..., Array]],
    ):
        # Computed here, not at the start of each step.
        self.system = jax.jit(lambda system: system.prepared())(system)
        self.integrator, self.inputs, self.sensors = integrator, inputs, sensors
        self.dtype = system.mechanism.dtype
        self.dt = jnp.asarray(dt, self.dtype)
        sizes = system.nq, system.nv, system.nz
        self.state = State(*(jax.ShapeDtypeStruct((n,), self.dtype) for n in sizes))
        self.number = jax.ShapeDtypeStruct((), self.dtype)
        self.packing = Packing(jax.eval_shape(self._begin, self.state, self.number)[0])
        u = jax.ShapeDtypeStruct((self.n_inputs,), self.dtype)
        flat, _ = jax.eval_shape(self.begin, self.state, self.number)
        self.arguments = flat, u
        self.reading_shapes = jax.eval_shape(self._readings, flat, u)

    @property
    def n_inputs(self) -> int:
        """Number of scalar inputs."""
        return sum(place.size for place in self.inputs)

    def _begin(self, state: State, t0: Time) -> tuple[Any, Float[Array, "nu"]]:
        memory = self.integrator.start(self.system, t0, self.dt, state)
        head = jnp.stack([t0, jnp.zeros_like(t0)])
        return (head, state, memory), own_values(self.system, self.inputs, t0)

    def begin(self, state: State, t0: Time) -> tuple[list[Array], Float[Array, "nu"]]:
        """A motion from a state at t0, and the values of the inputs in the model at t0."""
        carry, u = self._begin(state, t0)
        return self.packing.pack(carry), u

    def step(self, flat: list[Array], u: Float[Array, "nu"]) -> list[Array]:
        """The motion after one step with constant inputs."""
        head, state, memory = self.packing.unpack(flat)
        system = with_values(self.system, self.inputs, u)
        t = head[0] + head[1] * self.dt
        state, memory = self.integrator.advance(system, t, t + self.dt, state, memory)
        return self.packing.pack((jnp.stack([head[0], head[1] + 1.0]), state, memory))

    def _readings(self, flat: list[Array], u: Float[Array, "nu"]) -> dict[str, Array]:
        head, state, _ = self.packing.unpack(flat)
        system = with_values(self.system, self.inputs, u)
        t = head[0] + head[1] * self.dt
        return {name: jnp.asarray(s(system, t, state)) for name, s in self.sensors.items()}

    def read(self, flat: list[Array], u: Float[Array, "nu"]) -> Float[Array, "n"]:
        """All readings one after the other, in the order of their names."""
        readings = self._readings(flat, u)
        parts = [readings[name].ravel().astype(self.dtype) for name in sorted(readings)]
        return jnp.concatenate([jnp.zeros(0, self.dtype), *parts])


# A tree of arrays as a few flat arrays ------------------------------------------------------------
# Each array of a call costs about a microsecond, and so does each array that a call returns.

# Arrays with more entries keep their own place: to copy them takes longer than to pass them.
MANY = 4096


class Packing:
    """Places of the arrays of a tree in one flat array for each type, and in arrays of their own.

    **Arguments:** `shapes`: the tree, with shapes and types instead of arrays.
    """

    def __init__(self, shapes: PyTree):
        leaves, self.structure = jax.tree.flatten(shapes)
        self.shapes = [leaf.shape for leaf in leaves]
        keys = [
            (str(leaf.dtype), k if np.prod(leaf.shape) > MANY else -1)
            for k, leaf in enumerate(leaves)
        ]
        # Floats first: the buffer that holds the state is the first one.
        order = sorted(set(keys), key=lambda key: (not key[0].startswith("float"), key[1], key[0]))
        self.members = [[k for k, own in enumerate(keys) if own == key] for key in order]

    def pack(self, tree: PyTree) -> list[Array]:
        """The flat arrays of a tree."""
        leaves = jax.tree.leaves(tree)
        return [jnp.concatenate([leaves[k].ravel() for k in ks]) for ks in self.members]

    def unpack(self, flat: list[Any]) -> PyTree:
        """The tree of flat arrays, which may be those of NumPy and have a leading axis."""
        leaves: list[Any] = [None] * len(self.shapes)
        for x, ks in zip(flat, self.members, strict=True):
            start = 0
            for k in ks:
                size = int(np.prod(self.shapes[k]))
                part = x[..., start : start + size]
                leaves[k] = part.reshape((*x.shape[:-1], *self.shapes[k]))
                start += size
        return jax.tree.unflatten(self.structure, leaves)

    def part(self, flat: list[Any], k: int) -> np.ndarray:
        """A copy of the k-th array of the tree."""
        size = int(np.prod(self.shapes[k]))
        for x, ks in zip(flat, self.members, strict=True):
            if k in ks:
                start = sum(int(np.prod(self.shapes[i])) for i in ks[: ks.index(k)])
                own = np.array(np.asarray(x)[..., start : start + size])
                return own.reshape((*own.shape[:-1], *self.shapes[k]))
        raise KeyError(k)
