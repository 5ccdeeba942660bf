"""`invert`, `compose` and `jacobian` write transforms and maps."""

import numpy as np
import torch

import warpfactor as wf
from commands import run
from small import GRID


def test_invert_and_compose_write_transforms(result, tmp_path):
    point = GRID.index_to_world([[10, 11, 12]])
    saved = wf.read_result(result)
    run("compose", "-o", tmp_path / "all.h5", "--result", result)
    there = wf.read_transform(tmp_path / "all.h5").map_points(point)
    assert np.allclose(there, saved.transform.map_points(point), atol=1e-4)
    done = run("compose", "-o", tmp_path / "all.nii.gz", "--result", result)
    assert done.stdout == f"2 transforms, fixed to moving, written to {tmp_path / 'all.nii.gz'}.\n"
    assert np.allclose(wf.read_transform(tmp_path / "all.nii.gz").map_points(point), there, atol=1e-3)
    done = run("invert", "-o", tmp_path / "back.h5", "-t", tmp_path / "all.h5")
    assert "Inverse error, moving to fixed and back: " in done.stdout
    assert np.allclose(wf.read_transform(tmp_path / "back.h5").map_points(there), point, atol=0.1)
    run("invert", "-o", tmp_path / "affine.mat", "-t", result / "0GenericAffine.mat", "-q")
    done = run("invert", "-o", tmp_path / "back.nii.gz", "--result", result)
    own = saved.entries["figures"]["inverse_consistency_fixed_to_moving_to_fixed_vox"]
    assert f"fixed to moving and back: {own['mean']:.3f} voxels (" in done.stdout, "as `register` measured it"
    assert np.allclose(wf.read_transform(tmp_path / "back.nii.gz").map_points(there), point, atol=0.1)
    assert "either" in run("invert", "-o", tmp_path / "x.h5", code=2).stderr


def test_jacobian_maps_the_warp(result, tmp_path):
    done = run("jacobian", "-o", tmp_path / "j.nii.gz", "--result", result)
    assert "0 folded voxels" in done.stdout
    plain = wf.read_image(tmp_path / "j.nii.gz").data
    assert torch.allclose(plain, wf.read_result(result).warp.jacobian().data, atol=1e-4)
    run("jacobian", "-o", tmp_path / "log.nii.gz", "--result", result, "--log", "-q")
    assert torch.allclose(wf.read_image(tmp_path / "log.nii.gz").data, plain.log(), atol=1e-4)
    run("jacobian", "-o", tmp_path / "total.nii.gz", "--result", result, "--total", "-q")
    volume = wf.read_result(result).entries["figures"]["affine_volume_ratio_moving_to_fixed"]
    total = wf.read_image(tmp_path / "total.nii.gz").data
    assert torch.allclose(total[0, 4:-4, 4:-4, 4:-4], volume * plain[0, 4:-4, 4:-4, 4:-4], rtol=0.02)
    done = run("jacobian", "-o", tmp_path / "none.nii.gz", "-t", result / "0GenericAffine.mat", code=2)
    assert "no warp" in done.stderr
