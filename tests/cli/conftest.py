"""Commands are tried on the folders that the tests of data and pages make."""

from tests.data.conftest import cache_folder, mnist_folder, save_images, write_idx
from tests.report.conftest import make_run

__all__ = ["cache_folder", "make_run", "mnist_folder", "save_images", "write_idx"]
