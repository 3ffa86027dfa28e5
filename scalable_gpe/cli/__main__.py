"""python -m scalable_gpe.cli is the command scalable-gpe."""

import sys

from scalable_gpe.cli import main

sys.exit(main())
