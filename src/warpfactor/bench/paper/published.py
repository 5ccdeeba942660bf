"""Results that the paper reports in its section 3, as printed, including numbers that contradict each other."""

from __future__ import annotations

from collections.abc import Sequence

from warpfactor.bench.score.tables import Table, TableColumn, Value

DIGITS = {"Adam MB": 1, "LM MB": 1, "saved %": 1, "LM faster": 2}  # columns whose digits differ from their table's


def _table(title: str, titles: Sequence[str], rows: Sequence[tuple[Value, ...]], *, digits: int = 4) -> Table:
    columns = tuple(TableColumn(each.replace(" ", "_").lower(), each, DIGITS.get(each, digits)) for each in titles)
    named = tuple({column.key: value for column, value in zip(columns, row, strict=True)} for row in rows)
    return Table("published", f"Published results: {title}", columns, named)


MAIN = _table(
    "table 1 and its text",
    ("data", "figure", "method", "pairs", "mean", "SD", "worst", "note"),
    (
        ("LUMIR", "Dice", "Adam", 38, 0.8650, 0.0201, 0.8066, ""),
        ("LUMIR", "Dice", "LM", 38, 0.8715, 0.0163, 0.8304, "wins 36 of 38"),
        ("OASIS", "Dice", "Adam", 19, 0.8028, 0.0333, None, ""),
        ("OASIS", "Dice", "LM", 19, 0.8293, 0.0313, None, "table 4 has Adam's 0.8028, 0.0333 for it"),
        ("NLST", "TRE mm", "Adam", 10, 0.85, 0.28, None, "0.83 without the outlier"),
        ("NLST", "TRE mm", "LM", 10, 1.68, 2.16, 8.16, "0.95 without the outlier"),
        ("Abdomen", "Dice", "Adam", 48, 0.7609, 0.1495, None, ""),
        ("Abdomen", "Dice", "LM", 48, 0.7615, 0.1516, None, ""),
    ),
)
LABELS = _table(
    "table 2, Abdomen MR-CT, 48 pairs",
    ("label", "Adam", "LM"),
    (
        ("Spleen", 0.8344, 0.8325),
        ("Right kidney", 0.7288, 0.7211),
        ("Left kidney", 0.7594, 0.7662),
        ("Liver", 0.7208, 0.7262),
    ),
)
TRANSFER = _table(
    "table 3",
    ("data", "Adam", "LM-transfer", "LM-tuned"),
    (
        ("LUMIR (Dice)", 0.8650, None, 0.8715),
        ("OASIS (Dice)", 0.8028, 0.8289, 0.8293),
        ("NLST (TRE mm)", 0.85, 1.68, 1.68),
        ("Abdomen (Dice)", 0.7609, 0.7615, 0.7615),
    ),
)
REJECTION = _table(
    "table 4",
    ("data", "condition", "mean", "SD"),
    (
        ("LUMIR (Dice)", "no rejection", 0.8715, 0.0163),
        ("LUMIR (Dice)", "no cap", 0.8654, 0.0303),
        ("LUMIR (Dice)", "cap 1", 0.8709, 0.0170),
        ("OASIS (Dice)", "no rejection", 0.8028, 0.0333),
        ("OASIS (Dice)", "no cap", 0.7362, 0.0899),
        ("OASIS (Dice)", "cap 1", 0.8014, 0.0343),
        ("Abdomen (Dice)", "no rejection", 0.7615, 0.1516),
        ("Abdomen (Dice)", "cap 1", 0.7508, 0.1529),
        ("NLST (TRE mm)", "no rejection", 1.679, 2.165),
        ("NLST (TRE mm)", "cap 1", 1.632, 0.593),
    ),
)
EFFICIENCY = _table(
    "table 5, NVIDIA A6000, peak GPU memory",
    ("N", "Adam MB", "LM MB", "saved %", "Adam s", "LM s", "LM faster"),
    (
        (64, 61.1, 55.9, 8.6, 0.593, 0.356, 1.67),
        (128, 433.1, 384.9, 11.1, 0.605, 0.606, 1.00),
        (192, 1444.1, 1282.7, 11.2, 1.085, 1.062, 1.02),
        (256, 3400.1, 3022.1, 11.1, 2.127, 2.061, 1.03),
        (320, 6638.1, 5898.0, 11.1, 3.937, 3.801, 1.04),
        (384, 5192.1, 3916.4, 24.6, 6.161, 5.936, 1.04),
        (448, 8246.1, 6218.3, 24.6, 9.730, 9.328, 1.04),
        (512, 12296.1, 9272.1, 24.6, 14.484, 13.952, 1.04),
    ),
    digits=3,
)
# Figure 1, mean Dice on LUMIR: (value, Dice) by setting. Our sweeps use the same values.
SWEEPS = {
    "initial": (
        (0.0001, 0.8713),
        (0.000217, 0.8715),
        (0.000470, 0.8713),
        (0.001020, 0.8716),
        (0.002214, 0.8714),
        (0.004801, 0.8714),
        (0.010414, 0.8715),
        (0.022589, 0.8717),
        (0.048996, 0.8708),
        (0.106275, 0.8709),
        (0.230515, 0.8705),
        (0.5, 0.8707),
    ),
    "increase": (
        (1.5, 0.8718),
        (2.273, 0.8705),
        (3.045, 0.8384),
        (3.818, 0.8010),
        (4.591, 0.7768),
        (5.364, 0.7674),
        (6.136, 0.7503),
        (6.909, 0.7374),
        (7.682, 0.7373),
        (8.455, 0.7361),
        (9.227, 0.7360),
        (10.0, 0.7359),
    ),
    "decrease": (
        (0.6, 0.7854),
        (0.636, 0.7939),
        (0.673, 0.8025),
        (0.709, 0.8352),
        (0.745, 0.8546),
        (0.781, 0.8673),
        (0.818, 0.8676),
        (0.854, 0.8690),
        (0.890, 0.8700),
        (0.926, 0.8706),
        (0.963, 0.8711),
        (0.999, 0.8589),
    ),
}
SWEEP_DEFAULT = 0.8715  # Dice on LUMIR with the default damping, table 1
