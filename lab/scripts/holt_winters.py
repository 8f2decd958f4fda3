"""Scores Holt-Winters forecasts as `lab horizon` scores other forecasters.

Arguments: the folder with the traces, the numbers that `lab horizon --json` wrote for it, and the page to write, if
any. `lab/scripts/holt-winters` calls this program.
"""

import bisect
import csv
import json
import math
import pathlib
import platform
import sys
from collections import deque

import river
from river.time_series import HoltWinters

STEPS = (1, 5, 10, 30, 100, 120)
"""Horizons, in values: those of `lab horizon`, as is everything up to BLOCK."""
SHARES = (0.1, 0.5, 0.9, 0.99)
LEVEL = 0.9
ERRORS_MIN = 20
ERRORS_MAX = 300
BLOCK = 500

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Gains of the level; river's example has 0.3."""
BETAS = (None, 0.01, 0.1)
"""Gains of the trend, None for no trend; river's example has 0.1."""
GAMMA = 0.1
"""Gain of the daily season. Much larger gains learn noise: each phase is seen once a day."""
DAY_VALUES_MAX = 500
DAYS_MIN = 5
"""A trace has a daily season if a day has at most so many values, and the trace at least so many days."""


def main(folder, numbers, page=None):
    rows = json.loads(pathlib.Path(numbers).read_text())
    files = sorted(pathlib.Path(folder).glob("*.csv"))
    scores, chosen = {}, {}
    for file in files:
        times, values = series_of(file)
        chosen[file.stem], options = best_options(times, values)
        paths = forecasts(values, options)
        for row in rows:
            if row["trace"] == file.stem:
                scores[key_of(row)] = scored(row, values, paths)
        print(f"{file.stem}: {chosen[file.stem]}", file=sys.stderr)
    text = markdown(rows, scores, chosen, folder)
    print(text, end="") if page is None else pathlib.Path(page).write_text(text)


def key_of(row):
    return row["trace"], row["steps"], row["of"]


def series_of(file):
    with file.open(newline="") as opened:
        rows = [(float(row["time_s"]), float(row["value"])) for row in csv.DictReader(opened)]
    return [time for time, _ in rows], [value for _, value in rows]


def best_options(times, values):
    """The parameters with the least squared error of the next value over the whole trace: in hindsight, in favour
    of Holt-Winters."""
    options = [{"alpha": alpha, "beta": beta} for alpha in ALPHAS for beta in BETAS]
    steps = sorted(later - earlier for earlier, later in zip(times, times[1:]))
    day = round(86400 / steps[len(steps) // 2])
    if day <= DAY_VALUES_MAX and DAYS_MIN * day <= len(values):
        options += [
            {"alpha": alpha, "beta": 0.01, "gamma": GAMMA, "seasonality": day} for alpha in ALPHAS
        ]
    best = min(options, key=lambda option: squared_error(values, option))
    names = {"alpha": "α", "beta": "β", "gamma": "γ", "seasonality": "season"}
    text = ", ".join(f"{names[name]} {value}" for name, value in best.items() if value is not None)
    return text, best


def squared_error(values, options):
    return math.fsum(
        (path[0] - value) ** 2 for path, value in zip(forecasts(values, options, 1), values[1:])
    )


def forecasts(values, options, steps=max(STEPS)):
    """After each value, the forecasts of the next values; the last value until the model has started."""
    model, paths = HoltWinters(**options), []
    start = max(2, options.get("seasonality", 0))
    for count, value in enumerate(values, start=1):
        model.learn_one(value)
        paths.append(model.forecast(steps) if start <= count else [value] * steps)
    return paths


def scored(row, values, paths):
    """Scores of Holt-Winters. Those of the last value must be those of `lab horizon`."""
    steps, of = row["steps"], row["of"]
    targets = targets_of(values, steps, of)
    last = score(with_error_quantiles(values, targets, steps), targets, steps)
    for name, ours in last.items():
        theirs = row["scores"][1][name]
        if not math.isclose(ours, theirs, rel_tol=1e-6):
            raise SystemExit(f"{key_of(row)}: {name} of the last value is {ours}, `lab horizon` has {theirs}")
    ahead = [math.fsum(path[:steps]) / steps if of == "mean" else path[steps - 1] for path in paths]
    return score(with_error_quantiles(ahead, targets, steps), targets, steps)


def targets_of(values, steps, of):
    """What is measured, for the forecast after each value as far as it is known."""
    if of == "value":
        return values[steps:]
    return [math.fsum(values[at + 1 : at + 1 + steps]) / steps for at in range(len(values) - steps)]


def with_error_quantiles(points, targets, steps):
    """Each forecast with an interval and quantiles: those of its own errors that are known by then."""
    size = max(ERRORS_MAX, 20 * steps)
    newest, ordered, tail = deque(), [], 0.5 * (1.0 - LEVEL)
    for index, point in enumerate(points[: len(targets)]):
        if steps <= index:
            if len(newest) == size:
                del ordered[bisect.bisect_left(ordered, newest.popleft())]
            error = targets[index - steps] - points[index - steps]
            newest.append(error)
            bisect.insort(ordered, error)
        known = len(ordered) >= ERRORS_MIN
        shares = (tail, 1.0 - tail, *SHARES)
        yield (point, *(point + quantile(ordered, share) for share in shares)) if known else None


def quantile(ordered, share):
    at = share * (len(ordered) - 1)
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return low + (high - low) * (at % 1.0)


def score(issued, targets, steps):
    first = 100 + 2 * steps
    pairs = list(zip(issued, targets))[first:]
    inside = [lower <= target <= upper for (_, lower, upper, *_), target in pairs]
    coverage = mean(inside)
    blocks = (mean(inside[at : at + BLOCK]) for at in range(0, len(inside) - BLOCK + 1, BLOCK))
    return {
        "coverage": coverage,
        "worst_block": min(blocks, default=coverage) if len(inside) >= BLOCK else coverage,
        "half_width": mean([0.5 * (upper - lower) for (_, lower, upper, *_), _ in pairs]),
        "mse": mean([(point - target) ** 2 for (point, *_), target in pairs]),
        "mae": mean([abs(point - target) for (point, *_), target in pairs]),
        "pinball": mean(
            [mean([pinball(*pair, target) for pair in zip(SHARES, ends)]) for (_, _, _, *ends), target in pairs]
        ),
    }


def pinball(share, end, target):
    above = target - end
    return (share - 1.0) * above if above < 0.0 else share * above


def mean(numbers):
    return math.fsum(numbers) / len(numbers)


def geometric_mean(numbers):
    return math.exp(mean([math.log(number) for number in numbers]))


def markdown(rows, scores, chosen, folder):
    text = f"""# Holt-Winters beside Barograph

Written by `lab/scripts/holt-winters {folder}`:
river {river.__version__}, Python {platform.python_version()}.

Holt-Winters is `HoltWinters` of [river](https://riverml.xyz), with the parameters that have the least squared error of
the next value on each trace in hindsight: *α* is the gain of the level, *β* that of the trend, *γ* that of a daily
season. Its forecast of a mean is the mean of its forecasts of the values. Its intervals and quantiles are those of its
own errors, as for the simpler forecasters of [forecasts further ahead](horizons.md); all other columns, and the scores
of Barograph and of the last value, are those of that page, too. The scores of the last value were computed by both
programs, and are equal.
"""
    for of, title in (("mean", "The mean of the next *H* values"), ("value", "The value *H* ahead")):
        text += f"\n## {title}\n\n"
        table = [("forecaster", "H", "coverage", "least", "worst block", "width", "MSE", "MAE", "pinball")]
        for steps in STEPS:
            at = [row for row in rows if (row["steps"], row["of"]) == (steps, of) and key_of(row) in scores]
            for name, score in (
                ("Barograph", lambda row: row["scores"][0]),
                ("last value", lambda row: row["scores"][1]),
                ("Holt-Winters", lambda row: scores[key_of(row)]),
            ):
                if at:
                    table.append((name, str(steps), *cells(at, score)))
        text += aligned(table)
    traces = [("trace", "parameters"), *sorted(chosen.items())]
    return text + "\n## Parameters\n\n" + aligned(traces, numbers_from=2)


def cells(rows, score):
    coverage = [score(row)["coverage"] for row in rows]
    worst = min(score(row)["worst_block"] for row in rows)
    width = geometric_mean([score(row)["half_width"] / row["hindsight_half_width"] for row in rows])
    ratios = [
        geometric_mean([score(row)[part] / row["scores"][1][part] for row in rows])
        for part in ("mse", "mae", "pinball")
    ]
    shares = (f"{100 * share:.1f}" for share in (mean(coverage), min(coverage), worst))
    return *shares, *(f"{ratio:.3f}" for ratio in (width, *ratios))


def aligned(table, numbers_from=1):
    """A Markdown table; the columns from `numbers_from` on are numbers."""
    widths = [max(map(len, column)) for column in zip(*table)]
    line = lambda cells: "| " + " | ".join(cells) + " |\n"
    pad = lambda row: [
        cell.ljust(width) if at < numbers_from else cell.rjust(width) for at, (cell, width) in enumerate(zip(row, widths))
    ]
    rule = "|" + "|".join(
        "-" * (width + 2) if at < numbers_from else "-" * (width + 1) + ":" for at, width in enumerate(widths)
    )
    return line(pad(table[0])) + rule + "|\n" + "".join(line(pad(row)) for row in table[1:])


main(*sys.argv[1:])
