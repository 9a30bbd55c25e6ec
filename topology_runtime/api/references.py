"""`module:attribute` ↔ the user's object. Imports user code: only workers and the loader call this.

use_paths       the user's folders come first on the import path
resolve         reference → object
reference_of    function or class → reference, for objects that another process can find again
"""

from __future__ import annotations

import importlib
import inspect
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.wording import REFERENCE, did_you_mean, hidden, shown

FRAMES_SHOWN = 4  # of a traceback of user code
HERE = str(Path(__file__).parents[1])


def use_paths(user_paths: Sequence[str]) -> None:
    """Make these folders the first on the import path, in this order."""
    paths = list(dict.fromkeys(user_paths))
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
    importlib.invalidate_caches()


def resolve(reference: str) -> Any:
    """The object named `module:attribute` (both may be dotted). InvalidInput says what was tried."""
    if not REFERENCE.fullmatch(reference):
        raise InvalidInput(f"{shown(reference)} is not of the form 'module:attribute'")
    name, _, path = reference.partition(":")
    module = import_module(name)
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError as error:
            place = getattr(module, "__file__", None) or name
            near = did_you_mean(part, [known for known in dir(value) if not known.startswith("__")])
            raise InvalidInput(f"{place} has no {path!r}{near}") from error
    return value


_importing = threading.local()


def being_imported() -> bool:
    """Is user code imported here by another process's name of it, and not run by its user?"""
    return bool(getattr(_importing, "depth", 0))


def import_module(name: str) -> ModuleType:
    """The module, with what its code raises told as a fault of that code."""
    _importing.depth = getattr(_importing, "depth", 0) + 1
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        looked = ", ".join(path for path in sys.path[:4] if path)
        raise InvalidInput(f"there is no module {error.name!r}", cause=f"looked in {looked} …") from error
    except HeadgateError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error
    finally:
        _importing.depth -= 1


def _failed(name: str, error: BaseException) -> InvalidInput:
    return InvalidInput(
        f"importing {name!r} raised {type(error).__name__}",
        cause=last_lines(error),
        hint="the fault is in that code: `python -c 'import …'` in its folder shows the same",
    )


def last_lines(error: BaseException) -> str:
    """The end of a traceback of user code: the last places, without ours and the import system's, then
    the error."""
    last = [line.rstrip() for line in traceback.format_exception_only(error)]
    return hidden("\n  ".join([*_places(traceback.extract_tb(error.__traceback__)), *last]))


def stack_of(thread: int) -> str:
    """Where a thread of this process is now: its last places in user code."""
    return "\n  ".join(_places(traceback.extract_stack(sys._current_frames().get(thread))))


def _places(frames: traceback.StackSummary) -> list[str]:
    theirs = [
        f"{frame.filename}, line {frame.lineno}, in {frame.name}: {frame.line}"
        for frame in frames
        if not frame.filename.startswith(("<frozen ", HERE)) and "/importlib/" not in frame.filename
    ]
    return theirs[-FRAMES_SHOWN:]


def import_too_slow(what: str, limit_s: float, cause: str) -> InvalidInput:
    """User code that does not come back from its import."""
    return InvalidInput(
        f"{what}: importing it took more than {limit_s:g} s",
        cause=cause,
        hint="importing must only define things: keep the work out of the top level of the module",
    )


def reference_of(value: Any) -> str:
    """`module:qualified.name` of a function or class. InvalidInput when another process cannot find it:
    lambdas, functions inside functions, bound methods, instances."""
    path = getattr(value, "__qualname__", None)
    module = getattr(value, "__module__", None) or getattr(
        getattr(value, "__objclass__", None), "__module__", None
    )
    if path is None or module is None:
        raise InvalidInput(
            f"{shown(value)} is an instance; give the class or function itself, and its params by name"
        )
    if "<lambda>" in path or "<locals>" in path:
        kind = "a lambda" if "<lambda>" in path else f"defined inside {path.split('.<locals>')[0]!r}"
        raise InvalidInput(
            f"{path} is {kind}: another process cannot import it; define it at the top of a module"
        )
    if not _is_at(value, module, path):
        raise InvalidInput(
            f"{module}:{path} is not this object: another process would find something else there"
        )
    return f"{_importable_name(module)}:{path}"


def _is_at(value: Any, module: str, path: str) -> bool:
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found is value or (inspect.ismethod(found) and found == value)  # a class method is made again


def _importable_name(module: str) -> str:
    """`__main__` has another name in every other process: that of its file."""
    if module != "__main__":
        return module
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if file is None:
        raise InvalidInput("it is defined in an interactive session; put it into a file")
    return module_of_file(Path(file))[0]


def module_of_file(file: Path) -> tuple[str, Path]:
    """(module name, folder to import it from) of a Python file; inside a package the name is dotted."""
    file = file.resolve()
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if file.stem == "__init__":
        parts.pop()
    return ".".join(parts), folder
