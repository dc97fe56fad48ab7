"""Animations that the built documentation plays in a browser, without Python and without a network.

    python docs/animations.py [NAME ...]

writes the motions of `docs/gallery.py` as pages without k3d's own script, which is most of a page,
to `docs/animations/NAME.html`. Building the documentation completes them, see `write_all`.
"""

import argparse
import re
import sys
from pathlib import Path

import k3d

DOCS = Path(__file__).resolve().parent
STORED = DOCS / "animations"
NAMES = ("wheel_loader", "four_bar", "stewart_platform")
SCRIPT = re.compile(r"(window\.k3dCompressed = ')([^']*)(')")
# Options of pages and of GIF files.
OPTIONS = ("trace", "speed", "view", "visuals", "scale", "boxes", "deformation", "contours")


def without_script(page):
    """A page without k3d's script; **raises** `ValueError` if there is not exactly one."""
    stored, count = SCRIPT.subn(r"\1\3", page)
    if count != 1:
        raise ValueError(f"a page has {count} scripts of k3d, expected one: see its template")
    return stored


def completed(stored):
    """A stored page with the script of the installed k3d."""
    script = SCRIPT.search(k3d.Plot().get_snapshot())
    if script is None or not script[2]:
        raise ValueError("the pages of this version of k3d have no compressed script")
    return SCRIPT.sub(lambda found: found[1] + script[2] + found[3], stored)


def write_all(folder):
    """Complete all stored pages, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in STORED.glob("*.html"):
        page = completed(path.read_text(encoding="utf-8"))
        (folder / path.name).write_text(page, encoding="utf-8")


def main(names):
    """Store the named animations."""
    sys.path[:0] = [str(DOCS), str(DOCS.parent)]
    import gallery

    STORED.mkdir(exist_ok=True)
    for name in names or NAMES:
        motion, options = gallery.PICTURES[name]()
        options = {key: value for key, value in options.items() if key in OPTIONS}
        path = STORED / f"{name}.html"
        motion.animate(path, labels=False, fps=20, **options)
        page = without_script(path.read_text(encoding="utf-8"))
        path.write_text(page, encoding="utf-8")
        sys.stdout.write(f"{name}: {len(page) / 1e3:.0f} kB\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    main(parser.parse_args().names)
