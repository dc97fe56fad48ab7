"""Digests of objects that are the same in every process."""

import subprocess
import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd.programs.identity import Argument, Unknown, digest
from tests import models


def digest_of(*objects):
    """Digest of trees, whose arrays are arguments."""
    return digest(*jax.tree.map(lambda x: Argument.of(x) if eqx.is_array(x) else x, objects))


def pendulum(name="hinge", mass=1.0, axis=(0.0, 1.0, 0.0), bodies=("rod",)):
    rods = {body: mbd.inertia.rod(mass=mass, length=1.0) for body in bodies}
    joint = mbd.joints.Revolute(mbd.ground, "rod", axis=axis)
    return mbd.Model(bodies=rods, joints={name: joint}, forces={"g": mbd.forces.Gravity()})


def test_structure_and_not_values():
    alike = digest_of(pendulum())
    assert digest_of(pendulum(mass=2.0, axis=(1.0, 0.0, 0.0))) == alike
    others = pendulum("other"), pendulum(bodies=("rod", "second")), mbd.formulate(pendulum())
    found = {alike, *map(digest_of, others)}
    assert len(found) == 4
    single = jax.tree.map(lambda x: jnp.asarray(x, dtype=jnp.float32), pendulum())
    assert digest_of(single) not in found


@pytest.mark.long
def test_what_a_system_has_computed_does_not_count():
    system = mbd.formulate(pendulum())
    before = digest_of(system)
    mbd.simulate(system, {"hinge": 0.1}, t1=0.1, dt=0.05)
    assert digest_of(system) == before


def own_law(x):
    return x


class OwnForce(mbd.forces.Gravity):
    pass


class OwnModule(eqx.Module):
    law: object = eqx.field(static=True)


@pytest.mark.parametrize(
    "value",
    [
        own_law,
        partial(own_law, 1.0),
        OwnForce(),
        OwnModule("name"),
        lambda x: x,
        [{"law": own_law}],
        pendulum().replace({"forces.g": OwnForce()}),
    ],
    ids=["function", "partial", "element", "module", "lambda", "tree", "model"],
)
def test_components_of_the_users_own_have_none(value):
    with pytest.raises(Unknown):
        digest_of(value)


def test_values_that_differ():
    values = [
        None, False, 0, 0.0, -0.0, "0", b"0", (), [], {}, (0,), [0], (0, 0), ((0,), 0), {"a": 0},
        {0}, frozenset({0}), np.zeros(1), np.zeros(1, np.float32), np.zeros((1, 1)), np.float64(0),
        int, float, jnp.sin, np.sin, partial(jnp.sin), partial(jnp.sin, 0), mbd.Frame("a"),
        mbd.Frame("b"), mbd.GeneralizedAlpha(0.9), mbd.RESULTS.successful, ("a", "bc"), ("ab", "c"),
    ]  # fmt: skip
    assert len({digest(x) for x in values}) == len(values)
    assert digest({"a", "b", "c"}) == digest({"c", "b", "a"})


def test_values_that_refer_to_themselves():
    circle = []
    circle.append(circle)
    with pytest.raises((Unknown, RecursionError)):
        digest(circle)


CODE = """
import jax
import jaxmbd as mbd
from tests.programs.test_identity import digest_of, pendulum
print(digest_of(mbd.formulate(pendulum()), {"a", "b"}, mbd.GeneralizedAlpha(0.9), mbd.simulate))
"""


@pytest.mark.long
def test_in_other_processes():
    command = [sys.executable, "-c", CODE]
    found = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(2)]
    assert found[0] == found[1] != b""


def test_models_of_the_tests_have_digests():
    systems = [mbd.formulate(models.chain(3), mbd.MaximalCoordinates())]
    assert all(len(digest_of(x)) == 64 for x in systems)
