"""Reverse-mode gradients of rollouts beside their own forward runs."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import jaxmbd as mbd
from benchmarks.peers import chains, robots, steps
from benchmarks.peers.protocol import Options, Result, Target, compiled, race, ratio
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Gradients of rollouts"
AT_MOST, OF_IMPLICIT = 4.0, 3.0  # Times the forward run.
LINKS = 10


class Case(NamedTuple):
    """A system, its start, and its integrator: semi-implicit Euler where none is given."""

    system: AbstractSystem
    state: mbd.State
    integrator: Any = None

    def end(self, state: mbd.State, n: int) -> mbd.State:
        """The state after `n` steps."""
        if self.integrator is None:
            states = steps.semi_implicit(self.system, state, n)
            return jax.tree.map(lambda x: x[-1], states)
        states = mbd.rollout(self.system, state, chains.STEP, n, self.integrator)
        return jax.tree.map(lambda x: x[-1], states)


def cases() -> dict[str, Case]:
    """Two robots, and a chain in two formulations."""
    found = {}
    for name in ("UR5", "Go2"):
        robot = robots.load(name)
        first = jax.tree.map(lambda x: x[0], robots.random_states(robot, 1))
        found[f"{name}, semi-implicit Euler"] = Case(robot.system, first)
    model, guess = chains.chain(LINKS), {"hinge0": chains.ANGLE}
    ways = {
        "joint coordinates, Tsit5": (mbd.JointCoordinates(), mbd.ExplicitRK()),
        "maximal coordinates, GeneralizedAlpha": (mbd.MaximalCoordinates(), mbd.GeneralizedAlpha()),
    }
    for name, (formulation, integrator) in ways.items():
        system = mbd.formulate(model, formulation)
        state = mbd.assemble(system, guess)
        found[f"{LINKS} links, {name}"] = Case(system, state, integrator)
    return found


def run(options: Options) -> Result:
    """Every case: the sum of squares of the last coordinates, by all initial velocities."""
    n = options.sized(200, 10)
    entries, targets = [], []
    for name, case in cases().items():

        def loss(v: Float[Array, "nv"], case: Case) -> Float[Array, ""]:
            return jnp.sum(case.end(mbd.State(case.state.q, v), n).q ** 2)

        ways = {"forward": loss, "value and gradient": jax.value_and_grad(loss)}
        found = race(
            TITLE,
            {"rollout": name, "steps a call": n},
            [
                compiled(function, case.state.v, case).contender(
                    way, case.state.v, case, work=n, settings={}
                )
                for way, function in ways.items()
            ],
            options.repeats,
        )
        entries += found
        cost = ratio(found, "value and gradient", "forward")
        most = OF_IMPLICIT if "Generalized" in name else AT_MOST
        targets.append(Target(f"{name}: gradient, times forward", cost, "≤", most))
    about = f"Rollouts of {n} steps of 1 ms, every step kept for the backward pass; float64."
    return Result(TITLE, about, "step", entries, targets, {})
