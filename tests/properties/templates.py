"""The wirings of the mechanisms, each drawn with many numbers.

One wiring is one compiled program for each formulation and float type: numbers are its arguments.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.properties import sketches
from tests.properties.sketches import Plane, Sketch, chain, four_bar


@dataclass(frozen=True)
class Template:
    """A wiring: `draw(sketch, rng)` fills in a sketch.

    - `driven`: joints that drivers move as the mechanism would move by itself; where there are more
      of them than ways to move, they agree.
    - `formulations`: those that can represent it; `draws`: how many of each range of masses.
    """

    draw: Callable[[Sketch, np.random.Generator], object]
    driven: tuple[str, ...] = ()
    formulations: tuple[str, ...] = ("joint", "maximal")
    draws: int = 5

    @property
    def n(self):
        """Number of bodies."""
        return len(self.sketch(0).bodies)

    def sketch(self, seed, driven=True):
        sketch = Sketch()
        self.draw(sketch, np.random.default_rng(seed))
        sketch.driven = self.driven if driven else ()
        return sketch


def tree(sketch, rng):
    """Branches of branches, with every kind of joint."""
    kinds = ("ball", "slide", "hinge", "sleeve")
    end, tip = chain(sketch, rng, 6, "a", kinds=kinds)
    for k, prefix in enumerate("bcd"):
        middle = f"a{2 * k:03}"
        chain(sketch, rng, 3 + k, prefix, middle, sketch.bodies[middle][0], kinds[k:])
    chain(sketch, rng, 5, "e", tip, end, ("hinge", "slide"))
    sketch.dampers = ("a joint 001", "b joint 000")


def floating(sketch, rng):
    """A floating body that carries two arms."""
    sketch.body("base", rng.normal(size=3), rng.normal(size=3))
    for prefix in "ab":
        chain(sketch, rng, 3, prefix, "base", sketch.bodies["base"][0], ("hinge", "ball"))


def damped_four_bar(sketch, rng):
    four_bar(sketch, rng)
    sketch.dampers = ("a",)


def crank_and_ball(sketch, rng):
    """Two cranks about skew axes and a rod with a ball at each end: nothing is redundant."""
    A, B, C, D = (Plane(rng)(*xy) for xy in sketches.corners(rng))
    for name, ends in {"crank": (A, B), "rod": (B, C), "rocker": (D, C)}.items():
        sketch.body(name, *ends)
    sketch.pin("a", "hinge", "ground", "crank", A, sketches.direction(rng))
    sketch.pin("b", "ball", "crank", "rod", B, np.zeros(3))
    sketch.pin("c", "ball", "rod", "rocker", C, np.zeros(3))
    sketch.pin("d", "hinge", "ground", "rocker", D, sketches.direction(rng))


def slider_crank(sketch, rng):
    """Planar, in space."""
    plane = Plane(rng)
    A, B = plane(0, 0), plane(*rng.uniform(0.3, 0.6, size=2))
    C = plane(rng.uniform(1.2, 2.0), 0)
    sketch.body("crank", A, B)
    sketch.body("rod", B, C)
    sketch.body("slider", C - 0.1, C + 0.1)
    sketch.pin("a", "hinge", "ground", "crank", A, plane.normal)
    sketch.pin("b", "hinge", "crank", "rod", B, plane.normal)
    sketch.pin("c", "hinge", "rod", "slider", C, plane.normal)
    sketch.pin("d", "slide", "ground", "slider", C, plane.R[:, 0])


def door(sketch, rng):
    """A leaf on three hinges about one axis, and a second leaf on two hinges on the first."""
    for name, root, count in (("leaf", "ground", 3), ("flap", "leaf", 2)):
        foot, axis = rng.normal(size=3), sketches.direction(rng)
        sketch.body(name, foot, foot + axis, foot + sketches.direction(rng))
        for k in range(count):
            at = foot + (k + rng.uniform(0, 0.3)) * axis
            sketch.pin(f"{name} hinge {k}", "hinge", root, name, at, axis)


def ladder(sketch, rng):
    """Five four-bars, each on the rocker of the one before, each in a plane of its own."""
    root, start = "ground", None
    for k in range(5):
        _, start = four_bar(sketch, rng, f"{k}", root, start)
        root = f"{k}rocker"


def six_bar(sketch, rng):
    """Two loops in one plane that share a crank."""
    plane, C = four_bar(sketch, rng)
    E, F = plane(3.0, 1.5 + rng.uniform(0, 0.3)), plane(3.2, rng.uniform(-0.2, 0.2))
    sketch.body("link", C, E)
    sketch.body("lever", E, F)
    sketch.pin("e", "hinge", "rocker", "link", C, plane.normal)
    sketch.pin("f", "hinge", "link", "lever", E, plane.normal)
    sketch.pin("g", "hinge", "ground", "lever", F, plane.normal)


def closed_chain(sketch, rng):
    """Ten links about axes of all directions, the last hinged to the ground: one loop."""
    end, tip = chain(sketch, rng, 10)
    sketch.pin("closing", "hinge", "ground", tip, end, sketches.direction(rng))


def chain_of(n, **options):
    return lambda sketch, rng: chain(sketch, rng, n, **options)


def beside(n):
    """A chain of hinges about one axis, as straight as random numbers leave it, by a four-bar."""

    def draw(sketch, rng):
        chain(sketch, rng, n, plane=Plane(rng))
        four_bar(sketch, rng, "other ")

    return draw


def within(before, after=0):
    """A four-bar on the last of some links; on its coupler further ones."""

    def draw(sketch, rng):
        end, tip = chain(sketch, rng, before)
        _, C = four_bar(sketch, rng, "loop ", tip, end)
        if after:
            chain(sketch, rng, after, "further", "loop coupler", C)

    return draw


def geared(sketch, rng):
    """Joints of a chain in proportion to one another, two of them in one train."""
    chain(sketch, rng, 6)
    for k, (a, b) in enumerate(((1, 0), (3, 1), (5, 2))):
        ratio = rng.uniform(0.5, 3.0) * rng.choice([-1, 1])
        sketch.couplings[f"gear{k}"] = f"link joint {a:03}", f"link joint {b:03}", ratio


def ring_of_gears(sketch, rng):
    """Three wheels, each in proportion to both others: one coupling repeats the other two."""
    for k in range(3):
        point = rng.normal(size=3)
        sketch.body(f"wheel{k}", point, point + sketches.direction(rng))
        sketch.pin(f"axle{k}", "hinge", "ground", f"wheel{k}", point, sketches.direction(rng))
    one, two = rng.uniform(0.5, 2.0, size=2)
    sketch.couplings = {
        "first": ("axle1", "axle0", one),
        "second": ("axle2", "axle1", two),
        "third": ("axle2", "axle0", one * two),
    }


def geared_cranks(sketch, rng):
    """Five bars in a plane whose two cranks are geared."""
    plane = Plane(rng)
    points = np.array([[0, 0], [-0.3, 0.7], [0.8, 1.6], [2.0, 0.8], [1.6, 0]])
    points = [plane(*xy) for xy in points + rng.uniform(-0.1, 0.1, size=(5, 2))]
    ring = ["ground", "left", "up", "down", "right"]
    for k, name in enumerate(ring):
        if k:
            sketch.body(name, points[k - 1], points[k])
    for k in range(5):
        first, second = ("ground", "right") if k == 4 else (ring[k], ring[k + 1])
        sketch.pin(f"pin{k}", "hinge", first, second, points[k], plane.normal)
    sketch.couplings["gear"] = "pin4", "pin0", rng.uniform(0.5, 2.0)


def controlled(sketch, rng):
    """A four-bar with a rotor, a servo and a damper; its coupler carries geared and driven links.

    The slide has a rotor too, and one link a controller that measures a joint of the four-bar.
    """
    _, C = four_bar(sketch, rng)
    chain(sketch, rng, 4, root="coupler", start=C, kinds=("hinge", "hinge", "slide"))
    sketch.couplings["gear"] = "link joint 001", "link joint 000", rng.uniform(0.5, 2.0)
    sketch.rotors, sketch.dampers, sketch.servos = ("a", "link joint 002"), ("d",), ("a",)
    sketch.laws["link joint 000"] = "d"


def beam_chain(sketch, rng):
    """A link, two beams and a link on a ball at the end."""
    A = rng.normal(size=3)
    B, C, D, E = np.cumsum(
        [A] + [rng.uniform(0.4, 1.0) * sketches.direction(rng) for _ in range(4)], 0
    )[1:]
    sketch.body("arm", A, B)
    sketch.beam("boom", B, C)
    sketch.beam("jib", C, D)
    sketch.body("load", D, E)
    sketch.pin("a", "hinge", "ground", "arm", A, sketches.direction(rng))
    sketch.pin("b", "hinge", "arm", "boom", B, sketches.direction(rng))
    sketch.pin("c", "hinge", "boom", "jib", C, sketches.direction(rng))
    sketch.pin("d", "ball", "jib", "load", D, np.zeros(3))
    sketch.rotors, sketch.dampers, sketch.servos = ("a", "c"), ("b",), ("b",)
    sketch.laws["c"] = "a"


TEMPLATES = {
    "a pendulum": Template(chain_of(1)),
    "a chain of 5": Template(chain_of(5, kinds=("hinge", "slide", "ball"))),
    "a chain of 30": Template(chain_of(30)),
    "a chain of 100": Template(chain_of(100), draws=3),
    "a chain of 300": Template(chain_of(300), draws=1),
    "a tree": Template(tree),
    "a floating tree": Template(floating),
    "a four-bar": Template(damped_four_bar),
    "a crank and balls": Template(crank_and_ball),
    "a slider-crank": Template(slider_crank),
    "a Bennett linkage": Template(sketches.bennett),
    "three parallel cranks": Template(sketches.parallelogram),
    "doors": Template(door),
    "a ladder of four-bars": Template(ladder),
    "a six-bar": Template(six_bar),
    "a closed chain": Template(closed_chain),
    "a four-bar beside 12 links": Template(beside(12)),
    "a four-bar beside 100 links": Template(beside(100), draws=2),
    "a four-bar on 10 links": Template(within(10)),
    "a four-bar within 10 links": Template(within(5, 5)),
    "a four-bar on 50 links": Template(within(50), draws=3),
    "a four-bar within 50 links": Template(within(25, 25), draws=3),
    "a four-bar on 200 links": Template(within(200), draws=1),
    "a four-bar within 200 links": Template(within(100, 100), draws=1),
    "geared links": Template(geared),
    "a ring of gears": Template(ring_of_gears),
    "geared cranks": Template(geared_cranks),
    "driven links": Template(chain_of(5), ("link joint 001", "link joint 003")),
    "a driven crank": Template(damped_four_bar, ("a",)),
    "a crank and a rocker driven": Template(four_bar, ("a", "d")),
    "two parallel cranks driven": Template(sketches.parallelogram, ("foot0", "foot2")),
    "a controlled four-bar": Template(controlled, ("link joint 003",)),
    "beams in a chain": Template(beam_chain),
}
