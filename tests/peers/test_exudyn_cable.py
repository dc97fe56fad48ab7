"""The ANCF cable beside Exudyn's: a cantilever that a force at its tip bends far."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmbd import bodies

LENGTH, EA, EI, FORCE, N = 2.0, 1e4, 3.0, 6.0, 4


@eqx.filter_jit
def bent(cable):
    """Positions of the nodes under a force at the tip along z that grows in five steps."""

    def residual(eta, force):
        lifted = jax.grad(lambda x: cable.nodal(x)[-1, 0, 2])(eta)
        return jax.grad(cable.elastic_energy)(eta) - force * lifted

    def newton(eta, force):
        return eta - jnp.linalg.solve(jax.jacfwd(residual)(eta, force), residual(eta, force))

    def increment(eta, force):
        return jax.lax.fori_loop(0, 12, lambda _, x: newton(x, force), eta), None

    forces = FORCE * jnp.linspace(0.2, 1.0, 5)
    eta, _ = jax.lax.scan(increment, jnp.zeros(cable.n_elastic), forces)
    return cable.nodal(eta)[:, 0], jnp.linalg.norm(residual(eta, forces[-1]))


def bent_in_exudyn():
    import exudyn as exu
    from exudyn import itemInterface as items

    system = exu.SystemContainer().AddSystem()
    h = LENGTH / N
    nodes = [
        system.AddNode(items.NodePoint2DSlope1(referenceCoordinates=[k * h, 0.0, 1.0, 0.0]))
        for k in range(N + 1)
    ]
    for k in range(N):
        system.AddObject(
            items.ObjectANCFCable2D(
                nodeNumbers=nodes[k : k + 2],
                length=h,
                massPerLength=0.5,
                bendingStiffness=EI,
                axialStiffness=EA,
                useReducedOrderIntegration=0,
            )
        )
    ground = system.AddMarker(
        items.MarkerNodeCoordinate(nodeNumber=system.AddNode(items.NodePointGround()), coordinate=0)
    )
    for coordinate in (0, 1, 3):  # Position and direction of the base; it may stretch.
        held = items.MarkerNodeCoordinate(nodeNumber=nodes[0], coordinate=coordinate)
        pair = [ground, system.AddMarker(held)]
        system.AddObject(items.ObjectConnectorCoordinate(markerNumbers=pair))
    tip = system.AddMarker(items.MarkerNodePosition(nodeNumber=nodes[-1]))
    system.AddLoad(items.LoadForceVector(markerNumber=tip, loadVector=[0.0, FORCE, 0.0]))
    system.Assemble()
    settings = exu.SimulationSettings()
    settings.staticSolver.numberOfLoadSteps = 5
    settings.staticSolver.newton.relativeTolerance = 1e-11
    settings.staticSolver.verboseMode = 0
    settings.solution.file.write = False
    system.SolveStatic(settings)
    return [system.GetNodeOutput(node, exu.OutputVariableType.Position) for node in nodes]


@pytest.mark.long
@pytest.mark.peers
def test_bent_cantilever_is_that_of_exudyn():
    pytest.importorskip("exudyn", reason="exudyn not installed: pip install -e '.[peers]'")
    found, residual = bent(bodies.ANCFCable(LENGTH, EA, EI, 0.5, N, planar=True))
    assert residual < 1e-9
    x, y, _ = np.asarray(bent_in_exudyn()).T
    np.testing.assert_allclose(found[:, 0], x, atol=1e-7)
    np.testing.assert_allclose(found[:, 2], y, atol=1e-7)
