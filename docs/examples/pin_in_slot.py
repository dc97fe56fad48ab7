"""A pin that slides along the x axis of a slot and turns about its z axis."""

from typing import ClassVar

import jax
import jax.numpy as jnp

import jaxmbd as mbd
from jaxmbd.extend import AbstractJoint, AbstractRotation, AxisRotation


class PinInSlot(AbstractJoint):
    """Translation along the first vector of the basis, rotation about the third.

    The coordinates are `[displacement, angle]` [m, rad].
    """

    predecessor: mbd.Frame
    successor: mbd.Frame
    translation: ClassVar[tuple[int, ...]] = (0,)
    rotation: ClassVar[AbstractRotation] = AxisRotation()


def checks():
    """What a test of it looks like."""
    slot = PinInSlot(mbd.Frame("ground", [0.1, 0, 0]), mbd.Frame("block"))
    mbd.testing.check_joint(slot, jax.random.key(0))

    model = mbd.Model({"block": mbd.inertia.box(1.0, [0.1, 0.2, 0.3])}, {"slot": slot})
    system = mbd.formulate(model, mbd.MaximalCoordinates())
    state = mbd.assemble(system, {"slot": [0.2, 0.5]})
    assert jnp.allclose(mbd.joint_states(system, 0.0, state)["slot"].q, jnp.array([0.2, 0.5]))
