"""The layers of the package, as docs/architecture.md describes them."""

# Bottom to top; docs/architecture.md says what each is for.
LAYERS = [
    "errors",
    "memory",
    "processes",
    "geometry.grid",
    "kernels",
    "geometry",
    "measure",
    "phantom",
    "io",
    "scene",
    "terms",
    "optim",
    "stages",
    "ranks",
    "recipebook",
    "checks",
    "show",
    "registration",
    "followup",
    "cohort",
    "bench",
    "cli",
]
