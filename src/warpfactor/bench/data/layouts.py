"""The four datasets of the paper: layout of the folders, scores, published results, and commands to reproduce them."""

from __future__ import annotations

from dataclasses import dataclass

TABLE_HELP = """\
A table is a CSV or TSV file whose first line names the columns. Two columns are required, the others are optional:

  fixed, moving                      image files
  fixed_labels, moving_labels        label maps, for Dice and HD95
  fixed_landmarks, moving_landmarks  corresponding points, for the target registration error (TRE):
                                     one file with columns fixed_x ... moving_z or fix_x_lps ... mov_z_lps in LPS mm,
                                     given as fixed_landmarks; or one file per image with columns x, y, z in LPS mm;
                                     or one file per image of voxel indices i,j,k without column names (Learn2Reg)
  fixed_mask, moving_mask            region in which regularity is measured; with --masks also used for registration
  name, group                        name of the pair, and of the group over which results are averaged
  recipe                             recipe that the method `own` uses

Paths are relative to the table. Instead of a table you can give the JSON file of a Learn2Reg dataset, or its folder.
The pairs are those under registration_test, registration_val or validation; labels, masks and landmarks are found in
the folders labelsTr, masksTr, keypointsTr and landmarksTr under the names of the images.

To compare methods on several kinds of images, give a folder of tables, one per kind (brain.csv, lung.csv, ...), or a
TOML file that lists them.
"""


@dataclass(frozen=True)
class Layout:
    """A dataset of the paper.

    Attributes:
        name: Name on the command line.
        title: Description.
        source: Where it can be obtained.
        folder: Tree of its files.
        scoring: How the paper scores it.
        prepare: What the user has to prepare, if anything.
        data: Argument for --data.
        methods: Our recommended recipe and another tool.
        published: Results of the paper.
        start: Recipe whose affine the paper's methods start from, if not `default`.
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
        """Commands that reproduce the paper's results and that compare our recipe with another tool."""
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
  labelsVal/LUMIRMRI_3454_0000.nii.gz ...     created by you, see below""",
        scoring="Mean Dice over 35 structures segmented by SynthSeg; LUMIR itself has no labels.",
        prepare="""\
Create the labels by applying SynthSeg (FreeSurfer's mri_synthseg, or github.com/BBillot/SynthSeg) to the images in
imagesVal. Save each label map in labelsVal under the name of its image. SynthSeg writes labels with a spacing of 1 mm,
which need not be the grid of the image.""",
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
        scoring="Mean Dice over spleen, right kidney, left kidney and liver; `bench paper labels` shows each of them.",
        prepare="""\
The paper uses 48 pairs but does not list them; the JSON file names only the few pairs of the challenge. Write a table
to register other pairs.""",
        data="AbdomenMRCT/AbdomenMRCT_dataset.json",
        methods="multimodal,greedy+metric=NMI",
        published="Adam 0.7609 (SD 0.1495), LM 0.7615 (0.1516)",
        start="multimodal",
    ),
)


def text(layout: Layout) -> str:
    """Description of a dataset for the terminal."""
    parts = [
        f"{layout.name}: {layout.title}",
        f"from {layout.source}",
        "",
        layout.folder,
        "",
        *([layout.prepare, ""] if layout.prepare else []),
        f"Score      {layout.scoring}",
        f"Published  {layout.published}",
        f"Paper      {layout.commands[0]}",
        f"Ours       {layout.commands[1]}",
    ]
    return "\n".join(parts) + "\n"
