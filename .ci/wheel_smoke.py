"""What an installed wheel must do without the repository and the extras, in an empty folder."""

import importlib.metadata
import importlib.resources
import importlib.util
from pathlib import Path

import jax

import jaxmbd as mbd

jax.config.update("jax_enable_x64", True)
repository = Path(__file__).resolve().parents[1]
assert not Path(mbd.__file__).is_relative_to(repository / "jaxmbd"), mbd.__file__
for package in ("jaxmbd", "scalarjit"):
    assert importlib.resources.files(package).joinpath("py.typed").is_file()
for optional in ("k3d", "matplotlib", "xarray"):
    assert importlib.util.find_spec(optional) is None, f"{optional}: not an empty environment"
assert importlib.metadata.version("jaxmbd") in mbd.report_environment()

model = mbd.Model(
    bodies={"rod": mbd.inertia.shifted(mbd.inertia.rod(1.0, 1.0), (0.5, 0, 0))},
    joints={"hinge": mbd.joints.Revolute(mbd.ground, "rod", axis=(0, 1, 0))},
    forces={"gravity": mbd.forces.Gravity()},
)
mbd.io.save_model(model, "model.json")
motion = mbd.simulate(mbd.io.load_model("model.json"), {"hinge": 0.3}, t1=0.2)
assert abs(motion.energy.total[-1] - motion.energy.total[0]) < 1e-6
slope = jax.grad(lambda g: mbd.rollout(model.replace({"forces.gravity.g": g}), {}, 0.1, 2).q.sum())
assert abs(slope(model.forces["gravity"].g)).max() > 0
for name in dir(mbd):
    getattr(mbd, name)  # Also the parts that are imported on demand.
print(f"wheel of jaxmbd {importlib.metadata.version('jaxmbd')}: ok")
