"""A linear program, handed to the HiGHS solver."""

from __future__ import annotations

from dataclasses import dataclass, field

from topology_runtime.errors import HeadgateError

TOLERANCE = 1e-6  # relative: what a solution and sums over it may be off by


@dataclass(slots=True)
class LinearProgram:
    """Minimise costs · x with 0 ≤ x ≤ 1, row by row: low ≤ Σ value · x[column] ≤ high."""

    costs: list[float]
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)
    rows: list[dict[int, float]] = field(default_factory=list)

    def add(self, low: float, high: float, row: dict[int, float]) -> None:
        self.lows.append(low)
        self.highs.append(high)
        self.rows.append(row)

    def solve(self) -> tuple[list[float], list[float]]:
        """(x, the price of each row); raises HeadgateError when there is no solution."""
        import highspy  # with numpy 0.2 s to import, and needed for crowded slots only

        program = highspy.HighsLp()
        size = len(self.costs)
        program.num_col_, program.num_row_ = size, len(self.rows)
        program.col_cost_ = self.costs
        program.col_lower_, program.col_upper_ = [0.0] * size, [1.0] * size
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
        solver.passModel(program)
        solver.run()
        status = solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            why = solver.modelStatusToString(status)
            raise HeadgateError("the shares of this placement could not be computed", cause=why)
        solution = solver.getSolution()
        return list(solution.col_value), list(solution.row_dual)
