"""Rest and linearization in every formulation: methods, formulations and derivatives compared.

    python -m benchmarks.rest_table [--model "four-bar"]

Prints Markdown, one line for each model and formulation:

- the positions by drainage beside those by Newton's method, and those beside joint coordinates;
- the eigenvalues of the linear equations beside those of joint coordinates;
- derivatives of positions, reactions and eigenvalues by length, stiffness, mass and tilt of axes
  beside central differences of fourth order, by the value of the difference or 1.
"""

import argparse
import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # Before BLAS loads: threads fight over cores.
os.environ.setdefault("JAX_ENABLE_X64", "1")  # Before modules make arrays.

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
from benchmarks.machine import machine
from jaxmbd import Frame, forces, joints
from jaxmbd.system.abstract import AbstractSystem

FORMULATIONS = {
    "joint": mbd.JointCoordinates(),
    "maximal": mbd.MaximalCoordinates(),
    "natural": mbd.NaturalCoordinates(rigid=True),
    "points": mbd.PointCoordinates(),
}
PARAMETERS = ("length", "stiffness", "mass", "tilt")
NUMBERS = np.array([0.5, 20.0, 1.3, 0.2])  # [m], [N m], [kg], [rad]
# Of the differences, as parts of each number. Eigenvalues change little with the tilt.
STEPS = np.array([1e-3, 1e-3, 1e-3, 1e-2])
Y = jnp.array([0.0, 1.0, 0.0])


def tilted(angle: Any) -> Float[Array, "3 3"]:
    """A rotation about x."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    one, zero = jnp.ones_like(c), jnp.zeros_like(c)
    return jnp.array([[one, zero, zero], [zero, c, -s], [zero, s, c]])


def rod(mass: Any, length: Any, R: Float[Array, "3 3"]) -> tuple[mbd.RigidBody, Any, Any]:
    """A uniform rod, and its ends in its own frame."""
    end = R @ jnp.array([0.5, 0.0, 0.0]) * length
    return mbd.inertia.rod(mass, length), -end, end


def open_chain(numbers: Float[Array, "4"]) -> mbd.Model:
    """Three rods on hinges with springs; the axis of the second hinge is tilted."""
    length, stiffness, mass, tilt = numbers
    axes = {"a": Y, "b": tilted(tilt) @ Y, "c": Y}
    bodies, links, acting, below = {}, {}, {"gravity": forces.Gravity()}, mbd.ground
    for k, (name, axis) in enumerate(axes.items()):
        bodies[name], tail, head = rod(mass, length, jnp.eye(3))
        links[f"hinge {name}"] = joints.Revolute(below, Frame(name, tail), axis=axis)
        acting[f"spring {name}"] = forces.TorsionalSpringDamper(
            f"hinge {name}", stiffness, rest=0.4 - 0.3 * k
        )
        below = Frame(name, head)
    return mbd.Model(bodies, links, acting)


def four_bar(numbers: Float[Array, "4"], redundant: bool = False) -> mbd.Model:
    """A four-bar with a spring on the crank.

    Four parallel hinges are redundant; the plane of the mechanism is tilted with their axes.
    Otherwise the pins of the coupler are a ball and a cross joint, and only the axis of the crank
    is tilted.
    """
    length, stiffness, mass, tilt = numbers
    R = tilted(tilt) if redundant else jnp.eye(3)
    axis = tilted(tilt) @ Y
    bodies, ends = {}, {}
    for name, size in (("crank", length), ("coupler", 1.3), ("rocker", 0.9)):
        bodies[name], *ends[name] = rod(mass, size, R)
    crank, coupler, rocker = (
        [Frame(name, x) for x in ends[name]] for name in ("crank", "coupler", "rocker")
    )
    right = Frame("ground", R @ jnp.array([1.4, 0.0, 0.0]))
    links = {
        "left": joints.Revolute(mbd.ground, crank[0], axis=axis),
        "right": joints.Revolute(right, rocker[0], axis=axis if redundant else Y),
        "upper pin": joints.Revolute(rocker[1], coupler[1], axis=axis)
        if redundant
        else joints.Spherical(rocker[1], coupler[1]),
        "crank pin": joints.Revolute(crank[1], coupler[0], axis=axis)
        if redundant
        else joints.Universal(crank[1], coupler[0]),
    }
    acting = {
        "gravity": forces.Gravity(),
        "spring": forces.TorsionalSpringDamper("left", stiffness, rest=-1.0),
    }
    return mbd.Model(bodies, links, acting)


class Case(NamedTuple):
    """A model by its numbers, a first guess of joint values, and bodies that are followed."""

    model: Callable[[Float[Array, "4"]], mbd.Model]
    guess: dict[str, Any]
    bodies: tuple[str, ...]
    reactions: tuple[str, ...]


CASES = {
    "open chain": Case(open_chain, {}, ("a", "c"), ("hinge a", "hinge c")),
    "four-bar": Case(four_bar, {"left": 0.3}, ("crank", "rocker"), ("left", "right")),
    "redundant four-bar": Case(
        lambda x: four_bar(x, redundant=True), {"left": 0.3}, ("crank", "rocker"), ("left", "right")
    ),
}


def first_state(case: Case, system: AbstractSystem) -> mbd.State:
    """An assembled state in any formulation, the same mechanism in the same position."""
    tree = mbd.formulate(case.model(jnp.asarray(NUMBERS)), mbd.JointCoordinates())
    state = mbd.assemble(tree, case.guess)
    values = {name: x.q for name, x in mbd.joint_states(tree, 0.0, state).items()}
    return mbd.assemble(system, values)


class Rest(NamedTuple):
    """Position of the bodies, reactions, and the lowest eigenvalue at rest."""

    position: Float[Array, "n"]
    reaction: Float[Array, "m"]
    eigenvalue: Float[Array, "1"]


def looked(case: Case, system: AbstractSystem, found: Any) -> Rest:
    """Position, reactions and first eigenvalue that the table compares."""
    frames = system.frames(0.0, found.state.q)
    position = jnp.concatenate([frames[name].p for name in case.bodies])
    reaction = jnp.concatenate([found.reactions[name] for name in case.reactions])
    return Rest(position, reaction, found.eigenvalues[:1])


class Found(NamedTuple):
    """Results of one model in one formulation."""

    rest: Rest
    drained: Rest
    slow: Float[np.ndarray, "k"]  # Sizes of the eigenvalues of the linear equations.
    slopes: dict[str, float]  # Errors of derivatives, by quantity and parameter.


@cache
def results(name: str, formulation: str) -> Found:
    """Rest by both methods, linear equations, and errors of derivatives."""
    case, way = CASES[name], FORMULATIONS[formulation]
    numbers = jnp.asarray(NUMBERS)
    system = mbd.formulate(case.model(numbers), way)
    start = first_state(case, system)

    def rest(numbers: Float[Array, "4"]) -> tuple[Rest, mbd.State]:
        system = mbd.formulate(case.model(numbers), way)
        found = mbd.equilibrium(system, start, method="newton")
        return looked(case, system, found), found.state

    # One program has values and derivatives.
    both = eqx.filter_jit(lambda x, dx: jax.jvp(rest, (x,), (dx,)))
    errors: dict[str, float] = {}
    for k, parameter in enumerate(PARAMETERS):
        errors |= _slope_errors(lambda x, dx: [y[0] for y in both(x, dx)], k, parameter)
    (found, state), _ = both(numbers, jnp.zeros_like(numbers))
    drained = mbd.equilibrium(system, start, method="drainage")
    slow = np.abs(np.asarray(mbd.linearize(system, 0.0, state).eigen().values))
    return Found(found, looked(case, system, drained), np.sort(slow), errors)


def _slope_errors(
    both: Callable[[Array, Array], list[Rest]], k: int, parameter: str
) -> dict[str, float]:
    """Errors of derivatives by one parameter."""
    h, numbers = STEPS[k] * NUMBERS[k], jnp.asarray(NUMBERS)
    unit = jnp.zeros_like(numbers).at[k].set(1.0)
    found = both(numbers, unit)[1]
    near = {s: both(numbers + s * h * unit, unit)[0] for s in (-2, -1, 1, 2)}
    errors: dict[str, float] = {}
    for quantity in Rest._fields:
        at = {s: np.asarray(getattr(x, quantity)) for s, x in near.items()}
        expected = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * h)
        error = np.abs(np.asarray(getattr(found, quantity)) - expected)
        error = error / np.maximum(1.0, np.abs(expected))
        errors[f"{quantity} by {parameter}"] = float(error.max())
    return errors


def measured(name: str, formulation: str) -> dict[str, float]:
    """Errors of one line of the table."""
    reference = results(name, "joint")
    found = results(name, formulation)
    errors = {
        "drainage": np.abs(found.drained.position - found.rest.position).max(),
        "position": np.abs(found.rest.position - reference.rest.position).max(),
        "linear": np.abs(found.slow / reference.slow - 1.0).max(),
    }
    return {name: float(x) for name, x in errors.items()} | found.slopes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=list(CASES), help="one of the models")
    only = parser.parse_args().model
    print(f"{machine()}\n")
    print("| | formulation | drainage | position [m] | linear equations | ", end="")
    print("d position | d reaction | d eigenvalue |")
    print("|---|---|---|---|---|---|---|---|")
    for name in CASES if only is None else [only]:
        for formulation in FORMULATIONS:
            errors = measured(name, formulation)
            worst = [
                max(x for key, x in errors.items() if key.startswith(f"{quantity} by"))
                for quantity in Rest._fields
            ]
            cells = [errors[key] for key in ("drainage", "position", "linear")] + worst
            line = " | ".join(f"{x:.0e}" for x in cells)
            print(f"| {name} | {formulation} | {line} |", flush=True)


if __name__ == "__main__":
    main()
