"""`python -m sointer.apps.cli`."""

from sointer.apps.cli import main

if __name__ == "__main__":
    main()
