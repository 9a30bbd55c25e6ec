"""Linear programs, handed to the HiGHS solver."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.topology_runtime.errors import HeadgateError

TOLERANCE = 1e-6  # relative: what a solution and sums over it may be off by


@dataclass(frozen=True, slots=True)
class WholeFound:
    """x: the best that was found, None: nothing. bound: costs · x is never less. proved: nothing is less than x."""

    x: list[float] | None
    bound: float
    proved: bool


@dataclass(slots=True)
class LinearProgram:
    """Minimise costs · x with 0 ≤ x ≤ `uppers` (left out: 1), row by row: low ≤ Σ value · x[column] ≤ high."""

    costs: list[float]
    uppers: list[float] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)

    def add(self, low: float, high: float, row: dict[int, float]) -> None:
        self.lows.append(low)
        self.highs.append(high)
        self.rows.append(row)

    def solve(self) -> tuple[list[float], list[float]]:
        """(x, the price of each row); raises HeadgateError when there is no solution."""
        import highspy

        solver = self._solver(())
        solver.run()
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            why = solver.modelStatusToString(status)
            raise HeadgateError("the shares of this placement could not be computed", cause=why)
        solution = solver.getSolution()
        return list(solution.col_value), list(solution.row_dual)

    def solve_whole(
        self, seconds: float = math.inf, whole: Sequence[bool] = (), nodes: int = 0
    ) -> WholeFound:
        """With whole numbers where `whole` says so (left out: everywhere), within so many seconds or, where the answer
        must not depend on how fast the machine is, nodes of the search."""
        import highspy

        solver = self._solver(whole or [True] * len(self.costs))
        solver.setOptionValue("time_limit", seconds)
        if nodes:
            solver.setOptionValue("mip_max_nodes", nodes)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.run()
        info = solver.getInfo()
        proved = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        there = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        bound = -math.inf
        if any(whole) or not whole:
            bound = info.mip_dual_bound
        elif proved:
            bound = info.objective_function_value
        return WholeFound(list(solver.getSolution().col_value) if there else None, bound, proved)

    def _solver(self, whole: Sequence[bool]) -> Any:
        import highspy  # with numpy 0.2 s to import, and needed for crowded slots and the best there is only

        program = highspy.HighsLp()
        size = len(self.costs)
        program.num_col_, program.num_row_ = size, len(self.rows)
        program.col_cost_ = self.costs
        program.col_lower_, program.col_upper_ = [0.0] * size, self.uppers or [1.0] * size
        program.row_lower_, program.row_upper_ = self.lows, self.highs
        starts = [0]
        columns: list[int] = []
        values: list[float] = []
        for row in self.rows:
            columns += row.keys()
            values += row.values()
            starts.append(len(columns))
        matrix = program.a_matrix_
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.start_, matrix.index_, matrix.value_ = starts, columns, values
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        if whole:
            kinds = highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger
            program.integrality_ = [kinds[one] for one in whole]
        solver.passModel(program)
        return solver
