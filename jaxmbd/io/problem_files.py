"""Problems of identification as JSON files, in the format of `model_files`."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from scalarjit.whole_files import written_whole

from ..errors import DataError, ModelError
from ..identification.experiment import Experiment
from ..identification.fit import Search
from ..identification.problem import Problem
from ..sweeps.chunks import version_of
from .model_files import decoded, decoded_model, encoded, encoded_model, read_versioned

FORMAT, VERSION = "jaxmbd problem", 1


def save_problem(
    problem: Problem, search: Search, validation: Sequence[Experiment], path: Path
) -> None:
    """Write a problem, the options of `identify`, and records for validation.

    **Raises** `DataError`, with the name of the part, for what a file cannot hold: functions of
    Python as parameters, sensors or signals, and classes outside of jaxmbd.
    """
    motions = problem.experiments
    single = dataclasses.is_dataclass(motions)
    parts = {
        field.name: getattr(problem, field.name)
        for field in dataclasses.fields(problem)
        if field.name != "model"
    } | {"experiments": [motions] if single else list(motions)}  # pyright: ignore
    try:
        content = {
            "format": FORMAT,
            "version": VERSION,
            "jaxmbd": version_of("jaxmbd"),
            "model": encoded_model(problem.model),
            "options": {name: encoded(x, name) for name, x in parts.items()},
            "search": {name: encoded(x, name) for name, x in search._asdict().items()},
            "validation": encoded(list(validation), "validation"),
        }
    except ModelError as error:
        reason = str(error).removeprefix("save_model: ")
        raise DataError(
            f"certificate: {reason}. A certificate needs files that anyone can read: parameters by "
            "their paths, and components, sensors and signals of jaxmbd"
        ) from error
    with written_whole(path) as part:
        part.write_text(json.dumps(content, allow_nan=False) + "\n", encoding="utf-8")


def load_problem(path: Path) -> tuple[Problem, Search, list[Experiment]]:
    """Read a file of `save_problem`.

    **Raises** `DataError` for a file that cannot be read, is no problem, or is of another version.
    """
    caller = f"verify: {path}"
    try:
        content = read_versioned(path, caller, (FORMAT, VERSION), "a problem", "`Fit.certificate`")
        parts = {
            kind: {name: decoded(x, f"{caller}: {name}") for name, x in content[kind].items()}
            for kind in ("options", "search")
        }
        validation = decoded(content["validation"], f"{caller}: validation")
        model = decoded_model(content["model"], caller)
        return Problem(model=model, **parts["options"]), Search(**parts["search"]), validation
    except ModelError as error:
        raise DataError(str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{caller} lacks a part, or has one too many: {error}") from error
