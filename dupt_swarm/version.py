"""The version of this package, which peers tell one another."""

VERSION = "0.4.0"
