"""Motions that are prescribed, so that tests of drawings need not integrate anything."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, forces, inertia, joints

Y = (0.0, 1.0, 0.0)


def motion(
    model: mbd.Model,
    ts: Sequence[float],
    values: Callable[[float], Mapping[str, Any]] | None = None,
    formulation: Any = None,
) -> mbd.Solution:
    """Joint values as functions of time, their rates by finite differences; at rest without any."""
    system = mbd.formulate(model, formulation or mbd.JointCoordinates())
    step, states = 1e-5, []
    for t in ts:
        if values is None:
            states.append(mbd.assemble(system))
            continue
        now, before, after = values(t), values(t - step), values(t + step)
        rates = {k: (np.asarray(after[k]) - np.asarray(before[k])) / (2 * step) for k in now}
        states.append(mbd.assemble(system, now, rates))
    return solution(system, jnp.asarray(ts), jax.tree.map(lambda *x: jnp.stack(x), *states))


def solution(system: Any, ts: jax.Array, states: mbd.State) -> mbd.Solution:
    """A solution of given states."""
    raw = diffrax.Solution(
        t0=ts[0],
        t1=ts[-1],
        ts=ts,
        ys=states,
        interpolation=None,
        stats={},
        result=diffrax.RESULTS.successful,
        solver_state=None,
        controller_state=None,
        made_jump=None,
        event_mask=None,
    )
    return mbd.Solution.of(system, raw)


def crane() -> mbd.Model:
    """A cart on a rail, a pendulum below it, a spring between the cart and the ground."""
    return mbd.Model(
        bodies={
            "cart": inertia.box(2.0, (0.4, 0.2, 0.1)),
            "rod": inertia.shifted(inertia.rod(1.0, 0.8, axis=(0, 0, 1)), (0, 0, -0.4)),
        },
        joints={
            "rail": joints.Prismatic(Frame("ground", (0, 0, 1)), "cart", axis=(1, 0, 0)),
            "hinge": joints.Revolute("cart", "rod", axis=Y),
        },
        forces={
            "gravity": forces.Gravity(),
            "spring": forces.SpringDamper(Frame("ground", (-1, 0, 1)), "cart", 20.0, 0.0, 0.7),
        },
        frames={"tip": Frame("rod", (0, 0, -0.8))},
    )


def swinging(t: float) -> dict[str, float]:
    """How the crane moves."""
    return {"rail": 0.3 * np.sin(2 * t), "hinge": 1.2 * np.cos(3 * t)}
