"""Derivatives of accelerations by coordinates and velocities, of one state and of a batch."""

import jax
import jax.numpy as jnp
import pinocchio as pin

import jaxmbd as mbd
from benchmarks.peers import robots
from benchmarks.peers.protocol import Contender, Options, Result, Target, compiled, race, ratio
from benchmarks.peers.single import agreed
from benchmarks.peers.steps import called_in_pinocchio
from jaxmbd.system.abstract import AbstractSystem

TITLE = "Derivatives of accelerations"
NAMES = ("UR5", "Talos")
ALONE, IN_BATCH = 2.0, 0.5  # Times Pinocchio's.


def one_after_another(system: AbstractSystem, state: mbd.State, n: int) -> jax.Array:
    """Velocities after `n` evaluations, each of which depends on the one before."""

    def one(v: jax.Array, _: None) -> tuple[jax.Array, None]:
        by_q, by_v = mbd.acceleration_derivatives(system, 0.0, mbd.State(state.q, v))
        return v + 1e-12 * jnp.sum(by_q + by_v, axis=1), None

    return jax.lax.scan(one, state.v, None, length=n)[0]


def in_pinocchio(robot: robots.Robot, states: mbd.State, n: int) -> Contender:
    """`computeABADerivatives`, each a call from Python."""
    return called_in_pinocchio("Pinocchio", pin.computeABADerivatives, robot, states, n)


def run(options: Options) -> Result:
    """A fixed base and a floating one."""
    n, size = options.sized(200, 10), options.sized(512, 64)
    entries, targets = [], []
    for name in NAMES:
        robot = agreed(name)
        states = robots.random_states(robot, size)
        first = jax.tree.map(lambda x: x[0], states)
        alone = compiled(lambda s, x: one_after_another(s, x, n), robot.system, first)
        batch = compiled(
            jax.vmap(lambda s, x: mbd.acceleration_derivatives(s, 0.0, x), (None, 0)),
            robot.system,
            states,
        )
        found = race(
            TITLE,
            {"robot": name, "batch": size},
            [
                alone.contender("jaxmbd, one state", robot.system, first, work=n, settings={}),
                batch.contender("jaxmbd, batch", robot.system, states, work=size, settings={}),
                in_pinocchio(robot, states, n),
            ],
            options.repeats,
        )
        entries += found
        for own, wanted in (("jaxmbd, one state", ALONE), ("jaxmbd, batch", IN_BATCH)):
            slower = ratio(found, own, "Pinocchio")
            what = f"{name}, derivatives, {own.split(', ')[1]}, times Pinocchio's"
            targets.append(Target(what, slower, "≤", wanted))
    about = (
        f"∂v̇/∂q and ∂v̇/∂v by `acceleration_derivatives`, of one state in a loop of {n}, and of a "
        f"batch of {size} by `vmap`; Pinocchio's `computeABADerivatives` on one thread."
    )
    return Result(TITLE, about, "evaluation", entries, targets, {})
