"""Mechanisms with loops, in the xy plane: as many constraints as they need, and no more.

All joints are hinges about z, but for one in each loop, a point on a line along z: hinges alone
would hold the plane several times, which programs without a remedy for that cannot solve.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from examples import platform_3rrr
from jaxmbd import Frame
from jaxmbd.joints import PointOnLine, Revolute
from jaxmbd.system.abstract import AbstractSystem

GRAVITY = (0.0, -9.81, 0.0)


class Mechanism(NamedTuple):
    """A model, and the arguments of `assemble` that say where it starts."""

    model: mbd.Model
    guess: Mapping[str, float]
    rates: Mapping[str, float]
    hold: Sequence[str] = ()

    def start(self, system: AbstractSystem) -> mbd.State:
        """The state that it starts from."""
        return mbd.assemble(system, self.guess, self.rates, hold=self.hold)


def rod(name: str, length: float) -> tuple[Frame, Frame]:
    """The ends of a rod about its centre."""
    return Frame(name, [-0.5 * length, 0.0, 0.0]), Frame(name, [0.5 * length, 0.0, 0.0])


def four_bar() -> Mechanism:
    """Crank of 0.2 m at 20 rad/s, coupler of 0.5 m, rocker of 0.45 m, frame of 0.6 m."""
    lengths = {"crank": 0.2, "coupler": 0.5, "rocker": 0.45}
    ends = {name: rod(name, length) for name, length in lengths.items()}
    joints = {
        "A": Revolute(mbd.ground, ends["crank"][0]),
        "B": Revolute(ends["crank"][1], ends["coupler"][0]),
        "C": PointOnLine(ends["coupler"][1], ends["rocker"][1]),
        "D": Revolute(Frame("ground", [0.6, 0.0, 0.0]), ends["rocker"][0]),
    }
    bodies = {name: mbd.inertia.box(1.0, [length, 0.03, 0.03]) for name, length in lengths.items()}
    model = mbd.Model(bodies, joints, {"gravity": mbd.forces.Gravity(GRAVITY)})
    return Mechanism(model, {"A": 1.0, "B": -1.0, "D": 1.0}, {"A": 20.0}, ["A"])


def platform() -> Mechanism:
    """The 3-RRR platform of the example, from rest under its weight."""
    model = platform_3rrr.model()
    cut = {
        name: PointOnLine(model.joints[name].predecessor, model.joints[name].successor)
        for name in ("ankle2", "ankle3")
    }
    weight = {"gravity": mbd.forces.Gravity(GRAVITY), "push": None}
    start = {k: float(x) for k, x in platform_3rrr.posture(jnp.zeros(3)).items()}
    return Mechanism(model.with_(joints=cut, forces=weight), start, {})


def ladder(n: int) -> Mechanism:
    """`n` four-bars in a row: posts of 1 m on the ground, 1 m apart, and couplers between them.

    It starts upright, the tops of the posts moving at 1 m/s, and has one degree of freedom. Rods
    are of 1 kg.
    """
    posts, couplers = [f"post{i:03d}" for i in range(n + 1)], [f"bar{i:03d}" for i in range(n)]
    ends = {name: rod(name, 1.0) for name in (*posts, *couplers)}
    joints = {
        f"foot{i:03d}": Revolute(Frame("ground", [float(i), 0.0, 0.0]), ends[post][0])
        for i, post in enumerate(posts)
    }
    for i, bar in enumerate(couplers):
        joints[f"left{i:03d}"] = Revolute(ends[posts[i]][1], ends[bar][0])
        joints[f"right{i:03d}"] = PointOnLine(ends[bar][1], ends[posts[i + 1]][1])
    bodies = dict.fromkeys(ends, mbd.inertia.rod(1.0, 1.0, radius=0.02))
    model = mbd.Model(bodies, joints, {"gravity": mbd.forces.Gravity(GRAVITY)})
    feet = {f"foot{i:03d}": 0.5 * np.pi for i in range(n + 1)}
    lefts = {f"left{i:03d}": -0.5 * np.pi for i in range(n)}
    speeds = dict.fromkeys(feet, -1.0) | dict.fromkeys(lefts, 1.0)
    return Mechanism(model, feet | lefts, speeds)
