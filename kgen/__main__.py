"""`python -m kgen`."""

from kgen.cli import main

main()
