"""Faults of a cohort: what counts as the same result."""

import json
import shutil

from warpfactor.bench.faults import Accidents, differing


def test_results_are_the_same_but_for_times_and_memory(tmp_path):
    calm, other = tmp_path / "calm", tmp_path / "other"
    entries = {"seconds": {"total": 1.0}, "peak_memory_mb": 5, "stages": [{"cost": 0.5, "history": {"seconds": [1]}}]}
    for name in ("p0", "p1"):
        (calm / name).mkdir(parents=True)
        (calm / name / "1Warp.nii.gz").write_bytes(b"warp")
        (calm / name / "result.json").write_text(json.dumps(entries))
    shutil.copytree(calm, other)
    entries["seconds"], entries["stages"][0]["history"] = {"total": 2.0}, {"seconds": [2]}
    (other / "p0" / "result.json").write_text(json.dumps(entries))
    assert differing(calm, other) == []
    entries["stages"][0]["cost"] = 0.6
    (other / "p0" / "result.json").write_text(json.dumps(entries))
    (other / "p0" / "1Warp.nii.gz").write_bytes(b"Warp")
    shutil.rmtree(other / "p1")
    assert differing(calm, other) == [
        f"{name}/{file}" for name in ("p0", "p1") for file in ("1Warp.nii.gz", "result.json")
    ]


def test_a_row_whose_result_appears_under_two_inodes_was_written_twice():
    assert Accidents(written={"p0": {(1, 5)}, "p1": {(1, 5), (2, 7)}}).twice() == ["p1"]
