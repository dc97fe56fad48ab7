"""Random mechanisms in motion, and what is seen of them."""

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from tests.properties import looking
from tests.properties.sketches import Units, fill_in
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
    "natural": mbd.NaturalCoordinates(rigid=True),
    "point": mbd.PointCoordinates(),
    "transformed": mbd.VelocityTransformation(mbd.MaximalCoordinates()),
}


# Units of length, mass and time: those of `SAME_MATERIAL` leave the speed of sound as it is.
MILLI, MICRO = 2.0**-10, 2.0**-20
UNITS = {
    "SI units": Units(),
    "millimetres": Units(MILLI, MILLI**3, MILLI),
    "micrometres": Units(MICRO, MICRO**3, MICRO),
    "millimetres and seconds": Units(MILLI),
    "micrometres and seconds": Units(MICRO),
}
SAME_MATERIAL = ("SI units", "millimetres", "micrometres")


@dataclass(frozen=True)
class Draw:
    """A model in motion.

    Coordinates of joints by name and elastic ones, and velocities in `JointCoordinates`.
    """

    model: mbd.Model
    values: dict[str, np.ndarray]
    elastic: dict[str, np.ndarray]
    v: np.ndarray
    in_joint_coordinates: Any  # The system, in float64.
    units: Units

    def system(self, formulation="joint", dtype="float64"):
        """The system in one float type, and its state."""

        def cast(x):
            return x.astype(dtype) if eqx.is_inexact_array(x) else x

        joint = self.in_joint_coordinates
        if (formulation, dtype) == ("joint", "float64"):
            system = joint
        else:
            system = mbd.formulate(jax.tree.map(cast, self.model), FORMULATIONS[formulation])
        values = looking.joint_values(system, self.values)
        eta, eta_dot = looking.elastic_values(system, self.elastic), self.v[joint.layout.nv :]
        rates = looking.tree_rates(joint, jnp.asarray(self.v))
        return system, looking.placed(system, values, rates, (eta, jnp.asarray(eta_dot)))

    def look(self, formulation="joint", dtype="float64", change=0.0):
        """What is seen of the draw, in SI units, with velocities changed."""
        system, state = self.system(formulation, dtype)
        state = mbd.State(state.q, state.v + jnp.asarray(change, dtype), state.z)
        seen = jax.tree.map(np.asarray, looking.look(system, state))
        twists = self.units.twists(seen["twists"])
        rates = self.units.twists(seen["twist rates"]) * self.units.time
        return seen | {"speed": np.max(np.abs(twists)), "twist rates": rates}


def seed_of(name, masses, k):
    return list(TEMPLATES).index(name), list(MASSES).index(masses), k


def draw(name, masses, k, disagreement=0.0, units="SI units", at_zero=False):
    """Draw number k of a template, with consistent velocities.

    Drivers have the joints move as they would without them, and the last one `disagreement` more
    [rad/s²]. `at_zero`: all coordinates and velocities are zero.
    """
    template, seed = TEMPLATES[name], seed_of(name, masses, k)

    def filled(sketch, drives=None, units="SI units"):
        rng = np.random.default_rng((*seed, 1))
        filled = fill_in(sketch, rng, MASSES[masses], drives, UNITS[units], at_zero)
        return *filled, mbd.formulate(filled[0], mbd.JointCoordinates())

    *parts, system = filled(template.sketch(seed, driven=False))
    size = np.asarray(system.sizes(jnp.asarray(1.0))[1])
    v = size * np.random.default_rng((*seed, 2)).normal(size=system.nv)
    found = Draw(*parts, v, system, Units())
    G, _ = map(np.asarray, looking.rows(*_q(found)))
    if len(G):
        _, sigma, directions = np.linalg.svd(G * size)
        held = directions[: len(sigma)][sigma > 1e-9]
        for _ in range(2):  # The second time from rounding errors, where little is left of v.
            v = v - size * (held.T @ (held @ (v / size)))
    found = Draw(*parts, 0.0 * v if at_zero else v, system, Units())
    if not template.driven and units == "SI units":
        return found
    drives = _drives(found, template.driven, disagreement)
    *parts, system = filled(template.sketch(seed), drives, units)
    scale = np.asarray(system.sizes(jnp.asarray(UNITS[units].length))[1]) / UNITS[units].time
    return Draw(*parts, scale * found.v / size, system, UNITS[units])


def _q(draw):
    system, state = draw.system()
    return system, state.q


def _drives(draw, names, disagreement):
    system, state = draw.system()
    if not names:
        return {}
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


def along_constraints(seen, change):
    """The nearest change of velocities, in the kinetic metric, that satisfies G change = 0."""
    if not len(seen["G"]):
        return change
    L = np.linalg.cholesky(seen["mass"])
    rows = np.linalg.solve(L, seen["G"].T) / seen["length"]
    normal, sigma, _ = np.linalg.svd(rows, full_matrices=False)
    normal = normal[:, sigma > 1e-9 * sigma[0]]
    y = L.T @ change
    return np.linalg.solve(L.T, y - normal @ (normal.T @ y))
