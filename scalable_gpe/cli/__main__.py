"""Run the command line as ``python -m scalable_gpe.cli``."""

import sys

from scalable_gpe.cli import main

sys.exit(main())
