"""Rates on the command line: `100,150,200`, `100:600:50` (from, to, step), or both mixed."""

from __future__ import annotations

from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.faults.words import significant

MOST = 1000  # rates of one command
HINT = "--rates 50,100,200 or --rates 100:600:50"


def rates_of(text: str) -> tuple[float, ...]:
    """Rates in tuples/s in the order given, each once. Raises UsageError for what is no list of rates,
    InvalidInput for rates and steps out of bounds."""
    wrong, outside = [], []
    rates: dict[float, None] = {}
    for part in text.split(","):
        try:
            numbers = [float(number) for number in part.split(":")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 3):
            wrong.append(f"{part!r} is neither a number nor FROM:TO:STEP")
        elif fault := next(filter(None, map(rate_fault, numbers)), None):
            outside.append(f"{part!r}: {fault}")
        elif len(numbers) == 3 and not 0 <= numbers[1] - numbers[0] <= MOST * numbers[2]:
            outside.append(f"{part!r}: TO must be at least FROM, and at most {MOST} steps above it")
        else:
            rates.update(dict.fromkeys(_stepped(*numbers)))
    if wrong:
        raise UsageError("--rates is no list of rates", faults=[*wrong, *outside], hint=HINT)
    if outside or len(rates) > MOST:
        faults = outside or [f"{len(rates)} rates; at most {MOST}"]
        raise InvalidInput("--rates cannot be planned", faults=faults, hint=HINT)
    return tuple(rates)


def rate_fault(rate_tps: float) -> str | None:
    """What is wrong with a rate or step that somebody named."""
    from headgate.controller.plan.highest import LEAST_TPS, MOST_TPS

    if LEAST_TPS <= rate_tps <= MOST_TPS:
        return None
    return f"expected {LEAST_TPS:g} to {MOST_TPS:g} tuples/s, got {significant(rate_tps, 6)}"


def _stepped(first: float, last: float | None = None, step: float = 1.0) -> list[float]:
    """first, first + step … up to `last`, which belongs to them; free of the noise of adding floats."""
    if last is None:
        return [first]
    return [round(first + n * step, 9) for n in range(int((last - first) / step + 1e-9) + 1)]
