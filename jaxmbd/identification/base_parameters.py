"""Base parameters: the combinations of parameters that motions with forces can show."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError, ModelError
from ..model.values import as_count, require_concrete
from ..motion.assemble import assemble
from ..system.abstract import AbstractSystem, require_system
from ..system.constraints import row_names
from .regressor import Regressor, regressor

# Columns are dependent if what is left of them is below the largest sum of rounding errors by this
# factor: entries of regressors of trees with 40 joints have errors of some hundred units.
SAFETY = 1e3


class BaseParameters(eqx.Module):
    """Combinations `map @ parameters` on which all forces depend, of minimal number.

    - `map`: shape `(r, p)`; `names`: the combinations in words, such as
      `"lower.m + 0.5 lower.mcx"`.
    - `columns`: for each combination, the column of the regressor that multiplies it; it has
      the factor 1 in the combination.
    - `without_effect`: names of parameters that have no effect on the forces.
    - `all_names`: names of all parameters.
    """

    map: Float[np.ndarray, "r p"]
    names: tuple[str, ...] = eqx.field(static=True)
    columns: tuple[int, ...] = eqx.field(static=True)
    without_effect: tuple[str, ...] = eqx.field(static=True)
    all_names: tuple[str, ...] = eqx.field(static=True)

    def __len__(self) -> int:
        return len(self.columns)

    def values(self, parameters: Any) -> Float[Array, "r"]:
        """Values of the combinations for all parameters, shape `(p,)`."""
        return jnp.asarray(self.map) @ jnp.asarray(parameters)

    def reduce(self, Y: Regressor) -> Float[Array, "*batch n r"]:
        """The columns of a regressor that multiply the combinations.

        **Raises** `ModelError` for a regressor of other parameters.
        """
        self._check(Y)
        return Y.matrix[..., list(self.columns)]

    def _check(self, Y: Regressor) -> None:
        if Y.names != self.all_names:
            raise ModelError("reduce: Y has other parameters than those of the combinations")

    def condition(self, Y: Regressor) -> float:
        """Condition number of the reduced regressor of all states, without scaling of columns."""
        self._check(Y)
        rows = np.asarray(Y.matrix, dtype=float)[..., list(self.columns)].reshape(-1, len(self))
        values = np.linalg.svd(rows, compute_uv=False)
        return float(values[0] / values[-1])

    def __str__(self) -> str:
        lines = [f"{len(self)} base parameters of {len(self.all_names)} parameters"]
        lines += [f"  {name}" for name in self.names]
        if self.without_effect:
            lines.append(f"without effect: {', '.join(self.without_effect)}")
        return "\n".join(lines)


def base_parameters(source: AbstractSystem | Regressor, seed: int = 0) -> BaseParameters:
    """The combinations of parameters that have an effect on the forces of a mechanism.

    A parameter joins a combination of parameters before it in the order of the columns, that is of
    bodies nearer to the ground: for a serial arm these are the known regrouping relations.

    **Arguments:**

    - `source`: a system, whose states are then drawn at random, or a `Regressor` at many states,
      required for mechanisms with loops.
    - `seed`: a whole number from which the states are drawn.

    A column counts as dependent if its part that is independent of columns before it is as small as
    rounding errors, which follow from the number of rows and columns.

    Source: Gautier (1991), "Numerical calculation of the base inertial parameters of robots".

    **Raises** `ModelError` for a system with constraints, and `DataError` for a regressor at too
    few states or with values that are not finite.

    For example:

        print(mbd.base_parameters(system))
    """
    require_concrete("base_parameters", source)
    seed = as_count(seed, "base_parameters: seed", 0)
    Y = source if isinstance(source, Regressor) else _at_random(source, seed)
    rows = np.asarray(Y.matrix, dtype=float).reshape(-1, len(Y.names))
    if not np.all(np.isfinite(rows)):
        raise DataError("base_parameters: the regressor has values that are not finite")
    kept, K, no_effect = _independent(rows)
    others = [k for k in range(len(Y.names)) if k not in kept and k not in no_effect]
    full = np.zeros((len(kept), len(Y.names)))
    full[np.arange(len(kept)), kept] = 1.0
    full[:, others] = K
    if len(kept) >= len(rows):
        raise DataError(
            f"base_parameters: {len(rows)} rows cannot show more than {len(kept)} combinations; "
            "give more states"
        )
    return BaseParameters(
        full,
        tuple(_in_words(row, Y.names, k) for row, k in zip(full, kept, strict=True)),
        tuple(kept),
        tuple(Y.names[k] for k in no_effect),
        Y.names,
    )


def _at_random(system: AbstractSystem, seed: int) -> Regressor:
    """The regressor at random states of a tree, more than there are parameters."""
    try:
        require_system(system)
    except ModelError as error:
        raise ModelError(f"base_parameters: source: {error}") from error
    if row_names(system):
        raise ModelError(
            "base_parameters: a system with constraints needs a regressor at states that satisfy "
            "them, as source"
        )
    rng = np.random.default_rng(seed)
    n = 20 + 10 * max(1, -(-2 * system.mechanism.n_bodies // max(system.nv, 1)))
    q, v, vdot = rng.uniform(-np.pi, np.pi, (3, n, system.nv))
    start = assemble(system).q
    coordinates = [system.retract(start, jnp.asarray(dq)) for dq in q]
    return regressor(system, jnp.zeros(()), jnp.stack(coordinates), v, vdot)


def _independent(rows: Float[np.ndarray, "m p"]) -> tuple[list[int], np.ndarray, list[int]]:
    """Independent columns, the factors of the others in them, and columns without effect."""
    m, p = rows.shape
    sizes = np.linalg.norm(rows, axis=0)
    tolerance = SAFETY * np.finfo(float).eps * np.sqrt(max(m, p))
    no_effect = np.flatnonzero(sizes <= tolerance * max(sizes.max(initial=0.0), 1e-300))
    scaled = rows / np.where(sizes > 0, sizes, 1.0)
    R: Any = np.linalg.qr(scaled, mode="r")
    kept: list[int] = []
    basis = np.zeros((len(R), 0))
    for k in range(p):
        if k in no_effect:
            continue
        left = R[:, k]
        for _ in range(2):  # Once more, against rounding.
            left = left - basis @ (basis.T @ left)
        size = np.linalg.norm(left)
        if size > tolerance:
            kept.append(k)
            basis = np.concatenate([basis, (left / size)[:, None]], axis=1)
    others = [k for k in range(p) if k not in kept and k not in set(no_effect)]
    K = np.linalg.lstsq(R[:, kept], R[:, others], rcond=None)[0]
    K = K * sizes[others] / sizes[kept][:, None]
    # Factors below the rounding of the dependent column by the size of the other are none.
    noise = np.sqrt(tolerance) * sizes[others] / sizes[kept][:, None]
    return kept, np.where(np.abs(K) > noise, K, 0.0), [int(k) for k in no_effect]


def _in_words(row: Float[np.ndarray, "p"], names: tuple[str, ...], first: int) -> str:
    """A combination as text, its own parameter first."""
    text = names[first]
    for k in np.flatnonzero(row):
        if k == first:
            continue
        factor = f"{abs(row[k]):.4g}"
        sign = "-" if row[k] < 0 else "+"
        text += f" {sign} {names[k]}" if factor == "1" else f" {sign} {factor} {names[k]}"
    return text
