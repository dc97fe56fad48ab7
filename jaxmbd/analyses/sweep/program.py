"""One function of a scenario, traced once and compiled for a whole chunk."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from scalarjit.with_room import with_room

from ...programs.progress import COMPILING, say
from .fingerprint import Digest
from .named import runnable, traced_by_name


class Program:
    """The compiled function of a user, for chunks of a given size.

    - `size`: number of scenarios in a chunk.
    - `outputs`: `{name: jax.ShapeDtypeStruct}`, shapes of the results of one scenario.
    - `digest`: digest of the function's program.
    - `devices`: number of devices that share a chunk.

    **Raises** `ModelError` for a function that does not return arrays by name.
    """

    def __init__(self, function: Callable[[Any], Any], example: Any, size: int):
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), example)
        say(COMPILING)
        traced, self.outputs = with_room(traced_by_name)(function, shapes, "sweep")
        self.size = size
        self.digest = Digest().of(traced)
        run = runnable(traced)

        def one(scenario: Any) -> dict[str, Any]:
            return dict(zip(self.outputs, run(*jax.tree.leaves(scenario)), strict=True))

        # filter_jit turns errors at run time into EquinoxRuntimeError.
        self._one, self._batch = eqx.filter_jit(one), eqx.filter_jit(jax.vmap(one))
        self._chunk = self._batch
        devices = jax.local_devices()
        self.devices = len(devices) if size % len(devices) == 0 else 1
        if self.devices > 1:
            # Without communication: a device would wait forever for another one that a check ended.
            mesh, rows = Mesh(np.array(devices), ("scenario",)), PartitionSpec("scenario")
            options = {"mesh": mesh, "in_specs": rows, "out_specs": rows, "check_vma": False}
            self._chunk = eqx.filter_jit(jax.shard_map(jax.vmap(one), **options))

    def batch(self, scenarios: Any) -> dict[str, np.ndarray]:
        """Results of several scenarios, one per row; each number of scenarios compiles once.

        **Raises** `equinox.EquinoxRuntimeError` if a check at run time fails in any of them.
        """
        count = jax.tree.leaves(scenarios)[0].shape[0]
        run = self._chunk if count == self.size else self._batch
        return _as_numpy(run(jax.tree.map(jnp.asarray, scenarios)))

    def alone(self, scenario: Any) -> dict[str, np.ndarray]:
        """Results of one scenario; **raises** `equinox.EquinoxRuntimeError` like `batch`."""
        return _as_numpy(self._one(jax.tree.map(jnp.asarray, scenario)))


def _as_numpy(results: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in results.items()}
