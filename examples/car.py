"""A car on four tyres: a step of the steering wheel beside the bicycle model, and a lane change.

    python examples/car.py [--png PLOT] [--html PAGE]

Carriers slide up and down on the chassis on springs and dampers, an elastic steering turns the
front wheels, and each wheel turns on its axle. Tyres are brushes with relaxation lengths. Printed
are the steady yaw gain beside that of the bicycle model, and how much load the inner wheels keep in
the lane change. Dimensions and masses are invented, of a middle-sized car.
"""

import argparse
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import jaxmbd as mbd
from jaxmbd import Frame, contact, forces, joints, tyres
from jaxmbd.signals import Step

jax.config.update("jax_enable_x64", True)

GRAVITY, SPEED = 9.81, 25.0  # [m/s²], [m/s]
MASS, HEIGHT, INERTIA = 1300.0, 0.55, (500.0, 1900.0, 2100.0)  # Of the chassis, from the road.
FRONT, REAR, HALF_TRACK = 1.2, 1.4, 0.77  # From the middle of mass to the axles and wheels [m].
RADIUS, TYRE = 0.31, 2.2e5  # [m], [N/m]
WHEEL, CARRIER = 20.0, 15.0  # [kg]
SPRING, DAMPER = 25e3, 2.2e3  # Of each wheel [N/m, N s/m].
CORNERING = {"f": 14.0, "r": 18.0}  # Cornering stiffness by the load [1/rad].
FRICTION, RELAXATION, TRAIL = 0.95, (0.15, 0.4), 0.03
STEERING = (
    5e4,
    250.0,
)  # Stiffness and damping of the steering, of each wheel [N m/rad, N m s/rad].
CORNERS = {
    "fl": (FRONT, HALF_TRACK),
    "fr": (FRONT, -HALF_TRACK),
    "rl": (-REAR, HALF_TRACK),
    "rr": (-REAR, -HALF_TRACK),
}
ACROSS = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])  # Axle along y.


class Sum(eqx.Module):
    """A signal that is the sum of others."""

    parts: tuple

    def __call__(self, t):
        return sum((part(t) for part in self.parts[1:]), self.parts[0](t))


class Scaled(eqx.Module):
    """A signal times a number."""

    signal: Any
    factor: float

    def __call__(self, t):
        return self.factor * self.signal(t)


def step_steer(angle, start=0.5):
    """The front wheels turn to an angle [rad], and stay."""
    return Step(start, start + 0.3, 0.0, angle)


def lane_change(angle, start=0.5, period=2.0):
    """The front wheels turn to an angle [rad], to the opposite one, and back."""
    times = start + period * np.array([0.0, 0.25, 0.75, 1.0])
    heights = (angle, -2.0 * angle, angle)
    return Sum(tuple(Step(*times[k : k + 2], 0.0, heights[k]) for k in range(3)))


def loads():
    """Weight on each wheel, and sprung weight on each corner, of a car at rest [N]."""
    sprung = {"f": REAR, "r": FRONT}
    sprung = {axle: MASS * GRAVITY * x / (2.0 * (FRONT + REAR)) for axle, x in sprung.items()}
    unsprung = {"f": 2.0 * CARRIER + WHEEL, "r": CARRIER + WHEEL}  # In front with a knuckle.
    return {axle: (x + unsprung[axle] * GRAVITY, x) for axle, x in sprung.items()}


def hubs():
    """Centres of the wheels of a car at rest, from the point of the road below its middle [m]."""
    rest = loads()
    return {k: np.array([*p, RADIUS - rest[k[0]][0] / TYRE]) for k, p in CORNERS.items()}


def corner(name, hub, steering, friction):
    """Bodies, joints and forces of one wheel."""
    axle, spring = name[0], loads()[name[0]][1]
    small = [0.3, 0.3, 0.3]
    bodies = {
        f"{name} carrier": mbd.RigidBody(CARRIER, small),
        f"{name} wheel": mbd.RigidBody(WHEEL, [0.6, 1.1, 0.6]),
    }
    law = tyres.Brush(CORNERING[axle], friction, TRAIL if axle == "f" else 0.0)
    acting: dict[str, Any] = {
        f"{name} tyre": forces.Tyre(
            contact.Disc(Frame(f"{name} wheel", R=ACROSS), RADIUS),
            contact.HalfSpace("ground"),
            contact.KelvinVoigt(TYRE, 300.0),
            law,
            relaxation=RELAXATION,
        ),
        f"{name} spring": forces.TorsionalSpringDamper(
            f"{name} slide", SPRING, DAMPER, -spring / SPRING
        ),
    }
    links: dict[str, Any] = {
        f"{name} slide": joints.Prismatic(
            Frame("chassis", hub), f"{name} carrier", axis=[0.0, 0.0, 1.0]
        )
    }
    carried = f"{name} carrier"
    if axle == "f":
        bodies[f"{name} knuckle"] = mbd.RigidBody(CARRIER, small)
        links[f"{name} steering"] = joints.Revolute(
            carried, f"{name} knuckle", axis=[0.0, 0.0, 1.0]
        )
        carried = f"{name} knuckle"
        acting |= {
            f"{name} steering gear": forces.TorsionalSpringDamper(f"{name} steering", *STEERING),
            f"{name} steering wheel": forces.JointTorque(
                f"{name} steering", Scaled(steering, STEERING[0])
            ),
        }
    links[f"{name} axle"] = joints.Revolute(carried, f"{name} wheel", axis=[0.0, 1.0, 0.0])
    return bodies, links, acting


def model(steering, friction=FRICTION):
    """The car, whose front wheels an elastic steering turns to an angle over time [rad]."""
    bodies = {"chassis": mbd.RigidBody(MASS, INERTIA, com=[0.0, 0.0, HEIGHT])}
    links: dict[str, Any] = {}
    acting: dict[str, Any] = {"gravity": forces.Gravity([0.0, 0.0, -GRAVITY])}
    for name, hub in hubs().items():
        more = corner(name, hub, steering, friction)
        for parts, added in zip((bodies, links, acting), more, strict=True):
            parts |= added
    return mbd.Model(bodies, links, acting)


def drive(steering, t1=4.0, dt=2e-3, saveat=0.02, speed=SPEED, **options):
    """Motion of the car that coasts straight ahead at first."""
    system = mbd.formulate(model(steering), mbd.JointCoordinates())
    spins = {f"{name} axle": speed / hub[2] for name, hub in hubs().items()}
    rates = {"chassis": [speed, 0.0, 0.0, 0.0, 0.0, 0.0]} | spins
    start = mbd.assemble(system, {}, rates)
    method = mbd.ExplicitRK(diffrax.Tsit5())
    return mbd.simulate(system, start, t1=t1, dt=dt, integrator=method, saveat=saveat, **options)


def bicycle(speed=SPEED):
    """Steady yaw rate by the steering angle [1/s], and understeer coefficient K [s²/m].

    r / δ = V / (L + K V²),   K = m / L (b / C_f - a / C_r)

    with the pneumatic trail t of the front tyres: they act at a - t.
    """
    on = {axle: 2.0 * x[0] for axle, x in loads().items()}
    mass, a, b = sum(on.values()) / GRAVITY, FRONT - TRAIL, REAR
    stiffness = {axle: CORNERING[axle] * on[axle] for axle in on}
    # Of the middle of all mass, which the unsprung mass shifts.
    shift = (on["f"] * FRONT - on["r"] * REAR) / (on["f"] + on["r"])
    a, b = a - shift, b + shift
    K = mass / (a + b) * (b / stiffness["f"] - a / stiffness["r"])
    # The front wheels are at L from the rear ones, their force is not.
    return speed / (FRONT + REAR + K * speed**2), K


@eqx.filter_jit
def looks(solution):
    """Over time: yaw rate, place, speed, and load and lateral force of the tyres."""

    def at(t, state):
        found = mbd.tyre_contacts(solution.system, t, state)
        return jnp.stack([jnp.stack([x.load, x.lateral]) for x in found.values()])

    return jax.vmap(at)(solution.ts, solution.states)


def names(solution):
    """Tyres in the order of `looks`."""
    start = jax.tree.map(lambda x: x[0], solution.states)
    return [key.split()[0] for key in mbd.tyre_contacts(solution.system, 0.0, start)]


def yaw_rate(solution):
    """Yaw rate of the chassis over time [rad/s]."""
    return np.asarray(solution.twists["chassis"][:, 5])


def turned(solution):
    """Mean steering angle of the front wheels at the end [rad]."""
    return float(sum(solution.joints[f"{name} steering"].q[-1] for name in ("fl", "fr")) / 2.0)


def plot(turning, changing):
    """Yaw rate of the step beside the bicycle model, path and loads of the lane change."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    rate, path, load = figure.subplots(3, 1)
    rate.plot(turning.ts, yaw_rate(turning), label="car")
    rate.axhline(
        bicycle()[0] * turned(turning), color="0.4", linestyle=":", label="bicycle model, steady"
    )
    rate.set(xlabel="time [s]", ylabel="yaw rate [rad/s]", title="step of the steering wheel")
    rate.legend(frameon=False)
    p = np.asarray(changing.frames["chassis"].p)
    path.plot(p[:, 0], p[:, 1])
    path.set(xlabel="x [m]", ylabel="y [m]", title="lane change")
    for name, forces_of_tyre in zip(
        names(changing), np.moveaxis(np.asarray(looks(changing)), 1, 0), strict=True
    ):
        load.plot(changing.ts, forces_of_tyre[:, 0], label=name)
    load.set(xlabel="time [s]", ylabel="load [N]", title="loads of the tyres in the lane change")
    load.legend(frameon=False, ncols=4)
    return figure


def main(png=None, html=None):
    """A step of the steering wheel and a lane change."""
    angle = 0.005
    turning = drive(step_steer(angle))
    speed = float(jnp.sqrt(jnp.sum(turning.twists["chassis"][-1, :2] ** 2)))
    gain, K = bicycle(speed)
    found = yaw_rate(turning)[-1] / turned(turning)
    print(f"yaw gain after {turning.ts[-1]:.0f} s at {speed:.2f} m/s: {found:.4f} 1/s,")
    print(f"of the bicycle model with K = {K:.5f} s²/m: {gain:.4f} 1/s")
    changing = drive(lane_change(0.03))
    p, seen = changing.frames["chassis"].p, np.asarray(looks(changing))
    print(f"the lane change moves the car by {float(p[-1, 1]):.2f} m to its left,")
    print(f"with loads of {np.min(seen[..., 0]):.0f} to {np.max(seen[..., 0]):.0f} N")
    if png is not None:
        plot(turning, changing).savefig(png, dpi=120)
    if html is not None:
        changing.animate(html, trace="chassis")
    return turning, changing, (found, gain)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--png", help="where to write the plot")
    parser.add_argument("--html", help="where to write the animation of the lane change")
    main(**vars(parser.parse_args()))
