"""Changes that recompile, and sizes of programs that do not grow with the mechanism."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import joints
from tests.marks import thorough_but
from tests.models import FORMULATIONS, Traces, chain, name_of


def accelerations(system, state):
    return mbd.accelerations(system, 0.0, state)[0]


def lowered(n, kind, formulation):
    """The program that XLA compiles, without generated code."""
    system = mbd.formulate(chain(n, kind), formulation)
    with scalarjit.enabled(False):
        return eqx.filter_jit(accelerations).lower(system, mbd.assemble(system))


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [joints.Revolute, pytest.param(joints.Spherical, marks=pytest.mark.thorough)],
    ids=lambda k: k.__name__,
)
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=name_of)
def test_programs_do_not_grow_with_the_chain(formulation, kind):
    """Numbers of operations are equal; two formulations have another program for long chains."""
    apart = isinstance(formulation, mbd.MaximalCoordinates | mbd.JointCoordinates)
    for sizes in ((10, 20), (200, 1000)) if apart else ((10, 1000),):
        short, long = (lowered(n, kind, formulation).as_text().count("\n") for n in sizes)
        assert abs(long - short) < 0.1 * short


@pytest.mark.long
@pytest.mark.parametrize("n", thorough_but([50], [50, 500]))
@pytest.mark.parametrize("formulation", FORMULATIONS, ids=name_of)
def test_long_chains_compile(formulation, n):
    """In CPU seconds; the bound is ten times what it takes, and unrolling breaks it."""
    program = lowered(n, joints.Revolute, formulation)
    began = time.process_time()
    program.compile()
    assert time.process_time() - began < 10.0


@pytest.mark.long
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=name_of)
def test_new_numbers_do_not_retrace(formulation):
    model = chain(2)

    def end(system, state, dt):
        return mbd.rollout(system, state, dt, 3).q[-1]

    traced = Traces(end)
    compiled = eqx.filter_jit(traced)
    heavy = eqx.tree_at(lambda m: m.bodies["link0001"].mass, model, jnp.asarray(3.0))
    light = eqx.tree_at(lambda m: m.forces["gravity"].g, model, jnp.array([0, 0, -1.6]))
    ends = []
    for changed, angle, dt in ((model, 0.1, 0.1), (heavy, 0.1, 0.1), (light, 0.5, 0.2)):
        system = mbd.formulate(changed, formulation)
        state = mbd.assemble(system, {"jlink0000": angle}, {"jlink0001": 1.0})
        ends.append(compiled(system, state, jnp.asarray(dt)))
    assert traced.count == 1
    assert not jnp.allclose(ends[0], ends[1])
    longer = mbd.formulate(chain(3), formulation)
    compiled(longer, mbd.assemble(longer), jnp.asarray(0.1))
    assert traced.count == 2


@pytest.mark.thorough
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS[:1], FORMULATIONS), ids=name_of)
def test_a_batch_is_its_members(formulation):
    """1024 masses and starts at once; looked at one by one here and there."""
    model = chain(2)

    def end(mass, angle):
        changed = eqx.tree_at(lambda m: m.bodies["link0000"].mass, model, mass)
        system = mbd.formulate(changed, formulation)
        state = mbd.assemble(system, {"jlink0000": angle})
        return mbd.rollout(system, state, 0.01, 20).q[-1]

    masses, angles = jnp.linspace(0.5, 2.0, 1024), jnp.linspace(-1.0, 1.0, 1024)
    batch = jax.jit(jax.vmap(end))(masses, angles)
    alone = jax.jit(end)
    for i in (0, 1, 500, 1023):
        assert jnp.max(jnp.abs(batch[i] - alone(masses[i], angles[i]))) < 1e-12
