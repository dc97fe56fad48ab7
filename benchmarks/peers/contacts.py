"""Go2 on rough ground: what its four feet cost, beside MuJoCo and MJX with the same pairs.

The ground is a grid of heights, bicubic in jaxmbd and of triangles in MuJoCo. Pairs are the four
feet, balls of 22 mm, with the ground; laws of contact differ: compliant ones in jaxmbd, soft
constraints in MuJoCo.
"""

from functools import cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jaxtyping import Array, Float

import jaxmbd as mbd
from benchmarks.peers import robots, steps
from benchmarks.peers.protocol import Entry, Options, Result, Target, compiled, race, ratio
from jaxmbd import contact, forces

TITLE = "Go2 on rough ground"
ROBOT, RADIUS = "Go2", 0.022
FEET = tuple(f"{leg}_foot" for leg in ("FL", "FR", "RL", "RR"))
STANCE = {"hip": 0.0, "thigh": 0.8, "calf": -1.6}  # [rad]
GRID, SPACING, ROUGH = 41, 0.1, 0.02  # Samples along a side, distance [m], largest height [m].
FOUR_FEET, WITHIN, TIMES_MJX, GRADIENT = 1.3, 3.0, 2.0, 4.0


@cache
def ground() -> Float[np.ndarray, "n n"]:
    """Random heights from 0 to `ROUGH` [m]; axes x, y."""
    return ROUGH * np.random.default_rng(0).uniform(0.0, 1.0, (GRID, GRID))


@cache
def with_feet() -> robots.Robot:
    """The robot of both programs with contacts of its feet."""
    robot = robots.load(ROBOT)
    path, _ = robots.path_of(ROBOT)
    model = mbd.io.from_urdf(path, floating_base=True)
    half = 0.5 * SPACING * (GRID - 1)
    terrain = contact.Terrain("ground", contact.HeightGrid(ground(), SPACING, (-half, -half)))
    laws = contact.HuntCrossley(3e4, 0.5, 1.0), contact.Coulomb(0.8)
    touching = {
        name: forces.Contact(contact.Sphere(model.frames[name], RADIUS), terrain, *laws)
        for name in FEET
    }
    gravity = {"gravity": model.forces["gravity"]}
    model = eqx.tree_at(lambda m: m.forces, model, gravity | touching)
    system = mbd.formulate(model, mbd.JointCoordinates())
    return robot._replace(system=system, mujoco=mujoco_with_feet(path, model, half))


def mujoco_with_feet(path: str, model: mbd.Model, half: float) -> mujoco.MjModel:
    """MuJoCo's model with the same feet and the same ground."""
    spec = robots.mujoco_spec(path, True)
    heights = ground().T  # Rows of MuJoCo are along y.
    spec.add_hfield(
        name="ground",
        nrow=GRID,
        ncol=GRID,
        size=[half, half, ROUGH, 0.1],
        userdata=(heights / ROUGH).ravel(),
    )
    spec.worldbody.add_geom(
        name="ground",
        type=mujoco.mjtGeom.mjGEOM_HFIELD,
        hfieldname="ground",
        contype=0,
        conaffinity=1,
    )
    for name in FEET:
        frame = model.frames[name]
        spec.body(frame.body).add_geom(
            name=name,
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            size=[RADIUS, 0.0, 0.0],
            pos=np.asarray(frame.p),
            mass=0.0,
            contype=1,
            conaffinity=0,
            friction=[0.8, 0.0, 0.0],
        )
    peer = spec.compile()
    off = mujoco.mjtDisableBit
    peer.opt.disableflags |= off.mjDSBL_EULERDAMP | off.mjDSBL_SENSOR | off.mjDSBL_LIMIT
    peer.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    peer.opt.timestep = robots.STEP
    peer.dof_damping[:] = 0.0
    peer.dof_frictionloss[:] = 0.0
    return peer


def standing(system: Any, n: int) -> mbd.State:
    """States in which feet touch the ground, displaced by up to 0.02 rad, with small rates."""
    names = [name for name, _ in mbd.joint_states(system, 0.0, mbd.assemble(system)).items()]
    guess: dict[str, Any] = {
        name: STANCE[name.split("_")[1]] for name in names if name != robots.BASE
    }
    low = system.frames(0.0, mbd.assemble(system, guess).q)[FEET[0]].p[2]
    height = 0.5 * ROUGH + RADIUS - 2e-3 - float(low)
    guess[robots.BASE] = mbd.Pose(jnp.array([0.0, 0.0, height]), jnp.eye(3))
    first = mbd.assemble(system, guess)
    rng = np.random.default_rng(1)
    moved, rates = rng.uniform(-0.02, 0.02, (2, n, system.nv))
    moved[:, 2] *= 0.1
    q = jax.vmap(lambda dv: system.retract(first.q, dv))(jnp.asarray(moved))
    return mbd.State(q, jnp.asarray(rates))


def run(options: Options) -> Result:
    """One robot, a batch, and a gradient."""
    robot, bare = with_feet(), robots.load(ROBOT)
    size, n = options.sized(1024, 64), options.sized(200, 20)
    states = standing(robot.system, size)
    one = jax.tree.map(lambda x: x[0], states)
    single = race(
        TITLE,
        {"states": 1, "steps a call": n},
        [
            _named(steps.own(bare, one, n, "float64"), "jaxmbd without contact, float64"),
            steps.own(robot, one, n, "float64"),
            _named(steps.in_mujoco(bare, states, n), "MuJoCo without contact, mj_step"),
            steps.in_mujoco(robot, states, n),
        ],
        options.repeats,
    )
    few = options.sized(20, 5)
    batch = race(
        TITLE,
        {"states": size, "steps a call": few},
        [
            steps.own(robot, states, few, "float32", batched=True),
            steps.own_in_threads(robot, states, few, "float32"),
            steps.in_mjx(robot, states, few),
        ],
        options.repeats,
    )
    slopes = gradient(robot.system, one, n, options.repeats)
    threads = f"jaxmbd, float32, {steps.THREADS} threads"
    feet = ratio(single, "jaxmbd, float64", "jaxmbd without contact, float64")
    slower = ratio(single, "jaxmbd, float64", "MuJoCo, mj_step")
    cost = ratio(slopes, "value and gradient", "forward")
    targets = [
        Target("four feet, times the step without contact", feet, "≤", FOUR_FEET),
        Target("step with contact, times MuJoCo's", slower, "≤", WITHIN),
        Target("batch, times MJX, float32", ratio(batch, "MJX", threads), "≥", TIMES_MJX),
        Target("gradient, times forward", cost, "≤", GRADIENT),
    ]
    about = (
        "Go2, whose feet touch a random grid of heights; steps of semi-implicit Euler of 1 ms, "
        "seconds of one step of one state."
    )
    return Result(TITLE, about, "step", [*single, *batch, *slopes], targets, {})


def gradient(system: Any, one: mbd.State, n: int, repeats: int) -> list[Entry]:
    """The sum of squares of the last coordinates, by all initial velocities."""

    def loss(v: Float[Array, "nv"], system: Any) -> Float[Array, ""]:
        return jnp.sum(steps.semi_implicit(system, mbd.State(one.q, v), n).q ** 2)

    ways = {"forward": loss, "value and gradient": jax.value_and_grad(loss)}
    contenders = [
        compiled(function, one.v, system).contender(way, one.v, system, work=n, settings={})
        for way, function in ways.items()
    ]
    return race(TITLE, {"rollout": "by initial velocities", "steps a call": n}, contenders, repeats)


def _named(contender: Any, name: str) -> Any:
    contender.name = name
    return contender
