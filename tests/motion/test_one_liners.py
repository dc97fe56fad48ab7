"""Analyses in one line, from a model and values of joints, also under transformations."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmbd as mbd

DT, T1 = 0.05, 0.2


@pytest.fixture(scope="module")
def model():
    return mbd.Model(
        bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), (0.5, 0, 0))},
        joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=(0, 1, 0))},
        forces={"gravity": mbd.forces.Gravity()},
        frames={"tip": mbd.Frame("rod", (1.0, 0, 0))},
    )


@pytest.fixture(scope="module")
def system(model):
    return mbd.formulate(model)


@pytest.fixture(scope="module")
def motion(model):
    return mbd.simulate(model, {"hinge": 0.3}, t1=T1, dt=DT)


@pytest.mark.thorough
def test_from_a_model_and_a_guess(system, motion):
    state = mbd.assemble(system, {"hinge": 0.3})
    expected = mbd.simulate(system, state, t1=T1, dt=DT)
    assert np.array_equal(motion.states.q, expected.states.q)
    assert np.array_equal(motion.ts, np.arange(5) * DT)
    from_dict = mbd.simulate(system, {"hinge": 0.3}, t1=T1, dt=DT)
    assert np.array_equal(from_dict.states.q, expected.states.q)
    steps = mbd.rollout(system, {"hinge": 0.3}, DT, 4)
    assert np.allclose(steps.q, expected.states.q[1:], atol=1e-14)


@pytest.mark.long
def test_the_same_line_under_jit_and_vmap(model, motion):
    """The number of fixed steps is known, although `jit` converts every number of JAX's."""

    def line(angle):
        solution = mbd.simulate(model, {"hinge": angle}, t1=T1, dt=DT)
        return solution.states.q, solution.reactions["hinge"]

    q, wrench = jax.jit(line)(0.3)
    assert np.allclose(q, motion.states.q, atol=1e-13)
    assert np.allclose(wrench, motion.reactions["hinge"], atol=1e-11)
    batch, _ = jax.jit(jax.vmap(line))(jnp.array([0.3, 0.5]))
    assert np.allclose(batch[0], motion.states.q, atol=1e-13)


@pytest.mark.long
def test_times_under_jit(system, motion):
    @jax.jit
    def several(dt):
        equal = mbd.simulate(system, {"hinge": 0.3}, t1=T1, saveat=0.1)
        some = mbd.simulate(system, {"hinge": 0.3}, t1=T1, dt=dt, max_steps=6)
        return equal.ts, equal.states.q, some.ts, some.states.q

    ts, q, every, steps = several(DT)
    assert np.allclose(ts, [0.0, 0.1, 0.2])
    assert np.allclose(q[-1], motion.states.q[-1], atol=1e-4)
    # Rows up to max_steps, of which the last are unused.
    assert np.allclose(every[:5], motion.ts)
    assert np.all(np.isinf(every[5:]))
    assert np.allclose(steps[:5], motion.states.q, atol=1e-13)

    def interval(t1):
        return mbd.simulate(system, {"hinge": 0.3}, t1=t1, saveat=0.1).states.q

    with pytest.raises(mbd.ModelError, match="needs t0 and t1 that are not traced"):
        jax.eval_shape(interval, T1)


@pytest.mark.long
def test_a_compiled_simulation_returns_the_trajectory_once(system):
    def run(angle):
        return eqx.filter(mbd.simulate(system, {"hinge": angle}, t1=T1, dt=DT), eqx.is_array)

    shapes = [x.shape for x in jax.tree.leaves(jax.eval_shape(run, 0.3))]
    assert shapes.count((5, 1)) == 2  # q and v.
    assert shapes.count((5,)) == 1  # ts


@pytest.mark.long
def test_raw_has_the_saved_states(motion):
    assert motion.raw.ts is motion.ts
    assert motion.raw.ys.q is motion.states.q


@pytest.mark.long
def test_reactions_over_time(system, motion):
    last = jax.tree.map(lambda x: x[-1], motion.states)
    expected = mbd.reactions(system, motion.ts[-1], last)["hinge"]
    assert motion.reactions["hinge"].shape == (5, 6)
    assert np.allclose(motion.reactions["hinge"][-1], expected, atol=1e-12)


@pytest.mark.long
def test_frames_are_computed_once(motion):
    assert motion.frames is motion.frames
    assert motion.rows(np.array([0, 1])).frames["tip"].p.shape == (2, 3)
    changed = eqx.tree_at(lambda m: m.states.q, motion, motion.states.q + 1.0)
    assert not np.allclose(changed.frames["tip"].p, motion.frames["tip"].p)

    @jax.jit
    def height(x):
        # A motion from outside: its frames are computed in the trace and must not outlive it.
        return x * fresh.frames["tip"].p[-1, 2]

    fresh = motion.rows(np.arange(5))
    assert np.allclose(height(2.0), 2 * motion.frames["tip"].p[-1, 2])
    assert np.allclose(fresh.frames["tip"].p, motion.frames["tip"].p)


@pytest.mark.long
def test_rows_of_a_motion(motion):
    ends = motion.rows([0, -1])
    assert np.array_equal(ends.ts, [0.0, T1])
    assert np.array_equal(ends.states.q, motion.states.q[np.array([0, -1])])
    assert np.array_equal(motion.rows(motion.ts < 0.12).ts, motion.ts[:3])
    assert np.array_equal(motion.rows(slice(1, 3)).ts, motion.ts[1:3])
    assert np.array_equal(motion.rows(-1).ts, motion.ts[-1:])
    assert jax.jit(lambda x: motion.rows(x).ts)(jnp.array([2])) == motion.ts[2]
    for wrong in ([0, 5], [True], "first", [0.5], None, [[0, 1]]):
        with pytest.raises(mbd.ModelError, match=r"rows: index must be .*from -5 to 4"):
            motion.rows(wrong)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]) if eqx.is_array(x) else x, motion)
    with pytest.raises(mbd.ModelError, match="one motion, not for a batch"):
        batch.rows([0])


@pytest.mark.thorough
def test_comparison_of_two_formulations(model, motion):
    other = mbd.simulate(
        mbd.formulate(model, mbd.MaximalCoordinates()), {"hinge": 0.3}, t1=T1, dt=DT
    )
    apart = motion.compare(other)
    assert apart.distances["tip"].shape == apart.ts.shape == (5,)
    expected = np.linalg.norm(motion.frames["tip"].p - other.frames["tip"].p, axis=1)
    assert np.allclose(apart.distances["tip"], expected, atol=1e-15)
    assert 0 < apart.distance < 1e-4
    turned = eqx.tree_at(lambda m: m.states.q, motion, motion.states.q + 0.1)
    assert np.allclose(motion.compare(turned).angles["rod"], 0.1)
    assert "tip" in str(apart)
    with pytest.raises(mbd.ModelError, match=r"shape \(5,\) and \(3,\)"):
        motion.compare(motion.rows(np.arange(3)))
    with pytest.raises(mbd.ModelError, match="other times"):
        motion.compare(eqx.tree_at(lambda m: m.ts, motion, motion.ts + 1.0))
    with pytest.raises(mbd.ModelError, match="not a motion"):
        motion.compare(3.0)


@pytest.mark.thorough
def test_a_motion_continued(model, motion):
    whole = mbd.simulate(model, {"hinge": 0.3}, t1=2 * T1, dt=DT)
    longer = motion.continued(2 * T1, dt=DT)
    assert np.allclose(longer.ts, whole.ts)
    assert np.allclose(longer.states.q, whole.states.q, atol=1e-12)
    with pytest.raises(mbd.ModelError, match="t1 must come after t0"):
        motion.continued(T1, dt=DT)
    failed = mbd.simulate(model, {"hinge": 0.3}, t1=T1, max_steps=1, throw=False)
    with pytest.raises(mbd.ModelError, match="has failed"):
        failed.continued(2 * T1)


METHODS = {
    "explicit": (mbd.ExplicitRK(), mbd.MaximalCoordinates()),
    "generalized-alpha": (mbd.GeneralizedAlpha(), mbd.MaximalCoordinates()),
    "BDF": (mbd.BDF(), mbd.MaximalCoordinates()),
    "energy-decaying": (mbd.EnergyDecaying(), mbd.MaximalCoordinates()),
    "Kvaerno3": (diffrax.Kvaerno3(), mbd.JointCoordinates()),
    "semi-implicit": (mbd.SemiImplicitEuler(), mbd.JointCoordinates()),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", METHODS)
def test_saved_values_other_than_states(model, name):
    """Several kinds at once, dense output, an event and a continuation, of every integrator."""
    method, formulation = METHODS[name]
    system = mbd.formulate(model, formulation)
    state = mbd.assemble(system, {"hinge": 0.3})
    saved = {
        "end": diffrax.SubSaveAt(t1=True),
        "height": diffrax.SubSaveAt(
            ts=jnp.array([0.0, 0.12, T1]), fn=lambda t, y, args: args.frames(t, y.q)["tip"].p[2]
        ),
        "every": diffrax.SubSaveAt(t0=True, steps=2),
    }
    options = {"dt": DT, "integrator": method}
    saveat = diffrax.SaveAt(subs=saved, dense=True)
    motion = mbd.simulate(system, state, t1=T1, saveat=saveat, **options)
    last = jax.tree.map(lambda x: x[-1], motion.states["end"])
    assert motion.states["height"].shape == (3,)
    assert np.allclose(motion.states["height"][-1], system.frames(T1, last.q)["tip"].p[2])
    assert np.isfinite(motion.states["every"].q).all(axis=1).sum() == 3
    assert np.allclose(motion.raw.evaluate(jnp.asarray(T1)).q, last.q)
    # Dense output stays on the manifold: the tip is at its distance from the hinge.
    between = system.frames(0.12, motion.raw.evaluate(jnp.asarray(0.12)).q)["tip"].p
    assert np.allclose(np.linalg.norm(between), 1.0, atol=1e-4)
    assert np.allclose(between[2], motion.states["height"][1], atol=1e-12)
    for part in ("frames", "energy", "reactions", "element_states"):
        with pytest.raises(mbd.ModelError, match=f"Solution.{part}: the motion has no states"):
            getattr(motion, part)
    for call in (motion.finite, motion.plot, motion.to_xarray, motion.to_pandas):
        with pytest.raises(mbd.ModelError, match="give times in saveat"):
            call()
    event = diffrax.Event(lambda t, y, args, **_: args.frames(t, y.q)["tip"].p[2] + 0.35)
    keep = diffrax.SaveAt(ts=jnp.linspace(0.0, T1, 5), t1=True)
    ended = mbd.simulate(system, state, t1=T1, event=event, saveat=keep, **options).finite()
    assert ended.ts[-1] < T1
    assert ended.frames["tip"].p[-1, 2] < -0.35 < ended.frames["tip"].p[0, 2]
    longer = ended.continued(T1, **options)
    assert np.allclose(longer.ts[-1], T1)
    # BDF(2) restarts by two steps of order 1, each with an error of h² v̇ / 2.
    apart = DT**2 * 1.5 * 9.81 if isinstance(method, mbd.BDF) else 2e-3
    assert np.allclose(longer.frames["tip"].p[-1, 2], motion.states["height"][-1], atol=apart)


def test_replaced_numbers_and_components(model):
    changed = model.replace({"bodies.rod.mass": 2.0, "joints.hinge.axis": (0, 3, 0)})
    assert changed.bodies["rod"].mass == 2.0
    assert model.bodies["rod"].mass == 1.0
    assert np.array_equal(changed.joints["hinge"].axis, [0, 1, 0])  # As of the constructor.
    ball = mbd.inertia.sphere(3.0, 0.1)
    assert model.replace({"bodies.rod": ball}).bodies["rod"].mass == 3.0
    masses = jnp.array([1.0, 2.0])
    batch = jax.vmap(lambda m: model.replace({"bodies.rod.mass": m}))(masses)
    assert np.array_equal(batch.bodies["rod"].mass, masses)
    slope = jax.grad(lambda m: 3 * model.replace({"bodies.rod.mass": m}).bodies["rod"].mass)(1.0)
    assert slope == 3.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"bodies.bar.mass": 1.0}, "no 'bar'; known are 'rod'"),
        ({"bodies.rod.weight": 1.0}, "no 'weight'; known are 'com', 'inertia', 'mass'"),
        ({"bodies.rod": 1.0}, "is a RigidBody, not a number"),
        ({"bodies": 1.0}, "components by name, 'rod'; name one"),
        ({"bodies.rod.mass": -1.0}, "body 'rod': mass must be positive"),
        ({"bodies.rod.mass": [1.0, 2.0]}, "'bodies.rod.mass' must be a number"),
        ({"frames.tip.body": "bar"}, "replace its component"),
        ({1: 2.0}, "1 is not a path"),
        (2.0, "a dict {path: value}"),
    ],
)
def test_replacements_that_make_no_sense(model, values, message):
    with pytest.raises(mbd.ModelError, match=message):
        model.replace(values)


@pytest.mark.long
def test_predictions_without_readings(model):
    ts = np.linspace(0.0, T1, 5)
    spin = {"spin": mbd.sensors.AngularVelocity("tip")}
    read = mbd.predict(model, ts, {"hinge": 0.3}, sensors=spin, substeps=1)
    record = mbd.Experiment(ts, {"hinge": np.ones(5)}, {"hinge": 0.3})
    assert np.array_equal(read["hinge"], mbd.predict(model, record, substeps=1)["hinge"])
    assert read["spin"].shape == (5, 3)
    with pytest.raises(mbd.DataError, match="records have their own guess"):
        mbd.predict(model, record, {"hinge": 0.3})
    with pytest.raises(mbd.DataError, match="two or more times"):
        mbd.predict(model, 1.0)
    with pytest.raises(mbd.ModelError, match="unknown joint 'elbow'"):
        mbd.predict(model, ts, {"elbow": 0.3})


@pytest.mark.long
def test_names_of_records_in_errors(model):
    ts = np.linspace(0.0, T1, 5)
    good = mbd.Experiment(ts, {"hinge": np.zeros(5)})
    wide = mbd.Experiment(ts, {"hinge": np.zeros((5, 2))}, name="run 3")
    with pytest.raises(mbd.DataError, match=r"experiment 1 \('run 3'\): 'hinge' has shape"):
        mbd.predict(model, [good, wide])
    astray = mbd.Experiment(ts, {"hinge": np.zeros(5)}, {"elbow": 1.0}, name="run 4")
    with pytest.raises(mbd.ModelError, match=r"experiment 0 \('run 4'\): guess: unknown joint"):
        mbd.predict(model, astray)
    part = mbd.Experiment(ts, {"hinge": np.zeros(5)}, name="run 5").part(1, 4)
    assert part.name == "run 5, rows 1 to 4"


def test_names_do_not_split_batches():
    ts = np.linspace(0.0, T1, 5)
    runs = [mbd.Experiment(ts, {"hinge": np.zeros(5)}, name=name) for name in ("a", "b")]
    assert jax.tree.structure(runs[0]) == jax.tree.structure(runs[1])


@pytest.mark.thorough
def test_a_misfit_under_jit(model):
    record = mbd.Experiment(np.linspace(0.0, T1, 5), {"hinge": np.zeros(5)})
    misfit = mbd.misfit(model, record, ["bodies.rod.mass"], substeps=1)
    assert np.allclose(jax.jit(misfit)(misfit.start), eqx.filter_jit(misfit)(misfit.start))


ANALYSES = {
    "inspect": lambda of, at: mbd.inspect(of, at).report,
    "linearize": lambda of, at: mbd.linearize(of, 0.0, at).A,
    "equilibrium": lambda of, at: mbd.equilibrium(of, at).state.q,
    "load_path": lambda of, at: mbd.load_path(of, at, "gravity", [0.5, 1.0]).states.q,
    "trajectory_growth": lambda of, at: mbd.trajectory_growth(of, at, DT, 4).growth,
}
SLOW = [pytest.param(name, marks=pytest.mark.long) for name in list(ANALYSES)[2:]]


@pytest.mark.long
@pytest.mark.parametrize("name", ["inspect", "linearize", *SLOW])
def test_analyses_take_a_model_and_a_guess(model, system, name):
    analysis, lowest = ANALYSES[name], {"hinge": np.pi / 2}
    expected = analysis(system, mbd.assemble(system, lowest))
    assert np.array_equal(analysis(model, lowest), expected)
    assert np.array_equal(analysis(system, lowest), expected)


@pytest.mark.long
def test_analyses_begin_at_the_reference_position(model):
    spring = mbd.forces.TorsionalSpringDamper("hinge", 50.0)
    sprung = model.with_(forces={"gravity": None, "spring": spring})
    rest = mbd.equilibrium(sprung)
    np.testing.assert_allclose(rest.state.q, 0.0, atol=1e-12)
    np.testing.assert_allclose(rest.eigenvalues, 150.0)
    np.testing.assert_allclose(mbd.linearize(sprung).A[1, 0], -150.0)
    assert mbd.inspect(sprung).dof == 1
