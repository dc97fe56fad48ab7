"""Wheels that do not slip: a disc that rolls in circles, and a sleigh on one blade.

    python examples/rolling_disc.py [--html PAGE] [--png PLOT]

Both are nonholonomic: what they keep is a velocity, and they may get anywhere nevertheless. A
leaning disc rolls in a circle where its spin fits its lean and its turning rate; with a little more
spin it wobbles. Chaplygin's sleigh has its centre of mass ahead of its blade and ends up going
straight ahead, whatever it starts with. Printed is how far both are off their closed forms.
"""

import argparse

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import forces, joints

jax.config.update("jax_enable_x64", True)

GRAVITY = 9.81  # [m/s²]
LEAN, TURNING = np.radians(20.0), 1.5  # Of the disc from upright [rad], about the vertical [rad/s].
METHOD = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())


def model(radius=0.3, mass=2.0, thickness=0.01, normal=(0.0, 0.0, 1.0), com=(0.0, 0.0, 0.0)):
    """A disc about its y axis on a plane through the origin, with the `normal` of that.

    **Arguments:** `radius`, `thickness` and centre of mass `com` [m], `mass` [kg].
    """
    disc = mbd.inertia.shifted(mbd.inertia.cylinder(mass, radius, thickness, axis=(0, 1, 0)), com)
    return mbd.Model(
        bodies={"disc": disc},
        joints={"rim": joints.RollingDisc(mbd.ground, "disc", radius, normal=normal)},
        forces={"gravity": forces.Gravity([0, 0, -GRAVITY])},
    )


def circle(lean=LEAN, turning=TURNING, radius=0.3, thickness=0.01):
    """Spin w of a disc about its axis [rad/s] with which it rolls in a circle about the origin.

    Of the moment about the centre: with moments of inertia C along the axis and A across it, by
    the mass, and the `lean` λ from upright, (C + r²) Ω w cos λ = A Ω² sin λ cos λ - g r sin λ. The
    centre moves at the speed r w along a circle of radius r |w| / Ω.
    """
    C, A = radius**2 / 2, radius**2 / 4 + thickness**2 / 12
    moment = A * turning**2 * jnp.sin(lean) * jnp.cos(lean) - GRAVITY * radius * jnp.sin(lean)
    return moment / ((C + radius**2) * turning * jnp.cos(lean))


def on_circle(system, lean=LEAN, turning=TURNING, radius=0.3, more_spin=1.0):
    """The disc at the start of its circle, moving along x, with `more_spin` times its spin."""
    w = circle(lean, turning, radius)
    start = [0.0, -radius * w / turning, radius * jnp.cos(lean), lean, 0.0, 0.0]
    spin = more_spin * w
    rates = [radius * spin, 0.0, 0.0, 0.0, spin, turning * jnp.cos(lean)]
    return mbd.assemble(system, {"disc": jnp.stack(start)}, {"disc": jnp.stack(rates)})


def sleigh(ahead=0.2, mass=40.0, inertia=4.0):
    """A sleigh whose centre of mass is `ahead` of its blade [m]."""
    return mbd.Model(
        bodies={"sleigh": mbd.RigidBody(mass, [inertia, inertia, inertia], [ahead, 0.0, 0.0])},
        joints={
            "ice": joints.Planar(mbd.ground, "sleigh"),
            "blade": joints.KnifeEdge(mbd.ground, "sleigh"),
        },
    )


def sleigh_motion(t, spin, ahead=0.2, mass=40.0, inertia=4.0):
    """Speed along the blade [m/s] and angle [rad] after turning on the spot with `spin` [rad/s].

    v' = a w² and J w' = -m a v w with J = I + m a²: m v² + J w² stays, and v = V tanh(k t).
    """
    J = inertia + mass * ahead**2
    V, k = jnp.sqrt(J / mass) * spin, jnp.sqrt(mass / J) * ahead * spin
    return V * jnp.tanh(k * t), 2 * spin / k * jnp.arctan(jnp.tanh(0.5 * k * t))


@eqx.filter_jit
def contact(solution):
    """Force of the plane on the disc over time, along the axes of the world [N]."""

    def at(t, state):
        R = solution.system.frames(t, state.q)["disc"].R
        return R @ mbd.reactions(solution.system, t, state)["rim"][:3]

    return jax.vmap(at)(solution.ts, solution.states)


def plot(paths, sledge, spin):
    """Paths of centres of discs seen from above, speed and turning of the sleigh."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for label, p in paths.items():
        left.plot(p[:, 0], p[:, 1], label=label)
    left.set(xlabel="x [m]", ylabel="y [m]", aspect="equal", title="disc from above")
    ice = sledge.joints["ice"]
    right.plot(sledge.ts, jnp.hypot(ice.v[:, 0], ice.v[:, 1]), label="speed of the blade [m/s]")
    right.plot(sledge.ts, ice.v[:, 2], label="angular velocity [rad/s]")
    right.plot(sledge.ts, sleigh_motion(sledge.ts, spin)[0], "k:", label="closed form")
    right.set(xlabel="time [s]", title="sleigh")
    for axes in (left, right):
        axes.legend(frameon=False)
    return figure


def main(html=None, png=None, rounds=3, spin=3.0):
    """Rounds of a disc, the same time of one with a tenth more spin, and 3 s of a sleigh."""
    system, around = mbd.formulate(model(), mbd.JointCoordinates()), 2 * np.pi / TURNING
    options = {"t1": rounds * around, "dt": around / 200, "integrator": METHOD}
    steady = mbd.simulate(system, on_circle(system), **options)
    wobbling = mbd.simulate(system, on_circle(system, more_spin=1.1), **options)
    w, p, push = abs(float(circle())), steady.frames["disc"].p, contact(steady)
    print(f"a disc that leans by {np.degrees(LEAN):.0f}° and spins with {w:.4f} rad/s")
    print(f"rolls in a circle of {0.3 * w / TURNING:.4f} m radius in {around:.4f} s")
    print(
        f"distance from the start after {rounds} rounds: {float(jnp.abs(p[-1] - p[0]).max()):.0e} m"
    )
    wanted = 2.0 * jnp.array([0.3 * w * TURNING, GRAVITY])
    found = jnp.stack([jnp.hypot(push[:, 0], push[:, 1]), push[:, 2]], axis=1)
    off = float(jnp.abs(found - wanted[None]).max())
    print(f"force of the plane: {wanted[0]:.4f} N inwards, {wanted[1]:.4f} N up, to {off:.0e} N")
    height, total = wobbling.frames["disc"].p[:, 2], wobbling.energy.total
    drift = float(jnp.abs(total / total[0] - 1).max())
    print(f"a tenth more spin: its centre is {height.min():.4f} to {height.max():.4f} m high,")
    print(f"and its energy changes by {drift:.0e} of it")
    ice = mbd.formulate(sleigh(), mbd.JointCoordinates())
    start = mbd.assemble(ice, rates={"ice": [0.0, 0.0, spin]})
    sledge = mbd.simulate(ice, start, t1=3.0, dt=0.01, integrator=METHOD)
    (speed, angle), moved = sleigh_motion(sledge.ts, spin), sledge.joints["ice"]
    off = jnp.abs(jnp.hypot(moved.v[:, 0], moved.v[:, 1]) - speed), jnp.abs(moved.q[:, 2] - angle)
    print(f"sleigh: {speed[-1]:.4f} m/s after turning by {np.degrees(float(angle[-1])):.2f}°,")
    off = [float(x.max()) for x in off]
    print(f"difference from the closed form: {off[0]:.0e} m/s, {off[1]:.0e} rad")
    if png is not None:
        paths = {"in its circle": p, "a tenth more spin": wobbling.frames["disc"].p}
        plot(paths, sledge, spin).savefig(png, dpi=120)
    if html is not None:
        wobbling.animate(html, trace="disc")
    return steady, wobbling, sledge


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation of the wobbling disc")
    parser.add_argument("--png", help="where to write the plot")
    main(**vars(parser.parse_args()))
