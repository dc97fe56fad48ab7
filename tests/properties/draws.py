"""Random mechanisms in motion, and what is seen of them."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from tests.properties import looking
from tests.properties.sketches import fill_in
from tests.properties.templates import TEMPLATES

# Decimal logarithms between which the masses of a mechanism lie [kg].
MASSES = {
    "ordinary": (-1, 1),
    "wide": (-3, 3),
    "light": (-6, -5),
    "heavy": (5, 6),
    "mixed": (-6, 6),
}
FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(),
    "point": mbd.PointCoordinates(),
    "transformed": mbd.VelocityTransformation(mbd.MaximalCoordinates()),
}


@dataclass(frozen=True)
class Draw:
    """A model in motion: coordinates of joints by name, and velocities in `JointCoordinates`."""

    model: mbd.Model
    values: dict[str, np.ndarray]
    rates: tuple[jax.Array, ...]
    v: np.ndarray
    in_joint_coordinates: Any  # The system, in float64.

    def system(self, formulation="joint", dtype="float64"):
        """The system in one float type, and its state."""

        def cast(x):
            return x.astype(dtype) if eqx.is_inexact_array(x) else x

        if (formulation, dtype) == ("joint", "float64"):
            system = self.in_joint_coordinates
        else:
            system = mbd.formulate(jax.tree.map(cast, self.model), FORMULATIONS[formulation])
        values = looking.joint_values(system, self.values)
        return system, looking.placed(system, values, self.rates)

    def look(self, formulation="joint", dtype="float64"):
        return jax.tree.map(np.asarray, looking.look(*self.system(formulation, dtype)))


def seed_of(name, masses, k):
    return list(TEMPLATES).index(name), list(MASSES).index(masses), k


def draw(name, masses, k, disagreement=0.0):
    """Draw number k of a template, with consistent velocities.

    Drivers have the joints move as they would without them, and the last one `disagreement` more
    [rad/s²].
    """
    template, seed = TEMPLATES[name], seed_of(name, masses, k)
    numbers = (*seed, 1)
    alone = template.sketch(seed, driven=False)
    model, values = fill_in(alone, np.random.default_rng(numbers), MASSES[masses])
    system = mbd.formulate(model, mbd.JointCoordinates())
    v = np.random.default_rng((*seed, 2)).normal(size=system.nv)
    free = Draw(model, values, looking.tree_rates(system, jnp.asarray(v)), v, system)
    G, _ = map(np.asarray, looking.rows(*_q(free)))
    if len(G):
        _, sigma, directions = np.linalg.svd(G)
        held = directions[: len(sigma)][sigma > 1e-9]
        v = v - held.T @ (held @ v)
    found = Draw(model, values, looking.tree_rates(system, jnp.asarray(v)), v, system)
    if not template.driven:
        return found
    drives = _drives(found, template.driven, disagreement)
    driven = template.sketch(seed)
    model, values = fill_in(driven, np.random.default_rng(numbers), MASSES[masses], drives)
    system = mbd.formulate(model, mbd.JointCoordinates())
    return Draw(model, values, found.rates, v, system)


def _q(draw):
    system, state = draw.system()
    return system, state.q


def _drives(draw, names, disagreement):
    system, state = draw.system()
    speeds, changes = looking.joint_motion(system, state)
    drives = {}
    for name in names:
        g, row = system.mechanism.find_joint(name)
        drives[name] = float(speeds[g][row, 0]), 0.5 * float(changes[g][row, 0])
    speed, half = drives[names[-1]]
    return drives | {names[-1]: (speed, half + 0.5 * disagreement)}


def condition(seen):
    """Condition number of accelerations, of what was seen of a formulation in float64.

    That of Lᵀ, where L Lᵀ is the mass matrix with its diagonal made one, times that of the
    constraints in its metric. In joint coordinates it belongs to the mechanism.
    """
    mass, G = seen["mass"], seen["G"]
    d = 1 / np.sqrt(np.diag(mass))
    eigenvalues = np.linalg.eigvalsh(mass * d * d[:, None])
    of_mass = np.sqrt(eigenvalues[-1] / eigenvalues[0]) if eigenvalues[0] > 0 else np.inf
    if not len(G):
        return of_mass
    if not np.isfinite(of_mass):
        return of_mass
    L = np.linalg.cholesky(mass * d * d[:, None])
    sigma = np.linalg.svd(np.linalg.solve(L, (G * d).T) / seen["length"], compute_uv=False)
    kept = sigma[sigma > 1e-9 * sigma[0]]
    return of_mass * kept[0] / kept[-1]
