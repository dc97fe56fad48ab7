# pyright: strict, reportUnnecessaryTypeIgnoreComment=true
"""A first script as a type checker reads it: pyright, with the installed wheel and nothing else."""

from typing import assert_type

import jaxmbd as mbd

rod = mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), (0.5, 0, 0))
hinge = mbd.joints.Revolute(mbd.ground, "rod", axis=(0, 1, 0))
forces = {"gravity": mbd.forces.Gravity(), "bearing": mbd.forces.ViscousFriction("hinge", 0.1)}
model = assert_type(mbd.Model({"rod": rod}, {"hinge": hinge}, forces), mbd.Model)
system = mbd.formulate(model, mbd.MaximalCoordinates())
state = assert_type(mbd.assemble(system, {"hinge": 0.3}), mbd.State)
motion = assert_type(mbd.simulate(system, state, t1=0.2), mbd.Solution)
record = mbd.Experiment(motion.ts, {"hinge": motion.joints["hinge"].q}, guess={"hinge": 0.3})
fit = assert_type(mbd.identify(model, record, ["forces.bearing.coefficient"]), mbd.Fit)
print(assert_type(fit.model, mbd.Model), mbd.equilibrium(system, state).stable)

# Mistakes that a type checker finds; the comments are errors if it does not.
mbd.simulate(model, {"hinge": 0.3}, t1=1.0, progres=True)  # pyright: ignore[reportCallIssue]
mbd.forces.ViscousFriction(3.0)  # pyright: ignore[reportCallIssue]
motion.velocity.sum()  # pyright: ignore
