"""How to lay out the four benchmarks of the paper, how it scored them, and the commands for their rows."""

from __future__ import annotations

from dataclasses import dataclass

TABLE_HELP = """\
A table is CSV or TSV; the first line names its columns. Two are needed, the others may be missing or empty:

  fixed, moving                      image files
  fixed_labels, moving_labels        label maps, for Dice and HD95
  fixed_landmarks, moving_landmarks  points that correspond, for TRE:
                                     one file with columns fixed_x ... moving_z or fix_x_lps ... mov_z_lps in LPS mm,
                                     given as fixed_landmarks; or one file each with columns x, y, z in LPS mm;
                                     or one each without column names, i,j,k voxel indices as in Learn2Reg
  fixed_mask, moving_mask            where regularity is measured; with --masks also where images are registered
  name, group                        of the pair, and what it is averaged with
  recipe                             for the method `own`

Paths are relative to the table. Instead of a table, name the dataset JSON of a Learn2Reg folder, or the folder: pairs
come from registration_test, registration_val or validation, and what lies in labelsTr, masksTr, keypointsTr and
landmarksTr under the names of the images is used.
"""


@dataclass(frozen=True)
class Layout:
    """One benchmark.

    Attributes:
        name: short, as on the command line.
        title: what it is.
        source: where it comes from.
        folder: its files, as a tree.
        scoring: labels and metrics of the paper.
        prepare: what has to be made outside, if anything.
        data: what to give as --data.
        methods: of ours and another tool's, that suit it.
        published: the paper's own row.
        start: recipe whose affine the paper's row starts from, if not that of `default`.
    """

    name: str
    title: str
    source: str
    folder: str
    scoring: str
    prepare: str
    data: str
    methods: str
    published: str
    start: str = ""

    @property
    def commands(self) -> tuple[str, str]:
        """The paper's row, and ours beside other tools."""
        place = self.name.lower()
        start = f" --start {self.start}" if self.start else ""
        return (
            f"warpfactor bench paper main --data {self.data}{start} -o results/{place}",
            f"warpfactor bench accuracy --data {self.data} --methods {self.methods} -o results/{place}-peers",
        )


LAYOUTS = (
    Layout(
        name="LUMIR",
        title="Brain MRI between people, 38 validation pairs",
        source="Learn2Reg 2024, https://github.com/JHU-MedImage-Reg/LUMIR_L2R",
        folder="""\
LUMIR/
  LUMIR_dataset.json           lists the pairs under "validation"
  imagesVal/LUMIRMRI_3454_0000.nii.gz ...
  labelsVal/LUMIRMRI_3454_0000.nii.gz ...     made by you, see below""",
        scoring="Mean Dice over 35 structures that SynthSeg delineates; LUMIR itself has no labels.",
        prepare="""\
Labels come from SynthSeg (FreeSurfer's mri_synthseg, or github.com/BBillot/SynthSeg) on the images of imagesVal. Give
each label map the name of its image, in labelsVal. SynthSeg's grid has 1 mm; it need not be the grid of the image.""",
        data="LUMIR/LUMIR_dataset.json",
        methods="default,greedy",
        published="Adam 0.8650 (SD 0.0201), LM 0.8715 (0.0163); LM wins 36 of 38 pairs, worst 0.8304 against 0.8066",
    ),
    Layout(
        name="OASIS",
        title="Brain MRI between people, 19 validation pairs",
        source="Learn2Reg 2021, https://learn2reg.grand-challenge.org",
        folder="""\
OASIS/
  OASIS_dataset.json           lists the pairs under "registration_val"
  imagesTr/OASIS_0438_0000.nii.gz ...
  labelsTr/OASIS_0438_0000.nii.gz ...         35 structures""",
        scoring="Mean Dice over the 35 labels of labelsTr.",
        prepare="",
        data="OASIS/OASIS_dataset.json",
        methods="default,greedy",
        published="Adam 0.8028 (SD 0.0333), LM 0.8293 (0.0313); table 4 of the paper has other numbers for the same",
    ),
    Layout(
        name="NLST",
        title="Lung CT of one person, inspiration and expiration, 10 validation pairs",
        source="Learn2Reg 2022 and 2023, https://learn2reg.grand-challenge.org",
        folder="""\
NLST/
  NLST_dataset.json            lists the pairs under "registration_val", 0101 to 0110
  imagesTr/NLST_0101_0000.nii.gz (fixed), NLST_0101_0001.nii.gz (moving) ...
  keypointsTr/NLST_0101_0000.csv, NLST_0101_0001.csv ...   voxel indices i,j,k, no column names
  masksTr/NLST_0101_0000.nii.gz ...                        lungs""",
        scoring="Mean target registration error of the keypoints in mm; regularity inside the fixed mask.",
        prepare="",
        data="NLST/NLST_dataset.json",
        methods="lung,greedy",
        published="Adam 0.85 mm (SD 0.28), LM 1.68 mm (2.16); without the worst pair 0.83 and 0.95 mm",
    ),
    Layout(
        name="AbdomenMRCT",
        title="Abdomen, MR to CT of one person",
        source="Learn2Reg 2021, https://learn2reg.grand-challenge.org",
        folder="""\
AbdomenMRCT/
  AbdomenMRCT_dataset.json     lists the pairs under "registration_val"
  imagesTr/AbdomenMRCT_0001_0000.nii.gz (MR, fixed), AbdomenMRCT_0001_0001.nii.gz (CT, moving) ...
  labelsTr/AbdomenMRCT_0001_0000.nii.gz ...   liver, spleen, right kidney, left kidney
  masksTr/AbdomenMRCT_0001_0000.nii.gz ...    field of view""",
        scoring="Mean Dice over spleen, right kidney, left kidney and liver; `bench paper labels` has each.",
        prepare="""\
The paper counts 48 pairs and does not list them; the JSON names the few of the challenge. To run others, write a
table.""",
        data="AbdomenMRCT/AbdomenMRCT_dataset.json",
        methods="multimodal,greedy+metric=NMI",
        published="Adam 0.7609 (SD 0.1495), LM 0.7615 (0.1516)",
        start="multimodal",
    ),
)


def text(layout: Layout) -> str:
    """One benchmark for people."""
    parts = [
        f"{layout.name}: {layout.title}",
        f"from {layout.source}",
        "",
        layout.folder,
        "",
        *([layout.prepare, ""] if layout.prepare else []),
        f"Score      {layout.scoring}",
        f"Published  {layout.published}",
        f"Its row    {layout.commands[0]}",
        f"Ours       {layout.commands[1]}",
    ]
    return "\n".join(parts) + "\n"
