"""Crates on a slope that stick, slide and tip, and a ball that rolls and jumps over a washboard.

    python examples/washboard.py [--png PLOT] [--html PAGE]

A crate on bristles sticks while the slope is below the angle of friction, slides above it, and tips
where it is higher than the slope lets it stand. A ball on a washboard road that descends gains
speed until it leaves the crests. Printed are the closed forms and the derivative of the
place where the ball gets to by the amplitude of the waves.
"""

import argparse

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Polygon

import jaxmbd as mbd
from jaxmbd import contact, forces

jax.config.update("jax_enable_x64", True)

GRAVITY = 9.81  # [m/s²]
SLOPE = np.radians(25.0)
# Friction coefficient and edge lengths along, across and normal to the slope [m].
CRATES = {
    "sticks": (0.7, (0.4, 0.3, 0.3)),
    "slides": (0.3, (0.4, 0.3, 0.3)),
    "tips": (0.7, (0.2, 0.3, 0.6)),
}
AMPLITUDE, WAVELENGTH, DESCENT, RADIUS = 0.012, 0.5, 0.12, 0.08


def crate(friction, size, mass=10.0):
    """A crate that rests on a half space whose x axis descends, and its pose."""
    quat = [np.cos(SLOPE / 2), 0.0, np.sin(SLOPE / 2), 0.0]
    ramp = mbd.Frame("ground", quat=quat)
    stiffness = 1e6
    touch = forces.Contact(
        contact.Box("crate", size),
        contact.HalfSpace(ramp),
        contact.HuntCrossley(stiffness, 1.0, 1.0),
        contact.Bristle(friction, 1e3, 10.0),
    )
    model = mbd.Model(
        {"crate": mbd.inertia.box(mass, size)},
        forces={"gravity": forces.Gravity([0, 0, -GRAVITY]), "touch": touch},
    )
    sunk = mass * GRAVITY / (4.0 * stiffness)
    return model, mbd.Pose(ramp.R @ jnp.array([0.0, 0.0, size[2] / 2 - sunk]), ramp.R)


def slide(friction, size, t1=0.8):
    """Motion of a crate from rest."""
    model, pose = crate(friction, size)
    system = mbd.formulate(model, mbd.JointCoordinates())
    steps = diffrax.PIDController(rtol=1e-7, atol=1e-7)
    start = mbd.assemble(system, {"crate": pose})
    return mbd.simulate(system, start, t1=t1, controller=steps, saveat=0.05)


def road(amplitude):
    """A ball on a washboard that descends along x."""
    terrain = contact.Terrain(
        mbd.ground,
        contact.Washboard(amplitude, WAVELENGTH) + contact.Slope([-DESCENT, 0.0]),
    )
    touch = forces.Contact(
        contact.Sphere("ball", RADIUS),
        terrain,
        contact.HuntCrossley(3e5, 0.5, exponent=1.5),
        contact.Coulomb(0.8, 0.01),
        contact.RollingResistance(1e-3),
    )
    return mbd.Model(
        {"ball": mbd.inertia.sphere(1.0, RADIUS)},
        forces={"gravity": forces.Gravity([0, 0, -GRAVITY]), "touch": touch},
    )


def roll(amplitude, t1=3.0, saveat=0.005, **options):
    """Motion of the ball, released a little above the first crest with 1 m/s."""
    system = mbd.formulate(road(jnp.asarray(amplitude)), mbd.JointCoordinates())
    at = jnp.stack([jnp.zeros(()), jnp.zeros(()), amplitude + 1.02 * RADIUS])
    rates = {"ball": [1.0, 0.0, 0.0, 0.0, 1.0 / RADIUS, 0.0]}
    start = mbd.assemble(system, {"ball": mbd.Pose(at, jnp.eye(3))}, rates)
    steps = diffrax.PIDController(rtol=1e-9, atol=1e-9)
    return mbd.simulate(system, start, t1=t1, controller=steps, saveat=saveat, **options)


@eqx.filter_jit
def pushes(solution):
    """Size of the contact force over time [N]."""

    def at(t, state):
        force = mbd.contacts(solution.system, t, state)["touch"].force[0]
        return jnp.sqrt(force @ force)

    return jax.vmap(at)(solution.ts, solution.states)


def plot(slides, rolling):
    """Crates at several times, and path and contact force of the ball."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1.0, 1.3])
    crates = figure.add_subplot(grid[:, 0])
    path, force = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
    for k, (name, solution) in enumerate(slides.items()):
        p, R, size = solution.frames["crate"].p, solution.frames["crate"].R, CRATES[name][1]
        corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [size[0] / 2, size[2] / 2]
        down, shift = np.array([np.cos(SLOPE), -np.sin(SLOPE)]), 1.1 * k
        for row in range(0, len(p), 4):
            local = np.column_stack([corners[:, 0], np.zeros(4), corners[:, 1]])
            world = np.asarray(p[row]) + local @ np.asarray(R[row]).T
            world = world[:, [0, 2]] + shift * down
            patch = {"facecolor": f"C{k}", "edgecolor": "k", "alpha": 0.15 + 0.85 * row / len(p)}
            crates.add_patch(Polygon(world, label=name if row == 0 else None, **patch))
    ends = np.array([-0.5, 4.0])
    crates.plot(ends * np.cos(SLOPE), -ends * np.sin(SLOPE), color="0.4")
    crates.set(aspect="equal", xlabel="x [m]", ylabel="z [m]", title="every 0.2 s")
    crates.legend(frameon=False)
    p = np.asarray(rolling.frames["ball"].p)
    x = np.linspace(p[0, 0], p[-1, 0], 2000)
    path.plot(p[:, 0], p[:, 2] - RADIUS + DESCENT * p[:, 0], label="lowest point of the ball")
    path.plot(x, AMPLITUDE * np.cos(2 * np.pi * x / WAVELENGTH), color="0.4", label="washboard")
    path.set(ylabel="z + 0.12 x [m]", title="a ball on a washboard that descends")
    path.legend(frameon=False, loc="upper left")
    force.plot(p[:, 0], pushes(rolling), color="C3", linewidth=0.8)
    force.axhline(GRAVITY, color="0.4", linestyle=":")
    force.set(xlabel="x [m]", ylabel="contact force [N]")
    return figure


def main(png=None, html=None):
    """Three crates, a ball, and a derivative of its motion."""
    slides = {name: slide(*given) for name, given in CRATES.items()}
    for name, solution in slides.items():
        friction, size = CRATES[name]
        moved = float(jnp.sqrt(jnp.sum((solution.frames["crate"].p[-1] - _first(solution)) ** 2)))
        tilt = float(jnp.sum(solution.frames["crate"].R[-1] * solution.frames["crate"].R[0]))
        turned = np.degrees(np.arccos(np.clip((tilt - 1) / 2, -1, 1)))
        print(f"μ = {friction}, {size[0]} m long and {size[2]} m high: {name}; in 0.8 s moved by")
        print(f"  {moved:.4f} m and turned by {turned:.2f}°")
    free = 0.5 * GRAVITY * (np.sin(SLOPE) - 0.3 * np.cos(SLOPE)) * 0.8**2
    print(f"sliding with dry friction from the start: {free:.4f} m")
    print(f"angle of friction {np.degrees(np.arctan(0.7)):.1f}°, of tipping", end=" ")
    print(f"{np.degrees(np.arctan(1 / 3)):.1f}°, of the slope {np.degrees(SLOPE):.1f}°")
    rolling = roll(AMPLITUDE)
    print(f"the ball gets to x = {float(rolling.frames['ball'].p[-1, 0]):.4f} m in 3 s,")
    print(f"in the air for {100 * float(jnp.mean(pushes(rolling) == 0)):.0f} % of the time")

    def place(amplitude):
        options = {"adjoint": diffrax.ForwardMode(), "saveat": jnp.array([1.0])}
        return roll(amplitude, t1=1.0, **options).frames["ball"].p[-1, 0]

    slope = eqx.filter_jit(lambda a: jax.jvp(place, (a,), (jnp.ones(()),)))(jnp.asarray(AMPLITUDE))
    print(f"after 1 s at x = {float(slope[0]):.4f} m, dx/dA = {float(slope[1]):.3f}")
    if png is not None:
        plot(slides, rolling).savefig(png, dpi=120)
    if html is not None:
        rolling.animate(html, trace="ball", speed=0.3)
    return slides, rolling, slope


def _first(solution):
    return solution.frames["crate"].p[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", help="where to write the plot")
    parser.add_argument("--html", help="where to write the animation of the ball")
    main(**vars(parser.parse_args()))
