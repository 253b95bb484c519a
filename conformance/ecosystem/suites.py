"""All suites, cheap ones first."""

from from_crates import CRATES
from from_debian import DEBIAN
from from_go import GO
from from_pypi import PYPI

SUITES = [*PYPI, *CRATES, *GO, *DEBIAN]
