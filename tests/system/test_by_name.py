"""Everything indexed by name is a mapping."""

import ast
import importlib
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxmbd
from jaxmbd.identification import Prediction
from jaxmbd.lie import Pose
from jaxmbd.system.abstract import NamedPoses, NamedTwists

ROOT = Path(jaxmbd.__file__).parent


def indexed_classes():
    """Modules and names of all classes that define `__getitem__`."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        nodes = ast.walk(ast.parse(text)) if "__getitem__" in text else ()
        for node in (x for x in nodes if isinstance(x, ast.ClassDef)):
            if any(isinstance(x, ast.FunctionDef) and x.name == "__getitem__" for x in node.body):
                yield module.removesuffix(".__init__"), node.name


def test_all_classes_with_an_index_are_mappings():
    found = list(indexed_classes())
    assert {"NamedPoses", "NamedTwists", "Fit", "Prediction"} <= {name for _, name in found}
    for module, name in found:
        indexed = getattr(importlib.import_module(module), name)
        for method in ("__contains__", "__iter__", "__len__", "keys", "items", "get"):
            assert hasattr(indexed, method), (name, method)


POSES = NamedPoses(("rod", None, "hinge:child"), Pose(jnp.zeros((3, 3)), jnp.ones((3, 3, 3))))
TWISTS = NamedTwists(("rod", None, "hinge:child"), jnp.zeros((5, 3, 6)))
READINGS = Prediction({"rod": jnp.zeros(2), "hinge:child": jnp.ones(2)}, 1, None)


@pytest.mark.parametrize("mapping", [POSES, TWISTS, READINGS], ids=lambda x: type(x).__name__)
def test_names_are_listed_and_tested(mapping):
    names = ["rod", "hinge:child"]
    assert list(mapping) == list(mapping.keys()) == [name for name, _ in mapping.items()] == names
    assert len(mapping) == len(mapping.values()) == 2
    assert "rod" in mapping
    assert not any(x in mapping for x in ("bar", None, 0))
    assert mapping.get("bar") is None
    assert dict(mapping).keys() == mapping.keys()
    assert (mapping == jax.tree.map(lambda x: x, mapping)) in (True, jnp.array(True))
    assert mapping != {}
    with pytest.raises(KeyError):
        mapping["bar"]


def test_an_unknown_frame_is_told_with_the_known_ones():
    with pytest.raises(KeyError, match=r"unknown frame 'rood'.*rod"):
        POSES["rood"]
