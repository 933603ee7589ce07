"""`python -m runekeep`: the command line."""

from runekeep.cli import main

if __name__ == "__main__":
    main()
