"""Label maps keep the data type of the file they were read from, if it can hold them."""

import torch

import warpfactor as wf
from warpfactor.geometry.itk import sitk


def test_a_type_that_cannot_hold_the_labels_is_widened(tmp_path):
    data = torch.tensor([[[[-1, 300], [5, 0]]]], dtype=torch.int32)
    labels = wf.Image(data, wf.Grid.from_spacing((2, 2)), "labels")
    sitk.WriteImage(sitk.Image(2, 2, sitk.sitkUInt8), str(tmp_path / "bytes.nii.gz"))
    wf.io.write_labels(labels, tmp_path / "wide.nii.gz", like=tmp_path / "bytes.nii.gz")
    assert torch.equal(wf.read_labels(tmp_path / "wide.nii.gz").data, data)
    wf.io.write_labels(labels, tmp_path / "plain.nii.gz")
    assert torch.equal(wf.read_labels(tmp_path / "plain.nii.gz").data, data)
