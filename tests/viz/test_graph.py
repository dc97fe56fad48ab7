"""Pictures of joint graphs: what is drawn, in which style, and that nothing hides anything."""

import importlib
import itertools
import sys

import matplotlib as mpl
import numpy as np
import pytest

import jaxmbd as mbd
from jaxmbd import inertia, joints
from jaxmbd.viz import plot_graph
from tests import models
from tests.formulations.mechanisms import platform

BALL = inertia.sphere(1.0, 0.1)
KINDS = (joints.Revolute, joints.Prismatic, joints.Spherical, joints.Universal, joints.Planar)


def tree(n: int, seed: int = 0) -> mbd.Model:
    """Bodies on the ground or on one of the six before them."""
    rng, names, links = np.random.default_rng(seed), [f"link{k:02d}" for k in range(n)], {}
    for k, name in enumerate(names):
        carrier = rng.choice(["ground", *names[:k]][-7:])
        links[f"j{k:02d}"] = KINDS[rng.integers(len(KINDS))](str(carrier), name)
    return mbd.Model(dict.fromkeys(names, BALL), links)


def hexapod() -> mbd.Model:
    """Six driven legs between the ground and a platform."""
    bodies, links = {"platform": BALL}, {}
    for k in range(1, 7):
        bodies |= {f"cylinder{k}": BALL, f"rod{k}": BALL}
        links |= {
            f"foot{k}": joints.Universal("ground", f"cylinder{k}"),
            f"leg{k}": joints.Prismatic(f"cylinder{k}", f"rod{k}"),
            f"head{k}": joints.Spherical(f"rod{k}", "platform"),
        }
    return mbd.Model(bodies, links, drivers={"pump": joints.Driver("leg2", 0.1)})


def door() -> mbd.Model:
    """Three joints between the same two bodies."""
    links = {name: joints.Revolute("ground", "door") for name in ("bottom", "middle", "top")}
    return mbd.Model({"door": BALL}, links)


def machine() -> mbd.Model:
    """Couplings between joints of the tree and with one that closes a loop; a part that floats."""
    names = ("motor", "pinion", "wheel", "arm", "hand", "drone", "payload")
    links = {
        "shaft": joints.Revolute("ground", "motor"),
        "bearing": joints.Revolute("ground", "pinion"),
        "axle": joints.Revolute("ground", "wheel"),
        "elbow": joints.Revolute("wheel", "arm"),
        "wrist": joints.Spherical("arm", "hand"),
        "table": joints.Planar("ground", "hand"),
        "lock": joints.Revolute("arm", "wheel"),
        "hook": joints.Universal("drone", "payload"),
    }
    couplings = {
        "gear": joints.Coupling("bearing", "shaft", -2.0),
        "wire": joints.Coupling("lock", "axle", 1.0),
    }
    return mbd.Model(dict.fromkeys(names, BALL), links, couplings=couplings)


MODELS = {
    "pendulum": models.chain(1),
    "four-bar": models.four_bar(),
    "platform": platform(),
    "hexapod": hexapod(),
    "door": door(),
    "machine": machine(),
    "chain": models.chain(20),
    "tree of 20": tree(20),
    "tree of 30": tree(30, seed=1),
}


@pytest.fixture(scope="module")
def pictures():
    return {name: plot_graph(model) for name, model in MODELS.items()}


def artists(figure) -> dict:
    """Drawn artists by id."""
    (axes,) = figure.axes
    drawn = [*axes.patches, *axes.lines, *axes.texts]
    assert len({artist.get_gid() for artist in drawn}) == len(drawn)
    return {artist.get_gid(): artist for artist in drawn}


def texts(figure) -> set[str]:
    return {text.get_text() for text in figure.axes[0].texts}


def legend(figure) -> list[str]:
    return [text.get_text() for box in figure.legends for text in box.get_texts()]


def colour(artist) -> str:
    return mpl.colors.to_hex(artist.get_color())


def extents(figure) -> dict:
    """Boxes of bodies, and of all texts but those on them, in pixels."""
    figure.draw_without_rendering()
    drawn = artists(figure)
    return {
        who: artist.get_window_extent()
        for who, artist in drawn.items()
        if not isinstance(artist, mpl.lines.Line2D)
        and not (who.startswith("body ") and who.endswith(" label"))
    }


def in_pixels(figure, line) -> np.ndarray:
    return figure.axes[0].transData.transform(line.get_xydata())


@pytest.mark.long
@pytest.mark.smoke
def test_bodies_joints_and_kinds_are_named(pictures):
    figure = pictures["four-bar"]
    assert texts(figure) == {
        "ground",
        "crank",
        "coupler",
        "rocker",
        "left · Revolute",
        "crank pin · Universal",
        "right · Revolute",
        "rocker pin · Spherical",
    }
    drawn = artists(figure)
    assert drawn["body crank label"].get_text() == "crank"
    assert drawn["joint left label"].get_text() == "left · Revolute"


@pytest.mark.long
def test_joints_that_close_loops_are_dashed_curves_of_another_colour(pictures):
    drawn = artists(pictures["platform"])
    hips = [drawn[f"joint hip{k}"] for k in (1, 2, 3)]
    ankles = [drawn["joint ankle2"], drawn["joint ankle3"]]
    assert {line.get_linestyle() for line in hips} == {"-"}
    assert {line.get_linestyle() for line in ankles} == {"--"}
    assert {colour(line) for line in hips}.isdisjoint({colour(line) for line in ankles})
    assert drawn["joint ankle1"].get_linestyle() == "-"
    for line in ankles:
        points = line.get_xydata()
        turns = np.diff(np.unwrap(np.arctan2(*np.diff(points, axis=0).T)))
        assert np.abs(turns.sum()) > 0.1
        assert colour(drawn[f"{line.get_gid()} label"]) == colour(line)
    assert legend(pictures["platform"]) == ["joint", "joint that closes a loop"]
    assert legend(pictures["pendulum"]) == []


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_nothing_hides_anything(pictures, name):
    """Boxes and labels as they are rendered neither overlap nor leave the figure, and no curve or
    line passes under one that is not its own."""
    figure = pictures[name]
    found = extents(figure)
    for (who, box), (other, another) in itertools.combinations(found.items(), 2):
        assert not box.overlaps(another), f"{who} and {other}"
    for who, box in found.items():
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 + 1e-6
        assert inside, who
        assert box.y1 <= figure.bbox.y1 + 1e-6, who
    for line in figure.axes[0].lines:
        a, b = in_pixels(figure, line)[:-1], in_pixels(figure, line)[1:]
        points = (a[:, None] + np.linspace(0, 1, 20)[:, None] * (b - a)[:, None]).reshape(-1, 2)
        for who, box in found.items():
            own = who in (line.get_gid(), f"{line.get_gid()} label")
            low, high = np.array([box.x0, box.y0]) + 1, np.array([box.x1, box.y1]) - 1
            passes = np.all((points > low) & (points < high), axis=1)
            assert own or not np.any(passes), f"{line.get_gid()} under {who}"


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_no_two_bodies_at_one_place(pictures, name):
    model, drawn = MODELS[name], artists(pictures[name])
    places = {tuple(np.round(drawn[f"body {b}"].get_window_extent().p0, 3)) for b in model.bodies}
    assert len(places) == len(model.bodies)
    assert texts(pictures[name]) >= {"ground", *model.bodies}
    for joint, parts in model.joints.items():
        assert (
            drawn[f"joint {joint} label"].get_text().startswith(f"{joint} · {type(parts).__name__}")
        )


@pytest.mark.long
@pytest.mark.parametrize("name", ["tree of 20", "chain", "platform"])
def test_lines_run_from_parent_to_child(pictures, name):
    """To the right from column to column, or downwards where the picture would be too wide."""
    figure, model = pictures[name], MODELS[name]
    boxes, drawn = extents(figure), artists(figure)
    topology = mbd.formulate(model, mbd.JointCoordinates()).mechanism.topology
    for row, edge in enumerate(topology.edges, start=1):
        parent = boxes[f"body {topology.bodies[edge.parent]}"]
        child = boxes[f"body {topology.bodies[row]}"]
        line = in_pixels(figure, drawn[f"joint {edge.joint}"])
        if name == "chain":
            ends = [(parent.x0 + parent.x1) / 2, parent.y0], [(child.x0 + child.x1) / 2, child.y1]
            assert child.y1 < parent.y0
        else:
            ends = [parent.x1, (parent.y0 + parent.y1) / 2], [child.x0, (child.y0 + child.y1) / 2]
            assert child.x0 > parent.x1
        np.testing.assert_allclose(line[[0, -1]], ends, atol=2.0)
    if name != "chain":
        starts = {
            depth: {round(boxes[f"body {topology.bodies[row]}"].x0) for row in rows}
            for depth in range(topology.depths.max())
            if len(rows := np.flatnonzero(topology.depths == depth))
        }
        assert all(len(found) == 1 for found in starts.values())


@pytest.mark.long
def test_parallel_joints_are_apart(pictures):
    drawn = artists(pictures["door"])
    middles = []
    for name in ("bottom", "middle", "top"):
        points = drawn[f"joint {name}"].get_xydata()
        x = 0.5 * (points[0, 0] + points[-1, 0])
        middles.append(np.interp(x, *points[np.argsort(points[:, 0])].T))
    assert min(abs(a - b) for a, b in itertools.combinations(middles, 2)) > 0.15  # [inch]
    assert sorted(drawn[f"joint {n}"].get_linestyle() for n in ("bottom", "middle", "top")) == [
        "-",
        "--",
        "--",
    ]


@pytest.mark.long
def test_couplings_are_dotted_from_label_to_label(pictures):
    figure = pictures["machine"]
    drawn, boxes = artists(figure), extents(figure)
    for name, ends in (("gear", ("shaft", "bearing")), ("wire", ("axle", "lock"))):
        line = drawn[f"coupling {name}"]
        assert drawn[f"coupling {name} label"].get_text() == f"{name} · Coupling"
        assert line.get_linestyle() == "--"
        assert line.get_linewidth() < drawn["joint shaft"].get_linewidth()
        points = in_pixels(figure, line)
        for end, point in zip(ends, (points[0], points[-1]), strict=True):
            box = boxes[f"joint {end} label"].padded(figure.dpi * 0.1)
            assert box.contains(*point), f"{name} at {end}"
    assert len({colour(drawn[w]) for w in ("coupling gear", "joint lock", "joint shaft")}) == 3
    assert "coupling" in legend(figure)


@pytest.mark.long
def test_floating_bodies_are_marked(pictures):
    drawn = artists(pictures["machine"])
    assert "joint drone" not in drawn
    assert drawn["joint drone label"].get_text() == "floats"
    styles = {name: drawn[f"body {name}"].get_linestyle() for name in MODELS["machine"].bodies}
    assert {name for name, style in styles.items() if style not in ("-", "solid")} == {"drone"}
    assert "floating body" in legend(pictures["machine"])


@pytest.mark.long
def test_driven_joints_say_so(pictures):
    assert "leg2 · Prismatic, driven" in texts(pictures["hexapod"])
    assert "leg3 · Prismatic" in texts(pictures["hexapod"])


@pytest.mark.long
@pytest.mark.parametrize("formulation", [mbd.JointCoordinates(), mbd.MaximalCoordinates()])
def test_a_system_looks_like_its_model(pictures, formulation):
    figure = plot_graph(mbd.formulate(MODELS["four-bar"], formulation))
    assert texts(figure) == texts(pictures["four-bar"])
    np.testing.assert_array_equal(figure.get_size_inches(), pictures["four-bar"].get_size_inches())


def test_names_are_no_formulas():
    model = mbd.Model({"$a$_1": BALL}, {"5 $ joint $": joints.Revolute("ground", "$a$_1")})
    figure = plot_graph(model)
    assert texts(figure) == {"ground", "$a$_1", "5 $ joint $ · Revolute"}
    figure.draw_without_rendering()


@pytest.mark.thorough
def test_a_long_chain_fits_into_a_picture():
    figure = plot_graph(models.chain(300))
    assert max(figure.get_size_inches()) == pytest.approx(200.0)
    drawn = artists(figure)
    assert drawn["body link0007 label"].get_fontsize() < 9.0
    boxes = [drawn[f"body link{k:04d}"].get_window_extent() for k in range(300)]
    assert all(above.y0 > below.y1 for above, below in itertools.pairwise(boxes))


@pytest.mark.long
def test_a_notebook_shows_it_and_pyplot_does_not_know_it(pictures):
    assert pictures["four-bar"]._repr_png_().startswith(b"\x89PNG")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or not pyplot.get_fignums()


def test_missing_matplotlib_names_the_extra(monkeypatch):
    for name in ("matplotlib", "matplotlib.axes"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "jaxmbd.viz.graph.drawing", raising=False)
    with pytest.raises(ImportError, match=r'plot_graph needs .* pip install "jaxmbd\[viz\]"'):
        importlib.import_module("jaxmbd.viz.graph.drawing")


def test_unknown_names_in_viz():
    with pytest.raises(AttributeError, match="has no attribute 'plot_grph'"):
        mbd.viz.plot_grph  # noqa: B018
