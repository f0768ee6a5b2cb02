"""``python -m attemper`` is the command line."""

from attemper.cli import main

if __name__ == "__main__":
    main()
