"""Models that several tests share, and random states of them."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import jaxmbd as mbd
from jaxmbd import Frame, forces, joints, signals
from jaxmbd.joints.abstract import has_scalar_coordinates

TREE_KINDS = (
    joints.Fixed,
    joints.Revolute,
    joints.Prismatic,
    joints.Cylindrical,
    joints.Universal,
    joints.Planar,
    joints.Spherical,
    joints.Free,
)
FURTHER_KINDS = (
    joints.Screw,
    joints.ConstantVelocity,
    joints.PointOnLine,
    joints.PointOnPlane,
)
JOINT_KINDS = TREE_KINDS + FURTHER_KINDS
SCALAR_KINDS = tuple(kind for kind in TREE_KINDS if kind.rotation.nq == kind.rotation.nv)
FORMULATIONS = (mbd.JointCoordinates(), mbd.MaximalCoordinates())


def name_of(formulation: object) -> str:
    """For the ids of parametrized tests."""
    return type(formulation).__name__


def random_body(rng: np.random.Generator) -> mbd.RigidBody:
    """Mass properties of a cloud of eight random particles, so that they are possible."""
    masses, points = rng.uniform(0.1, 0.4, 8), rng.uniform(-0.4, 0.4, (8, 3))
    com = masses @ points / masses.sum()
    s = points - com
    second = np.einsum("n,ni,nj->ij", masses, s, s)
    return mbd.RigidBody(masses.sum(), np.trace(second) * np.eye(3) - second, com)


def random_frame(rng: np.random.Generator, body: str) -> Frame:
    """A frame anywhere on a body, its quaternion of any length."""
    return Frame(body, rng.uniform(-0.5, 0.5, 3), quat=rng.uniform(0.7, 1.4) * random_quat(rng))


def random_quat(rng: np.random.Generator) -> np.ndarray:
    """A unit quaternion."""
    quat = rng.normal(size=4)
    return quat / np.linalg.norm(quat)


def random_joint(
    rng: np.random.Generator, kind: type[joints.AbstractJoint], first: str, second: str
) -> joints.AbstractJoint:
    """A joint of a kind between random frames of two bodies, its axes in random directions."""
    frames = random_frame(rng, first), random_frame(rng, second)
    axis, other = rng.normal(size=3), rng.normal(size=3)
    if kind is joints.Universal:
        return kind(*frames, axis1=axis, axis2=np.cross(axis, other))
    if issubclass(kind, joints.Fixed | joints.Spherical | joints.Free):
        return kind(*frames)
    if kind is joints.Screw:
        return kind(*frames, pitch=rng.uniform(0.5, 2.0), axis=axis)
    return kind(*frames, axis=axis)


def random_tree(
    seed: int,
    values: int = 0,
    kinds: Sequence[type[joints.AbstractJoint]] = TREE_KINDS,
    against: float = 0.4,
    floating: int = 1,
) -> mbd.Model:
    """An open tree with one joint of each of the kinds, a part of them `against` its direction.

    `seed` settles the structure and `values` the numbers, so that models of one seed share what
    has been compiled. `floating` more bodies hang on no joint.
    """
    structure, rng = np.random.default_rng(seed), np.random.default_rng([seed, values])
    names = [f"b{k}" for k in range(len(kinds) + floating)]
    links = {}
    for k, which in enumerate(structure.permutation(len(kinds))):
        kind = kinds[which]
        # Near bodies more often than far ones, so that trees are deep and branch.
        parents = ["ground", *names[:k]][-3:]
        ends = [parents[structure.integers(len(parents))], names[k]]
        if structure.random() < against:
            ends.reverse()
        links[f"{kind.__name__.lower()}{k}"] = random_joint(rng, kind, *ends)
    bodies = {name: random_body(rng) for name in names}
    return mbd.Model(
        bodies=bodies,
        joints=links,
        forces=_random_forces(structure, rng, names, links),
        frames={"marker": random_frame(rng, names[-1])},
        rotors=_random_rotors(rng, links),
    )


def _random_forces(
    structure: np.random.Generator,
    rng: np.random.Generator,
    names: list[str],
    links: dict[str, joints.AbstractJoint],
) -> dict[str, forces.AbstractElement]:
    """One of every kind; the kinds of joint force take turns on the kinds of joints."""

    def anywhere() -> Frame:
        return random_frame(rng, names[structure.integers(len(names))])

    grid = np.linspace(-1.0, 3.0, 7)
    found: dict[str, forces.AbstractElement] = {
        "gravity": forces.Gravity(rng.normal(size=3) * 5),
        "spring": forces.SpringDamper(anywhere(), random_frame(rng, "ground"), 30.0, 2.0, 0.3),
        "strut": forces.SpringDamper(
            random_frame(rng, names[0]), random_frame(rng, names[-1]), *rng.uniform(0.5, 9.0, 3)
        ),
        "push": forces.AppliedForce(anywhere(), signals.Sine(rng.normal(size=3), 0.7, 0.4)),
        "thrust": forces.AppliedForce(anywhere(), rng.normal(size=3), follower=True),
        "twist": forces.AppliedTorque(anywhere(), signals.Polynomial(rng.normal(size=(3, 3)))),
        "spin": forces.AppliedTorque(
            anywhere(), signals.Samples(grid, rng.normal(size=(7, 3))), follower=True
        ),
    }
    moving = [name for name, joint in links.items() if joint.sizes()[1] > 0]
    scalar = [name for name in moving if has_scalar_coordinates(links[name])]
    for k, name in enumerate(moving):
        nv = links[name].sizes()[1]
        if k % 3 == 0:
            found[f"drive {name}"] = forces.JointTorque(name, rng.normal(size=nv))
        elif k % 3 == 1:
            found[f"oil {name}"] = forces.ViscousFriction(name, rng.uniform(0.1, 0.5, nv))
        else:
            found[f"rub {name}"] = forces.CoulombFriction(name, rng.uniform(0.1, 0.5), 0.5)
    for name in scalar[:2]:
        n = links[name].sizes()[0]
        found[f"coil {name}"] = forces.TorsionalSpringDamper(
            name, rng.uniform(1, 5, n), rng.uniform(0.1, 0.3, n), rng.uniform(-0.5, 0.5, n)
        )
    return found


def _random_rotors(
    rng: np.random.Generator, links: dict[str, joints.AbstractJoint]
) -> dict[str, mbd.Rotor]:
    """One on each joint with one coordinate."""
    return {
        f"rotor {name}": mbd.Rotor(name, rng.uniform(0.01, 0.1), 3.0)
        for name, joint in links.items()
        if joint.sizes()[1] > 0 and has_scalar_coordinates(joint) and joint.sizes()[0] == 1
    }


def random_values(
    system: mbd.system.abstract.AbstractSystem, seed: int, scale: float = 1.0
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Coordinates and velocities of the joints of the spanning tree, for `assemble`."""
    rng, mechanism = np.random.default_rng(seed), system.mechanism
    guess, rates = {}, {}
    for group in mechanism.joints:
        _, nv, _ = group.joint.sizes()
        for name in group.names:
            if name in mechanism.topology.loops or nv == 0:
                continue
            guess[name] = scale * rng.uniform(-1.2, 1.2, nv)  # Rotation vectors where free.
            rates[name] = scale * rng.normal(size=nv)
    return guess, rates


def random_state(
    system: mbd.system.abstract.AbstractSystem, seed: int, scale: float = 1.0
) -> mbd.State:
    """A state off the reference position and in motion; the same motion in every formulation."""
    return mbd.assemble(system, *random_values(system, seed, scale))


def chain(
    n: int,
    kind: type[joints.AbstractJoint] = joints.Revolute,
    gravity: tuple[float, float, float] = (0.0, 0.0, -9.81),
) -> mbd.Model:
    """n like rods, each hanging on the one before; revolute axes along y, numbered links."""
    rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 0.5), (0.25, 0.0, 0.0))
    names = [f"link{k:04d}" for k in range(n)]
    options = {} if kind is joints.Spherical else {"axis": (0.0, 1.0, 0.0)}
    tips = [mbd.ground, *[Frame(name, (0.5, 0.0, 0.0)) for name in names]]
    return mbd.Model(
        bodies=dict.fromkeys(names, rod),
        joints={
            f"j{name}": kind(tip, name, **options) for tip, name in zip(tips, names, strict=False)
        },
        forces={"gravity": forces.Gravity(gravity)},
    )


def four_bar(coupler: float = 2.0) -> mbd.Model:
    """A planar four-bar in the x-z plane, its ground points 2 m apart.

    Crank 0.5 m, rocker 1.5 m and the coupler as given. Ball joints at its two ends take away the
    redundancy of four parallel hinges; the coupler may spin about its own length.
    """
    y = (0.0, 1.0, 0.0)
    bodies = {
        name: mbd.inertia.shifted(mbd.inertia.rod(1.0, length, radius=0.05), (length / 2, 0, 0))
        for name, length in (("crank", 0.5), ("coupler", coupler), ("rocker", 1.5))
    }
    return mbd.Model(
        bodies=bodies,
        joints={
            "left": joints.Revolute(mbd.ground, "crank", axis=y),
            "crank pin": joints.Universal(
                Frame("crank", (0.5, 0, 0)), "coupler", axis1=y, axis2=(0, 0, 1)
            ),
            "rocker pin": joints.Spherical(
                Frame("coupler", (coupler, 0, 0)), Frame("rocker", (1.5, 0, 0))
            ),
            "right": joints.Revolute(Frame("ground", (2.0, 0, 0)), "rocker", axis=y),
        },
        forces={"gravity": forces.Gravity()},
    )


def near(a: object, b: object, tolerance: float) -> None:
    """Assert that two trees agree to a tolerance relative to the largest number of each leaf."""
    leaves, others = jax.tree.leaves_with_path(a), jax.tree.leaves(b)
    assert len(leaves) == len(others)
    for (path, x), y in zip(leaves, others, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape
        scale = max(1.0, np.abs(y).max(initial=0.0))
        error = np.abs(x - y).max(initial=0.0)
        assert error <= tolerance * scale, (
            f"{jax.tree_util.keystr(path)} off by {error:.2e} at a scale of {scale:.2e}"
        )


class Traces:
    """A function that counts how often JAX traces it."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *args):
        self.count += 1
        return self.function(*args)


def conservative(model: mbd.Model) -> mbd.Model:
    """The model with weight and undamped springs only."""
    kept = {}
    for name, force in model.forces.items():
        if isinstance(force, forces.SpringDamper | forces.TorsionalSpringDamper):
            kept[name] = eqx.tree_at(lambda f: f.damping, force, replace_fn=jnp.zeros_like)
        elif isinstance(force, forces.Gravity):
            kept[name] = force
    return mbd.Model(model.bodies, model.joints, kept, rotors=model.rotors)


def floating_tree(seed: int = 0) -> mbd.Model:
    """Four bodies joined to each other and to nothing else, with forces among themselves."""
    rng = np.random.default_rng(seed)
    kinds = {"hinge": joints.Revolute, "ball": joints.Spherical, "slider": joints.Prismatic}
    ends = {"hinge": ("b", "a"), "ball": ("b", "c"), "slider": ("c", "d")}
    return mbd.Model(
        bodies={name: random_body(rng) for name in "abcd"},
        joints={name: random_joint(rng, kind, *ends[name]) for name, kind in kinds.items()},
        forces={
            "spring": forces.SpringDamper(
                random_frame(rng, "a"), random_frame(rng, "d"), 30.0, 2.0, 0.3
            ),
            "coil": forces.TorsionalSpringDamper("hinge", 5.0, 0.5, 0.2),
            "drive": forces.JointTorque("slider", signals.Sine(4.0, 1.0)),
            "rub": forces.CoulombFriction("ball", 0.5, 0.1),
        },
    )
