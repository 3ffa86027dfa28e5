"""The points that a command reads from a file."""

from typing import TYPE_CHECKING

from scalable_gpe.cli.options import PointsOptions

if TYPE_CHECKING:
    from scalable_gpe.io.files import Points
    from scalable_gpe.storage.backends import StorageOptions


def read_points(path: str, options: PointsOptions, storage_options: "StorageOptions | None") -> "Points":
    """Read the points of a file, as the options say."""
    import scalable_gpe as gpe

    return gpe.read_points(
        path,
        key=options.key,
        index=options.index,
        columns=options.columns,
        drop=options.drop,
        header=options.header,
        sep=options.sep,
        storage_options=storage_options,
    )
