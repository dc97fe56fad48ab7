"""A bevel differential between two wheels, one of which loses its grip.

    python examples/differential_gear.py [--html PAGE] [--png PICTURE]

The engine turns the case. One spider gear, which stands for the two or four of a real one, turns on
the case and meshes with a side gear to each side, so that the wheels may have different speeds,
with w_left + w_right = 2 w_case, and get the same torque. The road holds both wheels by 100 N m
until the left one comes to ice; the right one then gets no more torque than what turns the left one
ever faster. Printed are speeds and torques of the half shafts over time.
"""

import argparse

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals

jax.config.update("jax_enable_x64", True)

AXLE = (0.0, 1.0, 0.0)  # From the right wheel to the left one; x is ahead, z up.
DRIVE, ROAD, ICE = 200.0, 100.0, 20.0  # Torques on the case and on a wheel [N m].
SLIPS = (0.5, 0.7)  # When the left wheel loses its grip [s].
SIDE, SPIDER = 16, 10  # Numbers of teeth.
TRACK = 0.8  # Between the wheels [m].
# Moments of inertia [kg m²] of the engine, seen from the case through the gearbox, and of the whole
# vehicle, seen from a wheel that does not slip.
ENGINE, VEHICLE = 20.0, 100.0


def model(
    radius=0.05,
    spider_mass=0.3,
    wheel_mass=20.0,
    spider_axis=(0.0, 0.0, 1.0),
    engine=ENGINE,
    vehicle=VEHICLE,
):
    """Case on the ground, gears on the case, wheels on half shafts; without gravity.

    **Arguments:** `radius` from the axle to the spider gear [m], masses of spider gear and wheel
    [kg], direction of the spider gear's axis, moments of inertia [kg m²] that move with the case
    and with the right wheel.
    """
    case = mbd.inertia.cylinder(12.0, 2.0 * radius, 2.0 * radius, axis=AXLE)
    gear = mbd.inertia.cylinder(0.8, radius, 0.02, axis=AXLE)
    wheel = mbd.inertia.cylinder(wheel_mass, 0.3, 0.2, axis=AXLE)
    side, out = 0.6 * radius * jnp.asarray(AXLE), 0.5 * TRACK * jnp.asarray(AXLE)
    above = Frame("case", jnp.zeros(3).at[2].set(radius))
    grip = signals.Step(*SLIPS, [0.0, -ROAD, 0.0], [0.0, -ICE, 0.0])
    return mbd.Model(
        bodies={
            "case": mbd.RigidBody(12.0, case.inertia + engine * jnp.eye(3)),
            "spider": mbd.inertia.cylinder(spider_mass, 0.6 * radius, 0.02, axis=spider_axis),
            "left gear": gear,
            "right gear": gear,
            "left wheel": wheel,
            "right wheel": mbd.RigidBody(wheel_mass, wheel.inertia + vehicle * jnp.eye(3)),
        },
        joints={
            "case bearing": joints.Revolute(mbd.ground, "case", axis=AXLE),
            "spider pin": joints.Revolute(above, "spider", axis=spider_axis),
            "left bearing": joints.Revolute(Frame("case", side), "left gear", axis=AXLE),
            "right bearing": joints.Revolute(Frame("case", -side), "right gear", axis=AXLE),
            "left shaft": joints.Fixed(Frame("left gear", out - side), "left wheel"),
            "right shaft": joints.Fixed(Frame("right gear", side - out), "right wheel"),
        },
        forces={
            "drive": forces.JointTorque("case bearing", DRIVE),
            "left road": forces.AppliedTorque("left wheel", grip),
            "right road": forces.AppliedTorque("right wheel", [0.0, -ROAD, 0.0]),
        },
        couplings={  # Angles are relative to the case, in which the axes of the gears rest.
            "left mesh": joints.Gear("spider pin", "left bearing", (SPIDER, SIDE)),
            "right mesh": joints.Gear("right bearing", "spider pin", (SIDE, SPIDER), internal=True),
        },
    )


def simulate(system, t1=3.0, dt=0.01, speed=30.0):
    """Both wheels turn at `speed` [rad/s] at first; constraints are kept to rounding."""
    start = mbd.assemble(system, rates={"case bearing": speed})
    integrator = mbd.ExplicitRK(diffrax.Dopri8(), mbd.Projection())
    return mbd.simulate(system, start, t1=t1, dt=dt, integrator=integrator)


def speeds(solution):
    """Angular velocities about the axle over time [rad/s]."""
    twists = solution.twists
    return {name: twists[name][:, 4] for name in ("case", "left wheel", "right wheel")}


@jax.jit
def shaft_torques(solution):
    """Torques on the wheels over time [N m]: reactions of the half shafts."""
    found = jax.vmap(lambda t, state: mbd.reactions(solution.system, t, state))(
        solution.ts, solution.states
    )
    return {side: found[f"{side} shaft"][:, 4] for side in ("left", "right")}


def picture(solution):
    """Speeds and torques over time."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, speed in speeds(solution).items():
        left.plot(solution.ts, speed, label=name)
    for name, torque in shaft_torques(solution).items():
        right.plot(solution.ts, torque, label=f"{name} shaft")
    for axes, unit in ((left, "angular velocity [rad/s]"), (right, "torque [N m]")):
        axes.set(xlabel="time [s]", ylabel=unit)
        axes.legend(frameon=False)
    return figure


def main(html=None, png=None):
    """Three seconds, the left wheel on ice from half a second on."""
    solution = simulate(mbd.formulate(model(), mbd.JointCoordinates()))
    found, torques = speeds(solution), shaft_torques(solution)
    print(f"{'time [s]':>8}{'case':>12}{'left':>10}{'right':>10}{'left':>12}{'right':>10}")
    print(f"{'':>8}{'[rad/s]':>12}{'[rad/s]':>10}{'[rad/s]':>10}{'[N m]':>12}{'[N m]':>10}")
    for k in (25, 75, 200, 300):
        speed = [float(found[name][k]) for name in ("case", "left wheel", "right wheel")]
        torque = [float(torques[side][k]) for side in ("left", "right")]
        print(
            f"{float(solution.ts[k]):8.2f}{speed[0]:12.2f}{speed[1]:10.2f}{speed[2]:10.2f}"
            f"{torque[0]:12.2f}{torque[1]:10.2f}"
        )
    gap = jnp.max(jnp.abs(found["left wheel"] + found["right wheel"] - 2.0 * found["case"]))
    turns = float(solution.joint("case bearing").q[-1]) / (2 * np.pi)
    print(f"left + right - 2 case: {float(gap):.0e} rad/s at most in {turns:.1f} turns of the case")
    if png is not None:
        picture(solution).savefig(png, dpi=120)
    if html is not None:
        # Drawn without what only stands for the engine and the vehicle, and would hide the gears.
        drawn = mbd.formulate(model(engine=0.0, vehicle=0.0), mbd.JointCoordinates())
        shown = mbd.Solution(solution.ts, solution.states, drawn, solution.raw)
        shown.animate(html, speed=0.1, fps=60, labels=False)
    return solution


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--html", help="where to write the animation")
    parser.add_argument("--png", help="where to write the plot of speeds and torques")
    main(**vars(parser.parse_args()))
