"""A brain-like pair of images with labels and the true warp between them, for demos and tests.

The anatomy is a function of continuous coordinates, made from a seed. The moving image is that function on
its own grid; the fixed image is the same function at x + u(x). So moving(x + u(x)) = fixed(x) holds without
interpolating anything.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from warpfactor.errors import InputError

Contrast = Literal["t1", "t2", "inverted"]

CSF, CORTEX, WHITE_MATTER, VENTRICLE, CAUDATE, PUTAMEN, PALLIDUM, THALAMUS = range(1, 9)
LABEL_NAMES = {
    CSF: "cerebrospinal fluid",
    CORTEX: "cortex",
    WHITE_MATTER: "white matter",
    VENTRICLE: "ventricles",
    CAUDATE: "caudate",
    PUTAMEN: "putamen",
    PALLIDUM: "pallidum",
    THALAMUS: "thalamus",
}
# Brightness of each label, from the background (label 0) on; T2 is no monotonic function of T1.
_BRIGHTNESS = {
    "t1": (0.0, 0.16, 0.50, 0.84, 0.12, 0.56, 0.60, 0.72, 0.66),
    "t2": (0.0, 0.95, 0.62, 0.40, 1.00, 0.55, 0.50, 0.30, 0.46),
}
_TEXTURE = 0.07  # relative amplitude inside tissues, so that local correlation has something to hold everywhere
_SMALLEST = 16  # voxels an axis needs
_SLICE_HEIGHT = 0.06  # where a 2-D phantom cuts the brain: through ventricles and deep nuclei
_EDGE_VOX = 0.45  # logistic scale of every tissue border: 10 to 90 % within two voxels, like a scanner's blur
_LEAST_DETERMINANT = 0.35
_CHUNK = 1 << 14  # points evaluated at once: what they need stays in the cache


@dataclass(frozen=True)
class Phantom:
    """Two images of one anatomy and the warp between them: moving(x + displacement(x)) = fixed(x).

    Attributes:
        fixed, moving: (D, H, W) float32, about 0 to 1.
        fixed_labels, moving_labels: (D, H, W) int32, 0 is background; LABEL_NAMES has the rest.
        displacement: (3, D, H, W) float32, the truth, fixed to moving, in voxels along array axes (z, y, x).
        mask: (D, H, W) bool, the object in the fixed image.
    """

    fixed: Tensor
    moving: Tensor
    fixed_labels: Tensor
    moving_labels: Tensor
    displacement: Tensor
    mask: Tensor


def phantom(
    shape: Sequence[int] = (96, 112, 96),
    *,
    contrast: Contrast = "t1",
    seed: int = 0,
    noise: float = 0.02,
    bias: float = 0.2,
    displacement_vox: float = 4.0,
) -> Phantom:
    """Fixed (T1) and moving image of one random brain, with labels and the true displacement.

    The seed decides everything; anatomy and warp do not depend on contrast, noise or bias.

    Args:
        shape: (D, H, W), each at least 16; (1, H, W) is an axial slice with no displacement along z.
        contrast: of the moving image. "t2" reorders the tissues (not monotonic), "inverted" is 1 - T1.
        noise: standard deviation of Gaussian noise, independent in the two images (tissues span 0 to 1).
        bias: both images are multiplied by smooth fields, independent, from exp(-bias) to exp(bias).
        displacement_vox: length of the longest displacement. On grids too small for it the warp is scaled
            down, so that its Jacobian determinant stays above 0.3.
    """
    size = _checked_shape(shape)
    _check_options(contrast, seed=seed, noise=noise, bias=bias, displacement_vox=displacement_vox)
    index = _index_grid(size)
    displacement = _random_displacement(_stream(seed, 1), size, displacement_vox)
    anatomy = _Anatomy.random(_stream(seed, 0), size)
    fixed, fixed_labels = anatomy.paint(index + displacement, "t1")
    moving, moving_labels = anatomy.paint(index, contrast)
    return Phantom(
        fixed=_acquire(_stream(seed, 2), fixed, noise, bias),
        moving=_acquire(_stream(seed, 3), moving, noise, bias),
        fixed_labels=fixed_labels,
        moving_labels=moving_labels,
        displacement=displacement,
        mask=fixed_labels > 0,
    )


def phantom_slabs(
    shape: Sequence[int], planes: int, *, seed: int = 0, noise: float = 0.02, displacement_vox: float = 4.0
) -> Iterator[tuple[slice, Phantom]]:
    """A phantom too large to be held, some planes after the other, without shading; both images are T1.

    Its warp is as long as asked, or as stays invertible on a grid of a quarter of the resolution.

    Args:
        shape, seed, noise, displacement_vox: as for `phantom`.
        planes: of each slab.
    """
    size = _checked_shape(shape)
    anatomy, waves = _Anatomy.random(_stream(seed, 0), size), _Waves.random(_stream(seed, 1), 14, 1.1, channels=3)
    depth, height, width = (max(min(n, _SMALLEST), n // 4) for n in size)
    small, larger = (depth, height, width), size[2] / width
    coarse = _random_displacement(_stream(seed, 1), small, displacement_vox / larger)
    scale = larger * float(_length(coarse).max() / _length(_tapered(waves, small, slice(0, depth))).max())
    for start in range(0, size[0], planes):
        part = slice(start, min(start + planes, size[0]))
        index = _index_grid((part.stop - start, *size[1:]))
        index[0] += start
        displacement = scale * _tapered(waves, size, part)
        fixed, fixed_labels = anatomy.paint(index + displacement, "t1")
        moving, moving_labels = anatomy.paint(index, "t1")
        grains = [np.random.default_rng([seed, 4 + side, start]) for side in (0, 1)]
        yield (
            part,
            Phantom(
                fixed=_acquire(grains[0], fixed, noise, 0.0),
                moving=_acquire(grains[1], moving, noise, 0.0),
                fixed_labels=fixed_labels,
                moving_labels=moving_labels,
                displacement=displacement,
                mask=fixed_labels > 0,
            ),
        )


def _checked_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    size = tuple(int(n) for n in shape)
    if len(size) != 3 or min(size[1:]) < _SMALLEST or (size[0] != 1 and size[0] < _SMALLEST):
        raise InputError(
            f"Phantom shape {tuple(shape)} cannot be used: give (D, H, W) with every axis "
            f"at least {_SMALLEST}, or D = 1 for a 2-D phantom"
        )
    return size[0], size[1], size[2]


def _check_options(contrast: str, **amounts: float) -> None:
    if contrast not in get_args(Contrast):
        raise InputError(f"Phantom contrast {contrast!r} is unknown: choose one of {', '.join(get_args(Contrast))}")
    for name, amount in amounts.items():
        if not (math.isfinite(amount) and amount >= 0):
            raise InputError(f"Phantom {name} = {amount} cannot be used: give a number >= 0")


def _stream(seed: int, purpose: int) -> np.random.Generator:
    """One generator per purpose, so that for instance more noise does not change the anatomy."""
    return np.random.default_rng([seed, purpose])


def _length(vectors: Tensor) -> Tensor:
    """Euclidean length along the first axis; several times faster here than torch.linalg.vector_norm."""
    return vectors.square().sum(0).sqrt()


def _index_grid(shape: tuple[int, int, int]) -> Tensor:
    """(3, D, H, W) array-order index of every voxel."""
    return torch.stack(torch.meshgrid(*(torch.arange(n, dtype=torch.float32) for n in shape), indexing="ij"))


def _chunks(coordinates: Tensor) -> tuple[Tensor, ...]:
    """Coordinates (3, D, H, W) as pieces (3, N) that bound the memory of what is computed from them."""
    return torch.split(coordinates.reshape(3, -1), _CHUNK, dim=1)


@dataclass(frozen=True)
class _Waves:
    """A smooth random field of unit variance: sum over k of amplitude_k cos(frequency_k . x + phase_k).

    Attributes:
        frequency: (K, 3) radians per unit of x.
        phase: (K, 1) radians.
        amplitude: (channels, K).
    """

    frequency: Tensor
    phase: Tensor
    amplitude: Tensor

    @classmethod
    def random(cls, rng: np.random.Generator, count: int, wavelength: float, channels: int = 1) -> "_Waves":
        direction = rng.standard_normal((count, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        frequency = direction * (2 * np.pi / wavelength * rng.uniform(0.7, 1.3, (count, 1)))
        phase = rng.uniform(0, 2 * np.pi, (count, 1))
        amplitude = rng.standard_normal((channels, count))
        amplitude *= np.sqrt(2) / np.linalg.norm(amplitude, axis=1, keepdims=True)
        return cls(*(torch.from_numpy(a).float() for a in (frequency, phase, amplitude)))

    def values(self, points: Tensor) -> Tensor:
        """(channels, N) field at points (3, N)."""
        return self.amplitude @ torch.cos(self.frequency @ points + self.phase)

    def distance_to_zero(self, points: Tensor) -> Tensor:
        """(N,) first-order distance |f| / |grad f| from each point to the zero surface of the first channel.

        Where the field is flat the surface would be a wide blot; there the distance is raised to close it.
        """
        angle = self.frequency @ points + self.phase
        slope = _length((self.amplitude[0, :, None] * self.frequency).T @ torch.sin(angle))
        typical = _length(self.frequency.T).mean()
        value = (self.amplitude[:1] @ torch.cos(angle))[0].abs()
        return value / torch.hypot(slope, 0.3 * typical) + torch.relu(0.5 - slope / typical) / typical


@dataclass(frozen=True)
class _Anatomy:
    """The brain as a function of voxel coordinates.

    `p` below are coordinates (z up, y backwards, x sideways) in which the brain is about the unit ball;
    `v` are voxels divided by one radius, so that folds and texture are as wide along every axis.
    """

    centre: Tensor
    semi_axes: Tensor
    radius_vox: float
    fold: float  # wavelength of the folding, in units of v
    folding: _Waves
    texture: _Waves
    wobble: _Waves

    @classmethod
    def random(cls, rng: np.random.Generator, shape: tuple[int, int, int]) -> "_Anatomy":
        extent = torch.tensor(shape, dtype=torch.float32)
        semi_axes = 0.435 * extent
        radius_vox = float(semi_axes[extent > 1].mean())
        semi_axes[extent == 1] = radius_vox
        centre = (extent - 1) / 2
        centre[extent == 1] = -_SLICE_HEIGHT * radius_vox
        # In a small image a brain's folds would be thinner than a voxel: keep them 16 voxels apart.
        fold = max(0.38, 16 / radius_vox)
        return cls(
            centre=centre[:, None],
            semi_axes=semi_axes[:, None],
            radius_vox=radius_vox,
            fold=fold,
            folding=_Waves.random(rng, 40, fold),
            texture=_Waves.random(rng, 32, 0.6 * fold),
            wobble=_Waves.random(rng, 10, 1.3, channels=4),
        )

    def paint(self, coordinates: Tensor, contrast: Contrast) -> tuple[Tensor, Tensor]:
        """Noise-free image and labels (D, H, W) at coordinates (3, D, H, W) in voxels."""
        shape = coordinates.shape[1:]
        brightness = _BRIGHTNESS["t2" if contrast == "t2" else "t1"]
        sign = -1.0 if contrast == "t2" else 1.0  # what shortens T1, and is bright there, shortens T2 and is dark
        images, labels = [], []
        for points in _chunks(coordinates):
            image = torch.full((points.shape[1],), brightness[0])
            label = torch.zeros(points.shape[1], dtype=torch.int32)
            for tissue, weight in self._tissues((points - self.centre) / self.semi_axes):
                image = torch.lerp(image, torch.tensor(brightness[tissue]), weight)
                label[weight > 0.5] = tissue
            grain = self.texture.values((points - self.centre) / self.radius_vox)[0].clamp(-2, 2)
            images.append(image * (1 + sign * _TEXTURE * grain))
            labels.append(label)
        image = torch.cat(images).reshape(shape)
        return 1 - image if contrast == "inverted" else image, torch.cat(labels).reshape(shape)

    def _tissues(self, p: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Tissues in the order of painting, each with its weight (N,) in [0, 1] at p (3, N)."""
        v = p * (self.semi_axes / self.radius_vox)
        wobble = self.wobble.values(v)
        z, y, x = p + 0.025 * wobble[:3]
        side = x.abs()
        hull = 1 - _hull_radius(z, y, x)
        sulcus = torch.minimum(self._sulci(v, hull, wobble[3]), _sylvian_fissure(z, y, side))
        half_width = 0.045 * self.fold
        fissure = side + 1.5 * torch.relu(0.42 - torch.hypot(z - 0.05, y / 1.25))
        notched = hull - 0.10 * self.fold * torch.exp(-((torch.minimum(sulcus, fissure) / (3 * half_width)) ** 2))
        depth = torch.minimum(torch.minimum(hull, fissure), sulcus) - half_width
        yield CSF, self._inside(notched)
        yield CORTEX, self._inside(depth)
        yield WHITE_MATTER, self._inside(depth - 0.135 * self.fold)
        yield (
            CAUDATE,
            self._inside(_ellipsoid(z - 0.08, y + 0.27, side - 0.20, (0.20, 0.16, 0.08), tilt=0.35)),
        )
        yield (
            PUTAMEN,
            self._inside(_ellipsoid(z + 0.02, y + 0.06, side - 0.42, (0.19, 0.25, 0.085), tilt=0.25)),
        )
        yield (
            PALLIDUM,
            self._inside(_ellipsoid(z + 0.02, y + 0.01, side - 0.31, (0.13, 0.14, 0.06), tilt=0.45)),
        )
        yield (
            THALAMUS,
            self._inside(_ellipsoid(z - 0.02, y - 0.17, side - 0.15, (0.17, 0.17, 0.11), tilt=0.5)),
        )
        yield VENTRICLE, self._inside(_ventricles(z, y, side, slit=max(0.025, 1.2 / self.radius_vox)))

    def _inside(self, distance: Tensor) -> Tensor:
        """Share of a voxel that is inside, from the signed distance in units of the brain's radius."""
        return torch.sigmoid(distance * (self.radius_vox / _EDGE_VOX))

    def _sulci(self, v: Tensor, hull: Tensor, uneven: Tensor) -> Tensor:
        """(N,) distance to the nearest sulcus: zero surfaces of a random field, down to an `uneven` floor.

        Radial distances are shortened before the field is looked up, so that the surfaces stand upright.
        """
        upright = 1.5 / (0.5 + _length(v))
        floor = self.fold * (1.0 + 0.25 * uneven)
        return self.folding.distance_to_zero(v * upright) / upright + torch.relu(hull - floor)


def _hull_radius(z: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """(N,) radius in units of the brain surface's: egg-shaped, narrow in front, flat below."""
    width = 0.93 + 0.06 * torch.tanh(1.5 * y) - 0.06 * z
    height = 0.87 + 0.09 * torch.tanh(4 * z)
    return (torch.hypot(x / width, y).pow(2.3) + (z.abs() / height).pow(2.3)).pow(1 / 2.3)


def _sylvian_fissure(z: Tensor, y: Tensor, side: Tensor) -> Tensor:
    """(N,) distance to the deep groove on either side, above the temporal lobe."""
    return (z + 0.12 - 0.35 * y).abs() + torch.relu(0.60 - side) + torch.relu((y + 0.1).abs() - 0.35)


def _ellipsoid(z: Tensor, y: Tensor, x: Tensor, axes: tuple[float, float, float], tilt: float) -> Tensor:
    """(N,) approximate signed distance, positive inside; `tilt` (radians) turns the back outwards."""
    along, across = y * math.cos(tilt) + x * math.sin(tilt), x * math.cos(tilt) - y * math.sin(tilt)
    radius = torch.sqrt((z / axes[0]) ** 2 + (along / axes[1]) ** 2 + (across / axes[2]) ** 2)
    return (1 - radius) * min(axes)


def _ventricles(z: Tensor, y: Tensor, side: Tensor, slit: float) -> Tensor:
    """(N,) approximate signed distance, positive inside: lateral ventricles, and the third, a slit."""
    middle = 0.07 + 0.75 * (y - 0.02) ** 2 + 0.25 * torch.relu(y - 0.1)
    width = 0.045 + 0.10 * y.abs()
    height = 0.13 - 0.10 * y
    lateral = torch.sqrt(((side - middle) / width) ** 2 + ((z - 0.12 + 0.3 * y**2) / height) ** 2 + (y / 0.42) ** 4)
    third = torch.sqrt((side / slit) ** 2 + ((y - 0.12) / 0.16) ** 2 + ((z + 0.04) / 0.16) ** 2)
    return torch.maximum((1 - lateral) * 0.05, (1 - third) * slit)


def _acquire(rng: np.random.Generator, image: Tensor, noise: float, bias: float) -> Tensor:
    """What a scanner would make of a clean image: its own smooth brightness field and noise."""
    grain = torch.from_numpy(rng.standard_normal(tuple(image.shape), dtype=np.float32))
    if bias > 0:
        image = image * torch.exp(bias * _coil(rng, (image.shape[0], image.shape[1], image.shape[2])))
    return image + noise * grain


def _coil(rng: np.random.Generator, shape: tuple[int, int, int]) -> Tensor:
    """(D, H, W) smooth random field from -1 to 1, with wavelengths of about the image."""
    waves = _Waves.random(rng, 6, 2.5)
    scale = torch.tensor(shape)[:, None, None, None] / 2
    field = _evaluate(waves, _index_grid(shape) / scale)[0]
    low, high = field.min(), field.max()
    return (2 * field - low - high) / (high - low)


def _evaluate(waves: _Waves, coordinates: Tensor) -> Tensor:
    """(channels, D, H, W) field at coordinates (3, D, H, W)."""
    return torch.cat([waves.values(points) for points in _chunks(coordinates)], dim=1).reshape(
        -1, *coordinates.shape[1:]
    )


def _random_displacement(rng: np.random.Generator, shape: tuple[int, int, int], longest_vox: float) -> Tensor:
    """(3, D, H, W) smooth displacement, zero at the border, as long as asked or as stays invertible."""
    field = _tapered(_Waves.random(rng, 14, 1.1, channels=3), shape, slice(0, shape[0]))
    field *= longest_vox / _length(field).max()
    while _least_determinant(field) < _LEAST_DETERMINANT:
        field *= 0.93
    return field


def _tapered(waves: _Waves, shape: tuple[int, int, int], planes: slice) -> Tensor:
    """(3, planes, H, W) a field over a grid of this shape, zero at its border."""
    index = _index_grid((planes.stop - planes.start, *shape[1:]))
    index[0] += planes.start
    field = _evaluate(waves, index / (torch.tensor(shape)[:, None, None, None] / 2))
    for axis, n in enumerate(shape):
        if n == 1:
            field[axis] = 0
            continue
        to_border = torch.minimum(torch.arange(n), n - 1 - torch.arange(n)) / (0.3 * n)
        taper = torch.sin(to_border.clamp(max=1) * (math.pi / 2)) ** 2
        taper = taper[planes] if axis == 0 else taper
        field *= taper.reshape([-1 if a == axis else 1 for a in range(3)])
    return field


def _least_determinant(displacement: Tensor) -> float:
    """Smallest det(I + du/dx) on the grid, central differences."""
    axes = [axis for axis in range(3) if displacement.shape[1 + axis] > 1]
    columns = [torch.gradient(displacement[axes], dim=1 + axis)[0] for axis in axes]
    for axis, column in enumerate(columns):
        column[axis] += 1
    if len(columns) == 2:
        (a, b), (c, d) = columns
        return float((a * d - b * c).min())
    return float((columns[0] * torch.linalg.cross(columns[1], columns[2], dim=0)).sum(0).min())
