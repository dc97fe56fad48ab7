"""Moving pictures of the gallery, from the scripts in `examples/`.

    python docs/gallery.py [NAME ...] [--hero]

Each picture is `docs/gallery/NAME.gif`, of at most 150 kB. `--hero` draws the first picture of the
README, `docs/images/hero.gif`. Without names, all pictures are drawn, in some minutes.
"""

import argparse
import importlib
import sys
from pathlib import Path

import numpy as np
import skfem

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS.parent), str(DOCS), str(DOCS.parent / "examples")]

import gallery_shapes  # noqa: E402
import skidder_picture as shapes  # noqa: E402

import jaxmbd as mbd  # noqa: E402
from jaxmbd.io.urdf_visuals import Visual  # noqa: E402

LARGEST = 150_000  # [bytes]
SIZE, HERO = (260, 195), (760, 448)  # [pixels]


def as_visuals(bodies):
    """Shapes of an example, `{body: [(triangles, colour)]}`, as `visuals` of an animation."""

    def visual(triangles, color):
        corners = shapes.divided(np.asarray(triangles)).reshape(-1, 3)
        packed = sum(int(255 * x) << 8 * k for k, x in enumerate(reversed(color)))
        return Visual(corners, np.arange(len(corners)).reshape(-1, 3), packed, 1.0)

    return {name: [visual(*part) for part in parts] for name, parts in bodies.items()}


def loader_shapes(pins):
    """Plates, tubes and tyres between the pins of the wheel loader."""
    at = {name: np.array([x, 0.0, z]) for name, (x, z) in pins.items()}
    boom = [(-0.12, 1.6), (1.25, 0.85), (2.05, 0.22)], [(0.08, 1.92), (1.42, 1.38), (2.25, 0.48)]
    side = [(2.02, 0.25), (3.28, 0.08)], [(2.06, 0.95), (2.7, 0.95)]
    floor, back = (
        ([(2.02, 0.22), (3.28, 0.05)], [(2.02, 0.3), (3.28, 0.1)]),
        (
            [(2.0, 0.22), (2.08, 0.22)],
            [(2.02, 0.98), (2.1, 0.98)],
        ),
    )
    lever = [(1.4, 0.3), (1.2, 1.14), (1.0, 1.78)], [(1.6, 0.36), (1.45, 1.14), (1.16, 1.86)]
    tower = [(-0.5, 0.6), (0.35, 0.6)], [(-0.2, 1.95), (0.12, 1.95)]
    cab = [(-1.3, 1.4), (-0.5, 1.4)], [(-1.25, 2.5), (-0.6, 2.5)]
    found = {
        "frame": [
            shapes.plate(
                [(-2.0, 0.6), (-0.3, 0.6)], [(-2.0, 1.4), (-0.3, 1.4)], (-0.45, 0.45), shapes.YELLOW
            ),
            shapes.plate(*cab, (-0.4, 0.4), shapes.GLASS),
            *shapes.pair(*tower, 0.1, 0.2, shapes.YELLOW),
            *(
                part
                for x in (-1.5, 0.0)
                for y in (-0.75, 0.75)
                for part in shapes.tyre(np.array([x, y, 0.55]), 0.55, 0.35)
            ),
        ],
        "boom": shapes.pair(*boom, 0.28, 0.38, shapes.YELLOW),
        "bucket": [
            *shapes.pair(*side, 0.8, 0.84, shapes.YELLOW),
            *(shapes.plate(*wall, (-0.8, 0.8), shapes.DARK) for wall in (floor, back)),
        ],
        "lever": [shapes.plate(*lever, (-0.09, 0.09), shapes.STEEL)],
        "link": [shapes.tube(at["link pin"], at["tilt link pin"], 0.07, shapes.STEEL)],
    }
    for name in ("lift", "tilt"):
        foot, eye = at[f"{name} foot"], at[f"{name} eye"]
        found[f"{name} barrel"] = [shapes.tube(foot, 0.3 * foot + 0.7 * eye, 0.1, shapes.DARK)]
        found[f"{name} rod"] = [shapes.tube(0.7 * foot + 0.3 * eye, eye, 0.05, shapes.CHROME)]
    return as_visuals(found)


def four_bar():
    """A turn and a half of a linkage that coasts."""
    example = importlib.import_module("four_bar")
    system = mbd.formulate(example.model(), mbd.JointCoordinates())
    state = mbd.assemble(system, example.posture(1.0), {"left": 12.0}, hold="left")
    motion = mbd.simulate(system, state, t1=1.0, dt=0.005, integrator=example.METHOD)
    return motion, {"trace": "point", "speed": 0.4, "visuals": gallery_shapes.four_bar()}


def slider_crank():
    """One turn of a compressor."""
    example = importlib.import_module("slider_crank")
    turn = np.linspace(0.0, 2 * np.pi / example.SPEED, 91)
    system = mbd.formulate(example.model(), mbd.JointCoordinates())
    motion = mbd.kinematics(system, turn, {"guide": example.height(0.0)})
    visuals = gallery_shapes.slider_crank(example)
    return motion, {"speed": turn[-1] / 2, "view": (0.5, -1, 0.25), "visuals": visuals}


def platform_3rrr():
    """A planar platform that falls."""
    example = importlib.import_module("platform_3rrr")
    system = mbd.formulate(example.model(), mbd.PointCoordinates("xy", example.RODS))
    state = mbd.assemble(system, example.posture(np.zeros(3)))
    motion = mbd.simulate(system, state, t1=2.5, dt=0.01, integrator=example.METHOD)
    visuals = gallery_shapes.platform_3rrr(example)
    return motion, {"trace": "platform", "view": (0.0, -0.5, 1.0), "visuals": visuals}


def stewart_platform():
    """One period of heave and tilt."""
    example = importlib.import_module("stewart_platform")
    system = mbd.formulate(example.model(), mbd.JointCoordinates())
    motion = mbd.kinematics(system, np.linspace(0.0, example.PERIOD, 81))
    visuals = gallery_shapes.stewart_platform(example)
    return motion, {"speed": example.PERIOD / 3, "visuals": visuals}


def wheel_loader():
    """A loader that digs, lifts and dumps."""
    example = importlib.import_module("wheel_loader")
    system = mbd.formulate(example.model(), mbd.JointCoordinates())
    motion = mbd.kinematics(system, np.linspace(0.0, 9.0, 121))
    visuals = loader_shapes(example.PINS)
    return motion, {"trace": "lip", "view": (0.5, -1.0, 0.25), "speed": 2.5, "visuals": visuals}


def rolling_disc():
    """A disc that wobbles as it rolls in a circle."""
    example = importlib.import_module("rolling_disc")
    system = mbd.formulate(example.model(), mbd.JointCoordinates())
    around = 2 * np.pi / example.TURNING
    start = example.on_circle(system, more_spin=1.1)
    motion = mbd.simulate(system, start, t1=2 * around, dt=around / 100, integrator=example.METHOD)
    visuals = gallery_shapes.rolling_disc()
    return motion, {"trace": "disc", "speed": around / 2, "visuals": visuals}


def washboard():
    """A ball that leaves the crests of a washboard road."""
    example = importlib.import_module("washboard")
    motion = example.roll(example.AMPLITUDE, t1=1.2)
    visuals = {"ball": gallery_shapes.ball(example.RADIUS)}
    return motion, {"trace": "ball", "speed": 0.4, "visuals": visuals}


def car():
    """A lane change on tyres."""
    example = importlib.import_module("car")
    motion = example.drive(example.lane_change(0.03), t1=2.5, saveat=0.01)
    options = {"follow": "chassis", "view": (0.9, -1.0, 0.5), "scale": 0.4}
    return motion, options | {"visuals": gallery_shapes.car(example)}


def skidder():
    """A forestry machine that drops onto a washboard."""
    example = importlib.import_module("skidder")
    visuals = as_visuals(shapes.machine(vars(example)))
    return example.drop(t1=2.0, saveat=0.04), {"speed": 0.7, "visuals": visuals}


def spinning_beam():
    """A flexible beam that is spun up."""
    example = importlib.import_module("spinning_beam")
    system = mbd.formulate(example.model(), mbd.JointCoordinates())
    motion = mbd.simulate(
        system, mbd.assemble(system), t1=10.0, dt=0.02, integrator=mbd.GeneralizedAlpha(0.8)
    )
    options = {"trace": "tip", "speed": 4.0, "deformation": 3.0, "boxes": False}
    return motion, options


def bracket():
    """A clamped bracket in its first mode, coloured by the equivalent stress."""
    mesh = skfem.MeshTet.init_tensor(
        np.linspace(0.0, 0.2, 9), np.linspace(0.0, 0.06, 4), np.linspace(0.0, 0.2, 9)
    )
    x, _, z = mesh.p[:, mesh.t].mean(axis=1)
    body = mbd.flexible.from_mesh(
        mesh.restrict(np.flatnonzero((x < 0.025) | (z < 0.025))),
        E=7e10,
        nu=0.3,
        density=2700.0,
        unit=1.0,
        interfaces={"root": lambda x: x[:, 2] > 0.2 - 1e-6},
        n_modes=4,
    )
    clamp = mbd.joints.Fixed("ground", mbd.Frame("bracket", node="root"))
    modes = mbd.linearize(mbd.Model({"bracket": body}, {"clamp": clamp})).modes()
    motion = modes.motion(0, 0.3, 1)
    period = float(motion.ts[-1] - motion.ts[0])
    options = {"contours": "stress", "deformation": 150.0, "view": (0.7, -1.0, 0.5)}
    return motion, options | {"speed": period / 2}


PICTURES = {
    make.__name__: make
    for make in (
        four_bar,
        slider_crank,
        platform_3rrr,
        stewart_platform,
        wheel_loader,
        rolling_disc,
        washboard,
        car,
        skidder,
        spinning_beam,
        bracket,
    )
}


def main(names, hero):
    """Draw."""
    if hero:
        motion, options = wheel_loader()
        options |= {"speed": 1.8, "size": HERO, "fps": 14}
        gif = motion.animate(str(DOCS / "images" / "hero.gif"), **options)
        sys.stdout.write(f"hero: {len(gif.data) / 1e3:.0f} kB\n")
    (DOCS / "gallery").mkdir(exist_ok=True)
    for name in names or ([] if hero else PICTURES):
        motion, options = PICTURES[name]()
        path = str(DOCS / "gallery" / f"{name}.gif")
        for fps in (16, 12, 10, 8, 6, 5):
            gif = motion.animate(path, **{"size": SIZE, "fps": fps} | options)
            if len(gif.data) <= LARGEST:
                break
        sys.stdout.write(f"{name}: {len(gif.data) / 1e3:.0f} kB, {fps} frames a second\n")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--hero", action="store_true", help="draw the picture of the README")
    main(**vars(parser.parse_args()))
