"""A car on four tyres: a step of the steering wheel beside the bicycle model, and a lane change.

    python examples/car.py [--png PLOT] [--html PAGE]

Double wishbones carry the front knuckles, with hard ball joints: each side closes a loop. Tie rods
connect the knuckles to a rack that slides in the chassis, as the driver moves it. Rear carriers
slide up and down. Tyres are brushes with relaxation lengths. Printed are the steady yaw gain beside
that of the bicycle model, and the loads of the tyres in the lane change. Dimensions and masses are
invented, of a middle-sized car.
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
from jaxmbd import Frame, contact, forces, inertia, joints, tyres
from jaxmbd.signals import Step

jax.config.update("jax_enable_x64", True)

GRAVITY, SPEED = 9.81, 25.0  # [m/s²], [m/s]
MASS, HEIGHT, INERTIA = 1300.0, 0.55, (500.0, 1900.0, 2100.0)  # Of the chassis, from the road.
FRONT, REAR, HALF_TRACK = 1.2, 1.4, 0.77  # From the middle of mass to the axles and wheels [m].
RADIUS, TYRE = 0.31, 2.2e5  # [m], [N/m]
WHEEL, CARRIER = 20.0, 15.0  # Of each corner; front carriers are the knuckles [kg].
LOWER, UPPER, RACK = 4.0, 3.0, 6.0  # Wishbones and rack [kg].
# Wishbones from the inner to the outer joint: to the side, and above the hub [m].
LOWER_ARM, UPPER_ARM = (0.35, 0.70, -0.10), (0.40, 0.66, 0.15)
STEERING_ARM = 0.12  # The tie rods are behind the axle, at the height of the lower wishbones [m].
SPRING, DAMPER = 25e3, 2.2e3  # Of each wheel [N/m, N s/m].
CORNERING = {"f": 14.0, "r": 18.0}  # Cornering stiffness by the load [1/rad].
FRICTION, RELAXATION, TRAIL = 0.95, (0.15, 0.4), 0.03
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
    """Load of a wheel of each axle, and of its spring, of a car at rest [N]."""
    corners = {"f": WHEEL + CARRIER + LOWER + UPPER, "r": WHEEL + CARRIER}
    # Moments about the other axle.
    share = {
        "f": 0.5 * (MASS * REAR + RACK * (FRONT + REAR - STEERING_ARM)) / (FRONT + REAR),
        "r": 0.5 * (MASS * FRONT + RACK * STEERING_ARM) / (FRONT + REAR),
    }
    # Inner joints of the wishbones bear half of their weight.
    on_spring = {"f": share["f"] + 0.5 * (LOWER + UPPER), "r": share["r"]}
    return {k: (GRAVITY * (share[k] + corners[k]), GRAVITY * on_spring[k]) for k in "fr"}


def hubs():
    """Centres of the wheels of a car at rest, from the point of the road below its middle [m]."""
    rest = loads()
    return {k: np.array([*p, RADIUS - rest[k[0]][0] / TYRE]) for k, p in CORNERS.items()}


def wheel(name, hub, carrier, friction):
    """Body, hinge and tyre of a wheel; its frame and the carrier's are the chassis' at rest."""
    axle = name[0]
    body = inertia.shifted(mbd.RigidBody(WHEEL, [0.6, 1.1, 0.6]), hub)
    law = tyres.Brush(CORNERING[axle], friction, TRAIL if axle == "f" else 0.0)
    tyre = forces.Tyre(
        contact.Disc(Frame(f"{name} wheel", hub, R=ACROSS), RADIUS),
        contact.HalfSpace("ground"),
        contact.KelvinVoigt(TYRE, 300.0),
        law,
        relaxation=RELAXATION,
    )
    at = Frame(carrier, hub), Frame(f"{name} wheel", hub)
    hinge = joints.Revolute(*at, axis=[0.0, 1.0, 0.0])
    return {f"{name} wheel": body}, {f"{name} axle": hinge}, {f"{name} tyre": tyre}


def rear(name, hub, friction):
    """Bodies, joints and forces of a rear corner."""
    carrier, load = f"{name} carrier", loads()["r"][1]
    bodies = {carrier: inertia.shifted(mbd.RigidBody(CARRIER, [0.3, 0.3, 0.3]), hub)}
    slide = joints.Prismatic("chassis", carrier, axis=[0.0, 0.0, 1.0])
    spring = forces.TorsionalSpringDamper(f"{name} slide", SPRING, DAMPER, -load / SPRING)
    more = wheel(name, hub, carrier, friction)
    own = bodies, {f"{name} slide": slide}, {f"{name} spring": spring}
    return tuple(a | b for a, b in zip(own, more, strict=True))


def places(hub):
    """Joints of a front corner, from the point of the road below the middle of the car [m].

    These are the inner and outer ones of the lower and of the upper wishbone, and of the tie rod.
    """
    side = np.sign(hub[1])
    found = []
    for (inner, outer, above), x in (
        (LOWER_ARM, 0.0),
        (UPPER_ARM, 0.0),
        (LOWER_ARM, -STEERING_ARM),
    ):
        found += [hub * [1.0, 0.0, 1.0] + [x, side * y, above] for y in (inner, outer)]
    return found


def wishbone(mass, inner, outer):
    """A slender arm between its inner and its outer joint."""
    arm = inertia.rod(mass, np.abs(outer[1] - inner[1]), axis=[0.0, 1.0, 0.0], radius=0.02)
    return inertia.shifted(arm, 0.5 * (inner + outer))


def front(name, hub, friction):
    """Bodies, joints and forces of a front corner: double wishbones and a tie rod."""
    side, load = np.sign(hub[1]), loads()["f"][1]
    lower, upper, knuckle = (f"{name} {part}" for part in ("lower arm", "upper arm", "knuckle"))
    below, ball, above, top, end, eye = places(hub)
    bodies = {
        lower: wishbone(LOWER, below, ball),
        upper: wishbone(UPPER, above, top),
        knuckle: inertia.shifted(mbd.RigidBody(CARRIER, [0.3, 0.3, 0.3]), hub),
    }

    def pin(arm: str, at: np.ndarray) -> joints.Revolute:
        """Positive angles lift the outer end."""
        return joints.Revolute(Frame("chassis", at), Frame(arm, at), axis=[side, 0.0, 0.0])

    links: dict[str, Any] = {
        f"{name} lower pin": pin(lower, below),
        f"{name} upper pin": pin(upper, above),
        f"{name} lower ball": joints.Spherical(Frame(lower, ball), Frame(knuckle, ball)),
        f"{name} upper ball": joints.Spherical(Frame(upper, top), Frame(knuckle, top)),
        f"{name} tie rod": joints.Distance(
            Frame("rack", end), Frame(knuckle, eye), np.abs(eye[1] - end[1])
        ),
    }
    length = np.abs(ball[1] - below[1])  # The lower wishbone is level at rest.
    spring = forces.TorsionalSpringDamper(
        f"{name} lower pin",
        SPRING * length**2,
        DAMPER * length**2,
        -load / (SPRING * length),
    )
    more = wheel(name, hub, knuckle, friction)
    own = bodies, links, {f"{name} spring": spring}
    return tuple(a | b for a, b in zip(own, more, strict=True))


def model(steering, friction=FRICTION):
    """The car, whose rack turns the front wheels by about an angle over time [rad]."""
    bodies: dict[str, Any] = {
        "chassis": mbd.RigidBody(MASS, INERTIA, com=[0.0, 0.0, HEIGHT]),
        "rack": inertia.shifted(
            inertia.rod(RACK, 2 * LOWER_ARM[0], axis=[0.0, 1.0, 0.0], radius=0.02),
            hubs()["fl"] * [1.0, 0.0, 1.0] + [-STEERING_ARM, 0.0, LOWER_ARM[2]],
        ),
    }
    links: dict[str, Any] = {"rack": joints.Prismatic("chassis", "rack", axis=[0.0, 1.0, 0.0])}
    acting: dict[str, Any] = {"gravity": forces.Gravity([0.0, 0.0, -GRAVITY])}
    for name, hub in hubs().items():
        more = (front if name[0] == "f" else rear)(name, hub, friction)
        for parts, added in zip((bodies, links, acting), more, strict=True):
            parts |= added
    drivers = {"steering": joints.Driver("rack", Scaled(steering, -STEERING_ARM))}
    return mbd.Model(bodies, links, acting, drivers=drivers)


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

    The steering has no compliance: δ is the angle of the wheels. C are the loads of the axles times
    the cornering stiffness by the load, so that loads moved from the inner to the outer wheels do
    not change them. With the pneumatic trail t, forces of the front tyres act at a - t.
    """
    on = {axle: 2.0 * x[0] for axle, x in loads().items()}
    mass = sum(on.values()) / GRAVITY
    stiffness = {axle: CORNERING[axle] * on[axle] for axle in on}
    ahead = (on["f"] * FRONT - on["r"] * REAR) / (on["f"] + on["r"])  # Of the centre of all mass.
    a, b = FRONT - ahead - TRAIL, REAR + ahead
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
    """Mean angle of the front wheels about the vertical of the chassis at the end [rad]."""
    angles = []
    for name in ("fl", "fr"):
        ends = (solution.frames[body].R[-1] for body in ("chassis", f"{name} knuckle"))
        R = np.linalg.inv(next(ends)) @ next(ends)
        angles.append(np.arctan2(R[1, 0], R[0, 0]))
    return float(np.mean(angles))


def draw_suspension(axes, solution, k):
    """The front suspension from ahead, at one of the times, along the axes of the road."""
    parts = [f"{name} {part}" for name in ("fl", "fr") for part in ("knuckle", "wheel")]
    parts += [f"{name} {part} arm" for name in ("fl", "fr") for part in ("lower", "upper")]
    frames = {name: solution.frames[name] for name in ("chassis", "rack", *parts)}
    poses = {name: mbd.Pose(x.p[k], x.R[k]) for name, x in frames.items()}
    ahead, place = np.asarray(poses["chassis"].R)[:2, 0], np.asarray(poses["chassis"].p)
    left = np.array([-ahead[1], ahead[0], 0.0]) / np.linalg.norm(ahead)

    def line(body, points, **style):
        at = np.array([poses[body].apply(jnp.asarray(p)) for p in points])
        axes.plot((at - place) @ left, at[:, 2], **style)

    for name in ("fl", "fr"):
        hub = hubs()[name]
        below, ball, above, top, end, eye = places(hub)
        line(f"{name} lower arm", (below, ball), color="C0")
        line(f"{name} upper arm", (above, top), color="C0")
        line(f"{name} knuckle", (ball, top, hub, ball), color="C1")
        rod = (
            poses["rack"].apply(jnp.asarray(end)),
            poses[f"{name} knuckle"].apply(jnp.asarray(eye)),
        )
        axes.plot((np.array(rod) - place) @ left, np.array(rod)[:, 2], color="C3")
        turns = np.linspace(0.0, 2.0 * np.pi, 40)
        rim = [hub + RADIUS * np.array([np.cos(x), 0.0, np.sin(x)]) for x in turns]
        line(f"{name} wheel", rim, color="0.3")
    line("rack", [places(hubs()[name])[4] for name in ("fl", "fr")], color="C3")
    ends = [places(hubs()[name])[j] for name, j in (("fl", 0), ("fl", 2), ("fr", 2), ("fr", 0))]
    line("chassis", [*ends, ends[0]], color="0.6")
    axes.axhline(0.0, color="0.7", linewidth=1)
    axes.set(xlabel="to the left [m]", ylabel="height [m]", aspect="equal")


def plot(turning, changing):
    """Yaw rate of the step beside the bicycle model; path, loads, wishbones in the lane change."""
    figure = Figure(figsize=(10, 9), layout="constrained")
    rate, path, load, view = figure.subplots(4, 1, height_ratios=[1, 1, 1, 1.2])
    rolled = np.asarray(changing.frames["chassis"].R[:, 2, 1])
    k = int(np.argmax(np.abs(rolled)))
    draw_suspension(view, changing, k)
    view.set_title(f"double wishbones, rack and tie rods at {float(changing.ts[k]):.2f} s")
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
