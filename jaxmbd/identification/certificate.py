"""Certificates of fits: a folder with data, model, evidence and a report, which can be verified."""

import hashlib
import json
import math
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from scalarjit.whole_files import written_whole

from ..errors import DataError
from ..model.values import as_mapping, as_path
from ..sweeps.chunks import version_of
from .assessment import THRESHOLDS, assess, fitted_again
from .experiment import Experiment
from .fit import Fit
from .prediction import motions_only

FORMAT, SCHEMA = "jaxmbd certificate", 1
CERTIFICATE, PROBLEM, MODEL, REPORT = (
    "certificate.json",
    "problem.json",
    "model.json",
    "report.html",
)
PACKAGES = ("jaxmbd", "jax", "jaxlib", "numpy", "equinox", "diffrax", "optimistix", "scipy")
# Recomputed numbers are equal up to rounding, which a minimization amplifies.
RTOL, ATOL = 1e-3, 1e-6
# The digest of the certificate is computed with zeros in its place.
_BLANK = "0" * 64


def write_certificate(
    fit: Fit,
    path: str | os.PathLike[str],
    validation: Sequence[Experiment],
    sources: Iterable[Any],
    thresholds: Mapping[str, float] | None,
    title: str,
) -> dict[str, Any]:
    """Write a certificate; see `Fit.certificate`."""
    from ..io.model_files import save_model
    from ..io.problem_files import save_problem

    folder = as_path(path, "certificate: path")
    limits = _thresholds(thresholds)
    validation = motions_only(validation, "certificate") if len(validation) else []
    files = [as_path(x, "certificate: sources") for x in sources]
    lost = [str(x) for x in files if not x.is_file()]
    if lost:
        raise DataError(f"certificate: there is no file {', '.join(map(repr, lost))} of `sources`")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise DataError(f"certificate: cannot make the folder {str(folder)!r}: {error}") from error
    save_problem(fit.problem, fit.search, validation, folder / PROBLEM)
    save_model(fit.model, folder / MODEL)
    evidence = assess(fit, validation, limits)
    own = {name: _digest(folder / name) for name in (PROBLEM, MODEL)}
    content: dict[str, Any] = {
        "sha256": _BLANK,
        "format": FORMAT,
        "schema": SCHEMA,
        "title": title,
        "verdict": evidence.pop("verdict"),
        "versions": {name: version_of(name) for name in PACKAGES}
        | {"python": platform.python_version()},
        "search": {**fit.search._asdict(), "method": type(fit.search.method).__name__},
        "thresholds": limits,
        "files": own,
        "sources": {os.path.relpath(x, folder): _digest(x) for x in files},
        "evidence": evidence,
    }
    from ..viz.certificate_report import write_certificate_report

    write_certificate_report(fit, content, validation, folder / REPORT)
    content["files"] = own | {REPORT: _digest(folder / REPORT)}
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    digest = hashlib.sha256(text.encode()).hexdigest()
    with written_whole(folder / CERTIFICATE) as part:
        part.write_text(text.replace(_BLANK, digest, 1), encoding="utf-8")
    return _plain(content) | {"sha256": digest}


class Verification(NamedTuple):
    """The result of `verify`.

    - `differences`: in words, what differs between the certificate and its files or the new fit;
      empty if nothing does.
    - `verdict`: the verdict of the new fit; empty if it could not be made.
    """

    differences: tuple[str, ...]
    verdict: str

    @property
    def passed(self) -> bool:
        """True if nothing differs. The verdict may be `"rejected"` all the same."""
        return not self.differences

    def __str__(self) -> str:
        if self.passed:
            return f"nothing differs; verdict: {self.verdict}"
        return "\n".join(["differs:", *(f"  {x}" for x in self.differences)])


def verify(path: str | os.PathLike[str]) -> Verification:
    """Check the certificate in a folder: its files byte by byte, and its numbers by a new fit.

    The problem in the folder is fitted again from its starting model, with the same starts and
    seed, and all evidence is computed again. Numbers may differ by 1e-3 of their size, since
    minimizations amplify rounding; estimates by 1e-3 of their standard errors. Files that
    `sources` named are compared by their digests.

    **Raises** `DataError` without a certificate in the folder, or for one of another schema.

    For example:

        check = mbd.verify("certificate")
        print(check)
    """
    folder = as_path(path, "verify: path")
    content, differences = _read(folder)
    files = {**content["files"], **content["sources"]}
    differences += list(_changed_files(folder, files))
    try:
        again = _again(folder, content)
    except DataError as error:
        return Verification((*differences, str(error)), "")
    differences += list(_differences(content["evidence"], _plain(again), "evidence"))
    verdict = again["verdict"]
    if verdict != content["verdict"]:
        differences.append(f"verdict: {content['verdict']!r} in the certificate, now {verdict!r}")
    return Verification(tuple(differences), verdict)


def _thresholds(given: Mapping[str, float] | None) -> dict[str, float]:
    given = as_mapping(given, "certificate: thresholds", "{check: limit}", DataError)
    for name, value in given.items():
        if name not in THRESHOLDS:
            raise DataError(
                f"certificate: no threshold {name!r}; there are {', '.join(THRESHOLDS)}"
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise DataError(f"certificate: threshold {name!r} must be positive, got {value!r}")
    return THRESHOLDS | {name: float(x) for name, x in given.items()}


def _read(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The content of the certificate, and whether its own digest differs."""
    file = folder / CERTIFICATE
    try:
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character.
        raise DataError(f"verify: there is no certificate {str(file)!r}: {error}") from error
    try:
        content = json.loads(data.decode("utf-8"))
        digest = content["sha256"]
        known, schema = content["format"] == FORMAT, content["schema"]
        for name in ("files", "sources", "evidence", "thresholds"):
            content[name].keys()
        content["verdict"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"verify: {str(file)!r} is not a complete certificate: {error}") from error
    if not known or schema != SCHEMA:
        raise DataError(
            f"verify: {str(file)!r} is of schema {schema!r}, this jaxmbd reads {SCHEMA}; install "
            f"jaxmbd {content.get('versions', {}).get('jaxmbd', 'of another version')}"
        )
    blank = data.replace(str(digest).encode(), _BLANK.encode(), 1)
    same = hashlib.sha256(blank).hexdigest() == digest
    return content, [] if same else [f"{CERTIFICATE}: its bytes were changed"]


def _changed_files(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    for name, digest in files.items():
        if not (folder / name).is_file():
            yield f"{name}: the file is missing"
        elif _digest(folder / name) != digest:
            yield f"{name}: its bytes were changed"


def _again(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """The evidence from a new fit."""
    from ..io.problem_files import load_problem

    problem, search, validation = load_problem(folder / PROBLEM)
    fit = fitted_again(problem, search)
    return assess(fit, validation, content["thresholds"])


def _differences(
    old: Any, new: Any, where: str, rtol: float = RTOL, atol: float = ATOL
) -> Iterator[str]:
    """In words, where two trees of JSON differ by more than rounding."""
    if isinstance(old, dict) and isinstance(new, dict):
        if "standard_error" in old and _is_number(old["standard_error"]):
            where = f"{where.rpartition('[')[0]} {old.get('name')}"
            rtol, atol = RTOL**2, RTOL * old["standard_error"]
        for key in old:
            if key in new:
                yield from _differences(old[key], new[key], f"{where}: {key}", rtol, atol)
            else:
                yield f"{where}: {key} is no longer there"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (x, y) in enumerate(zip(old, new, strict=True)):
            yield from _differences(x, y, f"{where}[{i}]", rtol, atol)
    elif _is_number(old) and _is_number(new):
        if not math.isclose(old, new, rel_tol=rtol, abs_tol=atol):
            yield f"{where}: {old:.7g} in the certificate, now {new:.7g}"
    elif old != new and not where.endswith("found"):  # Words with rounded numbers.
        yield f"{where}: {old!r} in the certificate, now {new!r}"


def _is_number(x: Any) -> TypeGuard[float]:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _plain(x: Any) -> Any:
    """A tree of JSON; numbers that are not finite as texts."""
    if isinstance(x, Mapping):
        return {str(name): _plain(y) for name, y in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(y) for y in x]
    if isinstance(x, float) and not math.isfinite(x):
        return str(x)
    return x


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
