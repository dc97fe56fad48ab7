"""An air compressor with closed valves: a slider-crank whose crank turns at constant speed.

    python examples/slider_crank.py [--html PAGE] [--png PICTURE]

The connecting rod has a ball at the crank and a cross joint at the piston, so that nothing is
constrained twice and the crank's axis may have any direction. The air above the piston is a force
of its own kind. Printed are the piston's motion beside its closed form, the torque that the motor
has to give for it, and how hard the piston leans on the cylinder.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints
from jaxmbd.lie import so3
from jaxmbd.model.frame import JointReference, as_joint_reference

jax.config.update("jax_enable_x64", True)

SPEED = 1500 * 2 * np.pi / 60  # Of the crank [rad/s].
CRANK, ROD, OFFSET, BORE = 0.03, 0.12, 0.004, 0.08  # Lengths [m].
PRESSURE, EXPONENT = 1.0e5, 1.3  # Of the air outside [Pa]; of polytropic compression.
FRICTION = 30.0  # Of the piston [N s/m].


class Air(forces.AbstractJointForce):
    """Air that a piston of an `area` [m²] shuts in: p = p₀ ((head - bottom) / (head - q))ⁿ.

    `head` and `bottom` are values of the piston's coordinate q [m]: at the cylinder's end, and
    where the pressure is p₀, which is that behind the piston too.
    """

    joint: JointReference = eqx.field(converter=as_joint_reference)
    area: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    head: Float[Array, ""] = eqx.field(converter=jnp.asarray)
    bottom: Float[Array, ""] = eqx.field(converter=jnp.asarray)

    def force(self, t, q, v):
        compression = (self.head - self.bottom) / (self.head - q)
        return PRESSURE * self.area * (1.0 - compression**EXPONENT)

    def potential(self, t, q):
        height, left = self.head - self.bottom, self.head - q
        work = left * (height / left) ** EXPONENT / (EXPONENT - 1.0) - q
        return PRESSURE * self.area * jnp.sum(work)


def model(crank=CRANK, rod=ROD, offset=OFFSET, axis=(0.0, 1.0, 0.0), mass=0.5):
    """The crank turns about `axis` at the origin; the piston, of `mass` [kg], moves along z.

    Lengths of `crank` and `rod`, and the `offset` of the cylinder along x, are in m.
    """
    along = [jnp.zeros(3).at[2].set(length) for length in (crank, rod)]
    shaft = mbd.inertia.rod(0.6, rod, axis=(0, 0, 1), radius=0.01)
    return mbd.Model(
        bodies={
            "crank": mbd.RigidBody(2.0, [0.001, 0.0015, 0.001]),  # Balanced by itself.
            "rod": mbd.inertia.shifted(shaft, 0.4 * along[1]),
            "piston": mbd.inertia.cylinder(mass, 0.5 * BORE, 0.06),
        },
        joints={
            "main bearing": joints.Revolute(mbd.ground, "crank", axis=axis),
            "crank pin": joints.Spherical(Frame("crank", along[0]), "rod"),
            "piston pin": joints.Universal(Frame("rod", along[1]), "piston"),
            "guide": joints.Prismatic(Frame("ground", jnp.zeros(3).at[0].set(offset)), "piston"),
        },
        forces={
            "gravity": forces.Gravity(),
            "air": Air("guide", np.pi / 4 * BORE**2, 1.25 * crank + rod, rod - crank),
            "oil": forces.ViscousFriction("guide", FRICTION),
        },
        drivers={"motor": joints.Driver("main bearing", mbd.signals.Polynomial([0.0, SPEED]))},
    )


def height(t, crank=CRANK, rod=ROD, offset=OFFSET, axis=(0.0, 1.0, 0.0)):
    """Closed form of the piston's coordinate [m] at a time [s]."""
    axis, angle = jnp.asarray(axis), jnp.asarray(SPEED * t)
    pin = so3.about(axis / jnp.linalg.norm(axis), angle) @ jnp.array([0.0, 0.0, crank])
    return pin[2] + jnp.sqrt(rod**2 - (pin[0] - offset) ** 2 - pin[1] ** 2)


@eqx.filter_jit
def look(system, ts, states):
    """Torque of the motor, push of the cylinder along x, and the piston's closed form in time."""

    def at(t, state):
        push = mbd.reactions(system, t, state)["guide"][0]
        exact = jax.jvp(height, (t,), (jnp.ones_like(t),))
        return mbd.driving_forces(system, t, state)["motor"], push, *exact

    return jax.vmap(at)(ts, states)


def plot(ts, torque, air, push):
    """Torque, and forces on the piston, over the angle of the crank."""
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2)
    angle = np.degrees(SPEED * ts)
    left.plot(angle, torque, color="tab:red")
    left.set_ylabel("torque of the motor [N m]")
    right.plot(angle, air / 1e3, label="air")
    right.plot(angle, push / 1e3, label="wall of the cylinder")
    right.set_ylabel("force on the piston [kN]")
    right.legend(frameon=False)
    for axis in (left, right):
        axis.set(xlabel="angle of the crank [°]", xticks=range(0, 361, 90))
        axis.grid(alpha=0.3)
    return figure


def main(html=None, png=None):
    """One turn of the crank."""
    compressor = model()
    system = mbd.formulate(compressor, mbd.JointCoordinates())
    ts = np.linspace(0.0, 2 * np.pi / SPEED, 181)
    motion = mbd.kinematics(system, ts, {"guide": height(0.0)})
    piston = motion.joints["guide"]
    torque, push, q, v = look(system, motion.ts, motion.states)
    print(f"piston: {piston.q.min():.4f} to {piston.q.max():.4f} m, up to {piston.v.max():.2f} m/s")
    off = [float(jnp.abs(x - y).max()) for x, y in ((piston.q, q), (piston.v, v))]
    print(f"difference from the closed form: {off[0]:.0e} m and {off[1]:.0e} m/s")
    mean, lost = jnp.mean(torque[:-1]), jnp.mean(FRICTION * piston.v[:-1] ** 2)
    print(f"torque of the motor: {torque.min():.1f} to {torque.max():.1f} N m, mean {mean:.3f} N m")
    print(f"mean power of the motor: {mean * SPEED:.3f} W, of friction: {lost:.3f} W")
    print(f"largest force on the wall of the cylinder: {jnp.abs(push).max():.0f} N")
    if png is not None:
        air = compressor.forces["air"].force(motion.ts, piston.q, piston.v)
        plot(ts, torque, air, push).savefig(png, dpi=120)
    if html is not None:
        motion.animate(html, speed=0.02, trace="crank pin.successor", view=(0.4, -1.0, 0.3))
    return motion


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation")
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
