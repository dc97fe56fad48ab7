"""Every integrator on every formulation: it moves the system, or says before why it cannot."""

import inspect

import jax
import jax.numpy as jnp
import pytest

import jaxmbd as mbd
from jaxmbd import integrators
from jaxmbd.system.constraints import n_constraints
from jaxmbd.system.nodal import AbstractNodalSystem
from tests.marks import thorough_but
from tests.models import FORMULATIONS, chain, name_of

KINDS = [
    kind
    for kind in (getattr(integrators, name) for name in integrators.__all__)
    if issubclass(kind, integrators.AbstractIntegrator) and not inspect.isabstract(kind)
]


ALL = (*FORMULATIONS, mbd.NaturalCoordinates(rigid=True), mbd.PointCoordinates("zx"))


def needs(kind, system):
    """The trait that the integrator needs and the system lacks, or None."""
    if kind in (mbd.EnergyMomentum, mbd.EnergyDecaying) and not system.absolute:
        return "the poses", "MaximalCoordinates"
    if kind is mbd.SimoGonzalez and not isinstance(system, AbstractNodalSystem):
        return "points and vectors", "NaturalCoordinates"
    if kind is mbd.SemiImplicitEuler and n_constraints(system) > 0:
        return "a system without constraints,", "ExplicitRK"
    return None


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("formulation", thorough_but(FORMULATIONS, ALL), ids=name_of)
def test_integrator_on_formulation(formulation, kind):
    system = mbd.formulate(chain(1), formulation)
    start = mbd.assemble(system, {"jlink0000": 0.3}, {"jlink0000": 1.0})
    missing = needs(kind, system)
    if missing is not None:
        what, instead = missing
        who = f"{kind.__name__} needs {what} .*{type(system).__name__}.*use {instead}"
        with pytest.raises(mbd.IncompatibleIntegrator, match=who):
            mbd.rollout(system, start, dt=0.01, n_steps=20, integrator=kind())
        return
    states = mbd.rollout(system, start, dt=0.01, n_steps=20, integrator=kind())
    end = jax.tree.map(lambda x: x[-1], states)
    tip = system.frames(0.0, end.q)["link0000"].R[:, 0]
    # The angle after 0.2 s, to the accuracy of an order of 2; of order 1, of 1.
    error = 3e-2 if kind is mbd.SemiImplicitEuler else 2e-3
    assert jnp.arctan2(-tip[2], tip[0]) == pytest.approx(1.0222, abs=error)
