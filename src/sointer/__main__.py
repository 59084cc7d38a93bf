"""`python -m sointer`: the command line."""

from sointer.apps.cli import main

if __name__ == "__main__":
    main()
