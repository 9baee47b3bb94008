"""``python -m ipusim``: the command line."""

from ipusim.cli import main

if __name__ == "__main__":
    main()
