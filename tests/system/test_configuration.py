"""Forward kinematics run once in an evaluation, and steps stay short programs."""

import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
import scalarjit
from jaxmbd import forces, joints
from jaxmbd.system.acceleration import constrained_accelerations, free_accelerations
from tests import models
from tests.system import linkages

FORMULATIONS = (
    mbd.JointCoordinates(),
    mbd.MaximalCoordinates(),
    mbd.NaturalCoordinates(rigid=True),
)


def driven(formulation):
    """A four-bar with a spring on a joint, friction, weight and a driver."""
    linkage = linkages.four_bar()
    acting = {
        "gravity": forces.Gravity(),
        "spring": forces.TorsionalSpringDamper("left", 3.0, 0.1),
        "friction": forces.ViscousFriction("right", 0.1),
    }
    drivers = {"motor": joints.Driver("left", lambda t: jnp.sin(t))}
    return mbd.formulate(linkages.hinged(**linkage, forces=acting, drivers=drivers), formulation)


def configurations(monkeypatch, system, function):
    """How many configurations a program computes."""
    made, compute = [], type(system).configuration
    monkeypatch.setattr(
        type(system), "configuration", lambda self, *given: made.append(1) or compute(self, *given)
    )
    jax.make_jaxpr(function)(linkages.drawn(system))
    return len(made)


@pytest.mark.long
@pytest.mark.parametrize("formulation", FORMULATIONS, ids=models.name_of)
def test_accelerations_with_constraints_compute_one_configuration(monkeypatch, formulation):
    system = driven(formulation)
    seen = configurations(
        monkeypatch, system, lambda y: constrained_accelerations(system, jnp.zeros(()), y, None)
    )
    assert seen == 1


@pytest.mark.parametrize("formulation", FORMULATIONS[:1], ids=models.name_of)
def test_accelerations_of_a_tree_compute_one_configuration(monkeypatch, formulation):
    system = mbd.formulate(models.chain(3), formulation)
    with scalarjit.as_part():
        seen = configurations(
            monkeypatch, system, lambda y: free_accelerations(system, jnp.zeros(()), y)
        )
    assert seen == 1


def count(jaxpr, seen=None):
    """Operations of a program, those of its parts included, of evaluations that recur once."""
    seen, total = set() if seen is None else seen, 0
    for equation in jaxpr.eqns:
        total += 1
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else [value]:
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns") and id(inner) not in seen:
                    seen.add(id(inner))
                    total += count(inner, seen)
    return total


@pytest.mark.long
def test_a_step_of_a_four_bar_is_a_short_program():
    """A step of generalized-α in maximal coordinates has 9,750 operations with JAX 0.10.

    Of these 640 are the check of accelerations at velocities off redundant constraints.
    """
    model = linkages.hinged(**linkages.four_bar(), forces={"gravity": forces.Gravity()})
    system = mbd.formulate(model, mbd.MaximalCoordinates())

    def step(state):
        return mbd.rollout(system, state, 0.01, 1, mbd.GeneralizedAlpha())

    assert count(jax.make_jaxpr(step)(linkages.drawn(system)).jaxpr) < 10_000
