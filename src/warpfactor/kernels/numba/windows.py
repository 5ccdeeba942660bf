"""Sums over a window along x, for LNCC and for the tile step.

A small box is summed anew for every voxel, which runs on the vector unit. A large box is a running sum, in double
precision, so its cost does not depend on its size.
"""

from warpfactor.kernels.numba._compile.jit import ordered, serial, unsigned


@ordered
def _small_box(line, r, out, x0, x1):  # type: ignore[no-untyped-def]
    """out[x] = sum of line[x : x + 2r + 1] for r = 1 or 2."""
    one, two, three = unsigned(1), unsigned(2), unsigned(3)
    if r == 1:
        for x in range(x0, x1):
            out[x] = line[x] + (line[x + one] + line[x + two])
    else:
        for x in range(x0, x1):
            y = x + one
            out[x] = line[x] + ((line[y] + line[y + one]) + (line[y + two] + line[y + three]))


@ordered
def _large_boxes(lines, r, out, x0, x1):  # type: ignore[no-untyped-def]
    """The same for three lines at once and any r, as running sums: three sums hide each other's latency."""
    a, b, c = lines[0], lines[1], lines[2]
    p, q, s = out[0], out[1], out[2]
    one, size = unsigned(1), unsigned(2 * r)
    t, u, v = 0.0, 0.0, 0.0
    for x in range(x0, x0 + size + one):
        t += a[x]
        u += b[x]
        v += c[x]
    p[x0], q[x0], s[x0] = t, u, v
    for x in range(x0 + one, x1):
        t += a[x + size] - a[x - one]
        u += b[x + size] - b[x - one]
        v += c[x + size] - c[x - one]
        p[x], q[x], s[x] = t, u, v


@serial
def window_rows(lines, r, taps, box, out, x0, x1):  # type: ignore[no-untyped-def]
    """out[q, x] = sum over the window of lines[q, x : x + 2r + 1] for x0 <= x < x1.

    There are three or six lines, in double precision. A box needs no taps.
    """
    x0, x1 = unsigned(x0), unsigned(x1)
    if x0 >= x1:
        return
    if box & (r > 2):
        for q in range(0, lines.shape[0], 3):
            _large_boxes(lines[q : q + 3], r, out[q : q + 3], x0, x1)
        return
    for q in range(lines.shape[0]):
        line, sums = lines[q], out[q]
        if box & (r > 0):
            _small_box(line, r, sums, x0, x1)
        else:
            for x in range(x0, x1):
                s = 0.0
                for k in range(unsigned(2 * r + 1)):
                    s += taps[k] * line[x + k]
                sums[x] = s
