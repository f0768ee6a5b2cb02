"""The version, for every module that writes it."""

__version__ = "0.2.0"
