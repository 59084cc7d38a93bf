"""`python -m sointer.cli`."""

from sointer.cli import main

if __name__ == "__main__":
    main()
