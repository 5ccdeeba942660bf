"""All kernels of the package."""

from warpfactor.kernels.triton.descent import adam_rates, adam_step, lengths, step_by_voxel
from warpfactor.kernels.triton.distortion import shape_change
from warpfactor.kernels.triton.field import compose_fields, determinant, even_step, resize_image, taken, there_and_back
from warpfactor.kernels.triton.fused import filter_and_step
from warpfactor.kernels.triton.inverse import invert_voxels
from warpfactor.kernels.triton.kernel import Kernel
from warpfactor.kernels.triton.launch import combine
from warpfactor.kernels.triton.linear import gradient_products, image_products
from warpfactor.kernels.triton.lncc_kernels import lncc_force, lncc_maps, lncc_warp
from warpfactor.kernels.triton.mi import mi_force, mi_ratios, mi_votes
from warpfactor.kernels.triton.mind import channel_difference
from warpfactor.kernels.triton.mind_channels import distance_channels, distance_sums, point_distance
from warpfactor.kernels.triton.mse import squared_difference
from warpfactor.kernels.triton.passes import filter_axis, filter_window
from warpfactor.kernels.triton.sample import sample_points, sample_slopes
from warpfactor.kernels.triton.smooth import share_taps
from warpfactor.kernels.triton.statistics import tally_values
from warpfactor.kernels.triton.tables import sum_tables
from warpfactor.kernels.triton.tile import tile_step

KERNELS: tuple[Kernel, ...] = (
    sample_points,
    sample_slopes,
    lncc_warp,
    lncc_maps,
    lncc_force,
    squared_difference,
    mi_votes,
    mi_ratios,
    mi_force,
    channel_difference,
    point_distance,
    distance_sums,
    distance_channels,
    image_products,
    gradient_products,
    lengths,
    step_by_voxel,
    tile_step,
    adam_step,
    adam_rates,
    filter_axis,
    filter_window,
    filter_and_step,
    share_taps,
    compose_fields,
    even_step,
    taken,
    resize_image,
    determinant,
    shape_change,
    invert_voxels,
    there_and_back,
    tally_values,
    combine,
    sum_tables,
)
