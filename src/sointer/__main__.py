"""`python -m sointer`: the command line."""

from sointer.cli import main

if __name__ == "__main__":
    main()
