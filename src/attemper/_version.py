"""The version, for the package and its metadata."""

__version__ = "1.0.0"
